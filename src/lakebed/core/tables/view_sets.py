"""What a view set is: a query over one driving source, cut into slices of insert time."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, cast

from lakebed.core.errors import InvalidValueError
from lakebed.core.names import TableName
from lakebed.core.schema.schema import Schema, walk
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct, can_promote
from lakebed.core.times import MICROSECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

DAY_US = 24 * 3600 * 1_000_000
MERGE_WINDOW = "merge_window_us"  # property of a table: never rename
Lookups = Literal["ignore", "track"]  # stored: never rename
_LOOKUPS = ("ignore", "track")
_UNITS = {"us": 1, "ms": 1000, "s": 1_000_000, "m": 60 * 1_000_000, "h": 3600 * 1_000_000, "d": DAY_US}
_NEAR = 100  # units: so far a fitting slice is looked for
_DURATION = re.compile(r"([0-9]{1,18}) ?(us|ms|s|m|h|d)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A view set's query and how it is sliced. `reads` are the lookups: every table of the query but the driving source."""

    sql: str
    over: TableName
    slice_us: int
    event_time: str | None = None
    combine: str | None = None
    lookups: Lookups = "ignore"
    partial: bool = False
    reads: tuple[TableName, ...] = ()

    def __post_init__(self) -> None:
        if self.lookups not in _LOOKUPS:
            message = f"lookups={self.lookups!r} is not known: give 'ignore' or 'track'"
            raise InvalidValueError(message)

    @property
    def inputs(self) -> tuple[TableName, ...]:
        return (self.over, *self.reads)

    def to_json(self) -> str:
        """Stored, and part of the version's hash: keys are never renamed."""
        stored = {
            "sql": self.sql,
            "over": str(self.over),
            "slice_us": self.slice_us,
            "event_time": self.event_time,
            "combine": self.combine,
            "lookups": self.lookups,
            "partial": self.partial,
            "reads": [str(name) for name in self.reads],
        }
        return json.dumps(stored, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, stored: str) -> Definition:
        values: dict[str, Any] = json.loads(stored)
        return cls(
            sql=values["sql"],
            over=TableName.parse(values["over"]),
            slice_us=values["slice_us"],
            event_time=values["event_time"],
            combine=values["combine"],
            lookups=cast("Lookups", values["lookups"]),
            partial=values["partial"],
            reads=tuple(TableName.parse(name) for name in values["reads"]),
        )


def find_definition(properties: str) -> Definition | None:
    """The definition among a version's stored properties; None for a plain table, or for text that is no definition of ours."""
    stored = json.loads(properties).get("definition", "")
    return Definition.from_json(stored) if isinstance(stored, str) and stored.startswith("{") else None


def parse_duration(given: str | int | timedelta, *, what: str = "slice") -> int:
    """A positive whole number of microseconds, from `15m`, a timedelta or the number itself."""
    micros = _micros(given)
    if micros is None or micros <= 0:
        message = f"{what} {given!r} is no positive whole number of microseconds: write it as 15m, 1h, 1d, 500ms or 10us"
        raise InvalidValueError(message)
    return micros


def read_age(given: timedelta | str, *, what: str) -> timedelta:
    """A timedelta, or text such as `30d`; a bare number would not say of what."""
    match given:
        case timedelta():
            return given
        case str():
            return timedelta(microseconds=parse_duration(given, what=what))
        case _:
            message = f"{what}={given!a}: give a timedelta or text such as 30d, 12h or 15m"
            raise InvalidValueError(message)


def _micros(given: object) -> int | None:
    match given:
        case timedelta():
            return given // MICROSECOND
        case str() if found := _DURATION.fullmatch(given):
            return int(found[1]) * _UNITS[found[2]]
        case int() if not isinstance(given, bool):
            return given
        case _:
            return None


def merge_window_of(properties: Mapping[str, Any]) -> int:
    """How far merging may reach, in microseconds; one UTC day unless the table says otherwise."""
    found = properties.get(MERGE_WINDOW, DAY_US)
    if not isinstance(found, int) or isinstance(found, bool) or found <= 0:
        message = f"the property {MERGE_WINDOW} is {found!r}: it must be a positive whole number of microseconds"
        raise InvalidValueError(message)
    return found


