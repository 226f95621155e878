"""Schemas of an older lake's versions, read from footers: one id space per table, because ids are never reused."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from lakebed.core.schema.schema import Schema, walk
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct, Type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def fit_ids(found: Schema, history: Sequence[Schema]) -> Schema:
    """`found` with the table's ids for the same columns, and new ids for all others.

    If two versions have a column of one name with different types, these are two columns with two ids.
    """
    fresh = count(1 + max((f.field_id for schema in history for f in walk(schema.fields)), default=0))
    known = [f for schema in history for f in schema.fields]
    return Schema(fields=tuple(_fit(f, known, fresh) for f in found.fields))


def _fit(column: Field, known: Sequence[Field], fresh: Iterator[int]) -> Field:
    same = next((f for f in known if f.physical_name == column.name and _alike(f.type, column.type)), None)
    return replace(same, name=column.name, required=False) if same is not None else _renumbered(column, fresh)


def _alike(left: Type, right: Type) -> bool:
    """The same type at every depth, whatever the ids."""
    match left, right:
        case Primitive(), Primitive():
            return left == right
        case Struct(fields=mine), Struct(fields=others):
            return [f.physical_name for f in mine] == [f.physical_name for f in others] and all(
                _alike(a.type, b.type) for a, b in zip(mine, others, strict=True)
            )
        case List(element=mine), List(element=other):
            return _alike(mine.type, other.type)
        case Map(key=key, value=value), Map(key=other_key, value=other):
            return _alike(key.type, other_key.type) and _alike(value.type, other.type)
        case _:
            return False


def _renumbered(column: Field, fresh: Iterator[int]) -> Field:
    field_id = next(fresh)
    match column.type:
        case Struct(fields=fields):
            kind: Type = Struct(fields=tuple(_renumbered(f, fresh) for f in fields))
        case List(element=element):
            kind = List(element=_renumbered(element, fresh))
        case Map(key=key, value=value):
            kind = Map(key=_renumbered(key, fresh), value=_renumbered(value, fresh))
        case Primitive():
            kind = column.type
    return replace(column, field_id=field_id, type=kind)
