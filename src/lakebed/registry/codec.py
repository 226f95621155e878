"""Convert between database values and typed rows, decided once per row type."""

from __future__ import annotations

import typing
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from lakebed.core import rows as row_types
from lakebed.core.times import from_micros

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

T = TypeVar("T")


def decode_row(kind: type[T], values: Sequence[Any]) -> T:
    """A typed row from values in the dataclass's order."""
    names, convert = _plan(typing.cast("Hashable", kind))
    arguments = dict(zip(names, values, strict=True))
    for name, conversion in convert:
        if arguments[name] is not None:
            arguments[name] = conversion(arguments[name])
    return kind(**arguments)


@lru_cache(maxsize=64)
def _plan(kind: Any) -> tuple[tuple[str, ...], tuple[tuple[str, Callable[[Any], Any]], ...]]:
    hints = typing.get_type_hints(kind, globalns={**vars(row_types), "datetime": datetime})
    names = tuple(f.name for f in fields(kind))
    conversions: list[tuple[str, Callable[[Any], Any]]] = []
    for name in names:
        options = set(typing.get_args(hints[name])) or {hints[name]}
        if datetime in options:
            conversions.append((name, from_micros))
        elif bool in options:
            conversions.append((name, bool))
        elif bytes in options:
            conversions.append((name, _to_bytes))
    return names, tuple(conversions)


def _to_bytes(value: bytes | memoryview | str) -> bytes:
    """Hex text in journal images, bytes from tables."""
    return bytes.fromhex(value) if isinstance(value, str) else bytes(value)
