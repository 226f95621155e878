"""Changes of a table's columns as values, and the schema that they give; whatever is written already can still be read.

A column is named by its path: `name`, `address.street`, `lines.element.price`, `prices.value`. A top column whose own name holds dots
is found first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from lakebed.core.errors import SchemaRefusedError
from lakebed.core.schema.evolution import PROMOTIONS, TOP, UsedNames, show_type
from lakebed.core.schema.schema import Schema, require_clear_names
from lakebed.core.schema.transforms import parse_transform, resolve_transforms
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct, Type, can_promote
from lakebed.core.suggestions import missing_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumn:
    """A new optional column behind the others of its level; rows that are written already have NULL in it."""

    column: str
    type: Type

    def __str__(self) -> str:
        return f"add {self.column} ({show_type(self.type)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameColumn:
    column: str
    to: str

    def __str__(self) -> str:
        return f"rename {self.column} to {self.to}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropColumn:
    """Its values stay in the files; a later column of the same name never reads them."""

    column: str

    def __str__(self) -> str:
        return f"drop {self.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WidenColumn:
    column: str
    type: Primitive

    def __str__(self) -> str:
        return f"widen {self.column} to {self.type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeOptional:
    column: str

    def __str__(self) -> str:
        return f"make {self.column} optional"


Change = AddColumn | RenameColumn | DropColumn | WidenColumn | MakeOptional


def alter(schema: Schema, changes: Sequence[Change], *, history: Iterable[Schema]) -> Schema:
    """The schema with all changes carried out in order, so that two columns may swap names; `history` holds every version there was."""
    if not changes:
        message = "no change is named: say what to add, rename, drop or widen"
        raise SchemaRefusedError(message)
    used = UsedNames.of([schema, *history])
    fields = schema.fields
    for change in changes:
        fields = _apply(fields, change, used)
    altered = _checked(fields)
    if altered == schema:
        message = f"{'; '.join(map(str, changes))}: the table already has this schema"
        raise SchemaRefusedError(message)
    return altered


def list_needed(schema: Schema, *, event_time: int | None, partition_by: Sequence[str], sort_by: Sequence[str]) -> dict[int, str]:
    """Columns that cannot be dropped, by field id, and what they are needed for."""
    needed: dict[int, str] = {}
    for name in sort_by:
        needed[schema.require_original(name).field_id] = "the table is sorted by it"
    for transform, source in resolve_transforms(schema, partition_by):
        needed[source.field_id] = f"the table is partitioned by {transform}"
    if event_time is not None:
        needed[event_time] = "it is the event time"
    return needed


def require_settings(schema: Schema, *, partition_by: Sequence[str], sort_by: Sequence[str]) -> None:
    """Refuse settings that name no column, or one of an unsuitable type."""
    for text in partition_by:
        parse_transform(text)
    list_needed(schema, event_time=None, partition_by=partition_by, sort_by=sort_by)


def _checked(fields: tuple[Field, ...]) -> Schema:
    if not fields:
        message = "a table needs at least one column: drop the table instead"
        raise SchemaRefusedError(message)
    made = Schema(fields=fields)
    require_clear_names(made)
    return made


def _apply(fields: tuple[Field, ...], change: Change, used: UsedNames) -> tuple[Field, ...]:
    match change:
        case AddColumn():
            return _add(fields, change, used)
        case RenameColumn(to=to):
            return _edit(fields, change.column, lambda f: _renamed(f, change, to))
        case DropColumn():
            return _edit(fields, change.column, lambda _: None)
        case WidenColumn(type=kind):
            return _edit(fields, change.column, lambda f: _widened(f, change, kind))
        case MakeOptional():
            return _edit(fields, change.column, lambda f: replace(f, required=False))
        case unreachable:
            assert_never(unreachable)


def _renamed(field: Field, change: RenameColumn, to: str) -> Field:
    if "." in to and "." in change.column:
        message = f"{change}: name only the last part of the path"
        raise SchemaRefusedError(message)
    return field.renamed(to)


def _widened(field: Field, change: WidenColumn, kind: Primitive) -> Field:
    if not isinstance(field.type, Primitive) or not can_promote(field.type, kind):
        message = f"{change}: it is {show_type(field.type)}, and values are only promoted from {PROMOTIONS}"
        raise SchemaRefusedError(message)
    return replace(field, type=kind)


def _add(fields: tuple[Field, ...], change: AddColumn, used: UsedNames) -> tuple[Field, ...]:
    above, _, name = change.column.rpartition(".")
    parent = _find(fields, above) if above else None
    new = Field(field_id=1, name=name if parent is not None else change.column, type=change.type)
    if parent is None:
        return (*fields, used.adopt(new, TOP, required=False))
    if not isinstance(parent.type, Struct):
        message = f"{change}: {above} is {show_type(parent.type)}, only a struct has columns"
        raise SchemaRefusedError(message)
    grown = Struct(fields=(*parent.type.fields, used.adopt(new, parent.field_id, required=False)))
    return _edit(fields, above, lambda f: replace(f, type=grown))


def _edit(fields: tuple[Field, ...], path: str, edit: Callable[[Field], Field | None]) -> tuple[Field, ...]:
    found = _find(fields, path)
    if found is None:
        raise missing_column(path, _list_paths(fields), listed=(f.name for f in fields))
    return _replace_in(fields, found.field_id, edit)


def _find(fields: Sequence[Field], path: str) -> Field | None:
    """Without regard to case where that is unambiguous, as Spark does; exactly by preference."""
    for same in (str, str.lower):
        named = [f for f in fields if same(f.name) == same(path)]
        if len(named) == 1:
            return named[0]
    first, dot, rest = path.partition(".")
    parent = _find(fields, first) if dot else None
    return None if parent is None else _find(parent.children, rest)


def _list_paths(fields: Sequence[Field], above: str = "") -> list[str]:
    return [path for f in fields for path in (f"{above}{f.name}", *_list_paths(f.children, f"{above}{f.name}."))]


def _replace_in(fields: Sequence[Field], field_id: int, edit: Callable[[Field], Field | None]) -> tuple[Field, ...]:
    edited = (edit(f) if f.field_id == field_id else _inside(f, field_id, edit) for f in fields)
    return tuple(f for f in edited if f is not None)


def _inside(field: Field, field_id: int, edit: Callable[[Field], Field | None]) -> Field:
    match field.type:
        case Struct(fields=fields):
            children = _replace_in(fields, field_id, edit)
            if not children:
                message = f"{field.name} would be a struct without columns: drop {field.name} itself"
                raise SchemaRefusedError(message)
            return replace(field, type=Struct(fields=children))
        case List(element=element):
            return replace(field, type=List(element=_one(field, element, field_id, edit)))
        case Map(key=key, value=value):
            return replace(field, type=Map(key=_same(field, key, field_id, edit), value=_one(field, value, field_id, edit)))
        case Primitive():
            return field


def _one(parent: Field, child: Field, field_id: int, edit: Callable[[Field], Field | None]) -> Field:
    """Elements and values have no name of their own, and a list or map cannot be without them."""
    edited = _replace_in((child,), field_id, edit)
    if len(edited) != 1 or edited[0].name != child.name:
        message = f"{child.name} of {parent.name} can be neither dropped nor renamed: change {parent.name} itself"
        raise SchemaRefusedError(message)
    return edited[0]


def _same(parent: Field, key: Field, field_id: int, edit: Callable[[Field], Field | None]) -> Field:
    """What keys are decides which of them are equal."""
    if _one(parent, key, field_id, edit) != key:
        message = f"the keys of {parent.name} cannot be changed: add another column"
        raise SchemaRefusedError(message)
    return key
