"""The schema of a rollback: the columns of an earlier version again, in a schema that still reads every file written since.

Names and order are those of the earlier version. A column keeps the widest type that any version gave it, and is optional unless every
version requires it. Columns added since stay behind the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, cast

from lakebed.core.schema.types import Field, List, Map, Primitive, Struct, Type, can_promote

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.core.schema.schema import Schema

_Level = dict[int, Field]  # the fields of one struct, by id


@dataclass(frozen=True, slots=True, kw_only=True)
class NameClash:
    """An earlier name that another column has now."""

    column: str
    earlier_id: int
    current_id: int

    def __str__(self) -> str:
        return f"{self.column} was field {self.earlier_id} then and is field {self.current_id} now"


def restore_fields(earlier: Schema, current: Schema, *, history: Sequence[Schema]) -> tuple[Field, ...]:
    """The columns after a rollback from `current` to `earlier`; `history` holds every version that files were written under."""
    return _restore(earlier.fields, current.fields, [_level(schema.fields) for schema in history])


def list_clashes(fields: Sequence[Field]) -> tuple[NameClash, ...]:
    """Names that two columns would share, without regard to case as in Spark."""
    seen: dict[str, Field] = {}
    every = ((path, field, seen.setdefault(path.lower(), field)) for path, field in _paths(fields, ""))
    return tuple(
        NameClash(column=path, earlier_id=first.field_id, current_id=field.field_id) for path, field, first in every if first is not field
    )


def list_lost_names(current: Schema, restored: Schema) -> tuple[str, ...]:
    """Names that columns have now and will not have there, at any depth; queries that use them fail from then on."""
    kept = {path.lower() for path, _ in _paths(restored.fields, "")}
    return tuple(field.name for path, field in _paths(current.fields, "") if path.lower() not in kept)


def _restore(earlier: Sequence[Field], current: Sequence[Field], versions: Sequence[_Level]) -> tuple[Field, ...]:
    now, ids = _level(current), {field.field_id for field in earlier}
    again = (_restore_field(field, now.get(field.field_id), [version.get(field.field_id) for version in versions]) for field in earlier)
    return (*again, *(replace(field, required=False) for field in current if field.field_id not in ids))


def _restore_field(field: Field, now: Field | None, known: Sequence[Field | None]) -> Field:
    """`known`: the field in each version that has its parent; None where that version lacks it."""
    found = [other for other in known if other is not None]
    is_required = field.required and len(found) == len(known) and all(other.required for other in found)
    return replace(field, required=is_required, type=_restore_type(field.type, now, found))


def _restore_type(kind: Type, now: Field | None, found: Sequence[Field]) -> Type:
    match kind:
        case Primitive():
            return reduce(_wider, [other.type for other in found], cast("Type", kind))
        case Struct(fields=fields):
            return Struct(fields=_restore(fields, () if now is None else now.children, [_level(other.children) for other in found]))
        case List(element=element):
            return List(element=_restore_child(element, now, found))
        case Map(key=key, value=value):
            return Map(key=key, value=_restore_child(value, now, found))


def _restore_child(child: Field, now: Field | None, found: Sequence[Field]) -> Field:
    current = None if now is None else _level(now.children).get(child.field_id)
    return _restore_field(child, current, [_level(other.children).get(child.field_id) for other in found])


def _wider(one: Type, other: Type) -> Type:
    return other if can_promote(one, other) else one


def _level(fields: Sequence[Field]) -> _Level:
    return {field.field_id: field for field in fields}


def _paths(fields: Sequence[Field], above: str) -> Iterator[tuple[str, Field]]:
    for field in fields:
        yield f"{above}{field.name}", field
        yield from _paths(field.children, f"{above}{field.name}.")