def require_fitting(slice_us: int, *, window_us: int, source: TableName) -> None:
    """Otherwise a merged source would widen windows again and again across the edges of its merge windows."""
    if window_us % slice_us and slice_us % window_us:
        unit = _unit_of(slice_us)
        near = [f"{n}{unit}" for n in _list_fitting(slice_us // _UNITS[unit], unit=unit, window_us=window_us)]
        message = (
            f"a slice of {show_duration(slice_us)} does not fit the merge window of {source} ({show_duration(window_us, unit=unit)}): "
            f"give one that divides it or is a whole multiple of it{', such as ' + ' or '.join(near) if near else ''}"
        )
        raise InvalidValueError(message)


def show_duration(micros: int, *, unit: str | None = None) -> str:
    """As one writes it: `7h`; in `unit` where it is a whole number of those."""
    if unit is None or micros % _UNITS[unit]:
        unit = _unit_of(micros)
    return f"{micros // _UNITS[unit]}{unit}"


def _unit_of(micros: int) -> str:
    """The largest that measures it in whole numbers; beyond a day in hours unless whole days."""
    return next(unit for unit, size in reversed(_UNITS.items()) if micros % size == 0)


def _list_fitting(wanted: int, *, unit: str, window_us: int) -> list[int]:
    """The nearest smaller and larger number of units that fits."""
    size = _UNITS[unit]

    def fits(n: int) -> bool:
        return window_us % (n * size) == 0 or (n * size) % window_us == 0

    below = next((n for n in range(wanted - 1, max(0, wanted - _NEAR), -1) if fits(n)), None)
    above = next((n for n in range(wanted + 1, wanted + _NEAR) if fits(n)), None)
    return [n for n in (below, above) if n is not None]


def align_schema(new: Schema, earlier: Sequence[Schema]) -> Schema:
    """`new` with the ids and physical names that its columns had in earlier versions of the table, newest last.

    A column keeps them if its old values could be read as the new type; any other gets ids and a physical name never used before.
    """
    known = {f.field_id: f for schema in earlier for f in walk(schema.fields)}
    columns = {f.name: f for schema in earlier for f in schema.fields}
    ids = count(max(known, default=0) + 1)
    taken = {f.physical_name for schema in earlier for f in schema.fields}
    fields = []
    for field in new.fields:
        old = columns.get(field.name)
        if old is not None and _is_same(old, field):
            fields.append(replace(old, type=field.type if isinstance(field.type, Primitive) else old.type, required=field.required))
        else:
            fresh = _renumbered(field, ids)
            fields.append(replace(fresh, physical_name=f"{field.name}_{fresh.field_id}" if field.name in taken else field.name))
    return Schema(fields=tuple(fields))


def is_same_shape(left: Schema, right: Schema) -> bool:
    """The same columns in the same order, whatever their ids."""
    return _shape(left.fields) == _shape(right.fields)


def loosen(schema: Schema) -> Schema:
    """The same with every field optional, at every depth but the keys of maps."""
    return Schema(fields=tuple(_loosened(field) for field in schema.fields))


def _loosened(field: Field) -> Field:
    match field.type:
        case Struct(fields=fields):
            return replace(field, required=False, type=Struct(fields=tuple(_loosened(f) for f in fields)))
        case List(element=element):
            return replace(field, required=False, type=List(element=_loosened(element)))
        case Map(key=key, value=value):
            return replace(field, required=False, type=Map(key=key, value=_loosened(value)))
        case Primitive():
            return replace(field, required=False)


def _is_same(old: Field, new: Field) -> bool:
    if isinstance(old.type, Primitive):
        return can_promote(old.type, new.type)
    return _shape(old.children) == _shape(new.children) and type(old.type) is type(new.type)


def _shape(fields: Iterable[Field]) -> tuple[object, ...]:
    return tuple(
        (f.name, f.required, str(f.type) if isinstance(f.type, Primitive) else (type(f.type).__name__, _shape(f.children))) for f in fields
    )


def _renumbered(field: Field, ids: Iterator[int]) -> Field:
    """Fresh ids for the field and everything under it, parents first."""
    numbered = replace(field, field_id=next(ids), physical_name=field.name)
    match field.type:
        case Struct(fields=fields):
            return replace(numbered, type=Struct(fields=tuple(_renumbered(f, ids) for f in fields)))
        case List(element=element):
            return replace(numbered, type=List(element=_renumbered(element, ids)))
        case Map(key=key, value=value):
            return replace(numbered, type=Map(key=_renumbered(key, ids), value=_renumbered(value, ids)))
        case Primitive():
            return numbered
