"""The arguments of a call in SQL, bound to the signature of the Python function that answers it.

Name, type and default of a parameter come from the signature; one without a default is required, and NULL means "not given".
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import InvalidValueError
from lakebed.core.results import Rows, arrow_schema
from lakebed.core.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    Given = dict[str, Any]

_REQUIRED = inspect.Parameter.empty
# `begin`/`end` always mean event time; the slice of a partition may also be given by the names of its columns
_ALIASES = {"begin_insert_time": "insert_begin", "end_insert_time": "insert_end"}
_MIRRORED = {short: long for long, short in _ALIASES.items()}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument: its name in SQL, how it is read, and its default if it is absent or NULL."""

    name: str
    read: Callable[[str, Any], Any]
    default: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """`row` gives the columns of the answer, even if it is empty."""

    name: str
    row: type
    parameters: tuple[Parameter, ...]
    call: Callable[..., Rows[Any]]
    changes: bool = False

    @classmethod
    def of(cls, call: Callable[..., Rows[Any]], row: type, *, changes: bool) -> Function:
        """The keyword-only parameters of `call` are the arguments in SQL, in their order."""
        keywords = [p for p in inspect.signature(call).parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
        parameters = tuple(Parameter(p.name, _READERS[p.annotation.removesuffix(" | None")], p.default) for p in keywords)
        return cls(name=call.__name__, row=row, parameters=parameters, call=call, changes=changes)

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self.row)

    def bind(self, positional: Sequence[Any], named: Mapping[str, Any]) -> Given:
        """The arguments of a call in SQL, each under its name."""
        known = [parameter.name for parameter in self.parameters]
        if len(positional) > len(known):
            message = f"{self.name} takes {len(known)} arguments ({', '.join(known) or 'none'}), not {len(positional)}"
            raise InvalidValueError(message)
        given = dict(zip(known, positional, strict=False))
        for key, value in named.items():
            target = self._find_name(key)
            if target in given:
                message = f"{self.name} was given {target} twice"
                raise InvalidValueError(message)
            given[target] = value
        return given

    def read(self, arguments: Mapping[str, Any]) -> Given:
        """Values of the right type for every parameter."""
        given = self.bind((), arguments)
        return {parameter.name: self._read(parameter, given.get(parameter.name)) for parameter in self.parameters}

    def _read(self, parameter: Parameter, value: Any) -> Any:
        if value is not None:
            return parameter.read(parameter.name, value)
        if parameter.default is _REQUIRED:
            message = f"{self.name} needs {parameter.name}"
            raise InvalidValueError(message)
        return parameter.default

    def _find_name(self, key: str) -> str:
        known = {parameter.name for parameter in self.parameters}
        lowered = key.lower()
        candidates = [name for name in (lowered, _ALIASES.get(lowered), _MIRRORED.get(lowered)) if name in known]
        if not candidates or candidates[0] is None:
            message = f"{self.name} has no argument {key!a}: it takes {', '.join(sorted(known)) or 'none'}"
            raise InvalidValueError(message)
        return candidates[0]


# -- reading values -------------------------------------------------------------------------------


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(name, value, "text")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, value, "true or false")
    return value


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _wrong(name, value, "a whole number of 0 or more")
    return value


def _time(name: str, value: Any) -> datetime:
    """A timestamp, a date or ISO text; without an offset it is UTC, independent of the session's zone."""
    match value:
        case datetime():
            moment = value
        case date():
            moment = datetime(value.year, value.month, value.day, tzinfo=UTC)
        case str():
            moment = _parse(name, value)
        case _:
            raise _wrong(name, value, "a timestamp")
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _parse(name: str, text: str) -> datetime:
    try:
        return parse_time(text)
    except InvalidValueError as exc:
        raise _wrong(name, text, "a timestamp such as 2026-01-01T00:00:00Z") from exc


def _wrong(name: str, value: Any, wanted: str) -> InvalidValueError:
    return InvalidValueError(f"{name}: expected {wanted}, got {str(value)[:80]!a}")


_READERS: dict[str, Callable[[str, Any], Any]] = {"str": _text, "bool": _flag, "int": _count, "datetime": _time}  # by annotation
