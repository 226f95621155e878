"""How rows of one shape fit a table of another: what differs, and the schema that takes both.

Columns are matched by name, without regard to case, as Spark does. Ids and physical names are never used a second time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakebed.core.errors import SchemaRefusedError
from lakebed.core.schema.schema import Schema, walk
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct, Type, can_promote
from lakebed.core.suggestions import suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PROMOTIONS = "int to long, float to double, a decimal to a wider one of the same scale"
TOP = 0  # the parent of the columns themselves; field ids begin at 1


def require_fit(table: str, schema: Schema, rows: Schema) -> None:
    """Refuse rows that the table cannot take as it is, with every difference named. Missing optional columns become NULL."""
    differences = tuple(_differences(schema.fields, rows.fields, ()))
    if differences:
        message = (
            f"{table} cannot take these rows: {'; '.join(differences)}. Missing optional columns are filled with NULL and values are "
            f"promoted ({PROMOTIONS}); evolve=True adds new columns and widens the table's own by the same rule"
        )
        raise SchemaRefusedError(message)


def evolve(table: str, schema: Schema, rows: Schema, *, history: Iterable[Schema]) -> Schema:
    """The schema that also takes `rows`; `schema` itself when it does already. `history` holds every version there was."""
    used = UsedNames.of([schema, *history])
    grown = replace(schema, fields=_merge(schema.fields, rows.fields, TOP, used))
    require_fit(table, grown, rows)
    return grown if grown != schema else schema


@dataclass(slots=True)
class UsedNames:
    """Ids and, per parent, physical names that some version had."""

    last_id: int = 0
    names: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def of(cls, history: Iterable[Schema]) -> UsedNames:
        used = cls()
        for schema in history:
            used._note(schema.fields, TOP)
            used.last_id = max(used.last_id, *(f.field_id for f in walk(schema.fields)))
        return used

    def _note(self, fields: Sequence[Field], parent: int) -> None:
        self.names[parent].update(f.physical_name.lower() for f in fields)
        for f in fields:
            self._note(f.children, f.field_id)

    def adopt(self, new: Field, parent: int, *, required: bool) -> Field:
        """A field of the rows as a new one of the table."""
        self.last_id += 1
        field_id = self.last_id
        name = new.name if new.name.lower() not in self.names[parent] else f"{new.name}_{field_id}"
        self.names[parent].add(name.lower())
        return Field(
            field_id=field_id, name=new.name, physical_name=name, required=required, type=self._adopt_type(new.type, field_id)
        )  # fmt: skip

    def _adopt_type(self, kind: Type, parent: int) -> Type:
        match kind:
            case Struct(fields=fields):
                return Struct(fields=tuple(self.adopt(f, parent, required=f.required) for f in fields))
            case List(element=element):
                return List(element=self.adopt(element, parent, required=element.required))
            case Map(key=key, value=value):
                return Map(key=self.adopt(key, parent, required=True), value=self.adopt(value, parent, required=value.required))
            case Primitive():
                return kind


def _merge(known: Sequence[Field], rows: Sequence[Field], parent: int, used: UsedNames) -> tuple[Field, ...]:
    by_name = {f.name.lower(): f for f in rows}
    merged = tuple(_merge_field(f, by_name[f.name.lower()], used) if f.name.lower() in by_name else f for f in known)
    names = {f.name.lower() for f in known}
    # what is written already has no value for a new column, so it cannot be required
    return merged + tuple(used.adopt(f, parent, required=False) for f in rows if f.name.lower() not in names)


def _merge_field(known: Field, new: Field, used: UsedNames) -> Field:
    match known.type, new.type:
        case Primitive(), Primitive() if can_promote(known.type, new.type):
            return replace(known, type=new.type)
        case Struct(fields=fields), Struct(fields=others):
            return replace(known, type=Struct(fields=_merge(fields, others, known.field_id, used)))
        case List(element=element), List(element=other):
            return replace(known, type=List(element=_merge_field(element, other, used)))
        case Map(key=key, value=value), Map(value=other):
            return replace(known, type=Map(key=key, value=_merge_field(value, other, used)))
        case _:
            return known


def _differences(known: Sequence[Field], rows: Sequence[Field], above: tuple[str, ...]) -> Iterator[str]:
    by_name = {f.name.lower(): f for f in rows}
    for f in known:
        found = by_name.pop(f.name.lower(), None)
        if found is not None:
            yield from _type_differences(f.type, found.type, (*above, f.name))
        elif f.required:
            yield f"column {_show((*above, f.name))} ({show_type(f.type)}) is required and missing"
    given = {f.name.lower() for f in rows}
    for extra in by_name.values():
        near = suggest(extra.name, (f.name for f in known if f.name.lower() not in given))
        yield f"column {_show((*above, extra.name))} ({show_type(extra.type)}) is not in the table{near and f' ({near})'}"


def _type_differences(known: Type, rows: Type, path: tuple[str, ...]) -> Iterator[str]:
    match known, rows:
        case Primitive(), Primitive() if can_promote(rows, known) or _is_binary(rows, known):
            return
        case Struct(fields=fields), Struct(fields=others):
            yield from _differences(fields, others, path)
        case List(element=element), List(element=other):
            yield from _type_differences(element.type, other.type, (*path, "element"))
        case Map(key=key, value=value), Map(key=other_key, value=other):
            yield from _type_differences(key.type, other_key.type, (*path, "key"))
            yield from _type_differences(value.type, other.type, (*path, "value"))
        case _:
            yield f"column {_show(path)} is {show_type(rows)}, the table says {show_type(known)}"


def _is_binary(rows: Primitive, known: Primitive) -> bool:
    """Spark knows one kind of binary; whether the length is right shows in the rows."""
    return rows.name == "binary" and known.name in {"uuid", "fixed"}


def show_type(kind: Type) -> str:
    return str(kind) if isinstance(kind, Primitive) else type(kind).__name__.lower()


def _show(path: tuple[str, ...]) -> str:
    return ascii(".".join(path))


def align_schema(new: Schema, earlier: Sequence[Schema]) -> Schema:
    """`new` with the ids and physical names that its columns had in earlier versions of the table, newest last.

    A column keeps them if its old values could be read as the new type; any other gets ids and a physical name never used before.
    """
    columns = {f.name: f for schema in earlier for f in schema.fields}
    used = UsedNames.of(earlier)
    fields = []
    for new_field in new.fields:
        old = columns.get(new_field.name)
        if old is not None and _is_same(old, new_field):
            fields.append(
                replace(old, type=new_field.type if isinstance(new_field.type, Primitive) else old.type, required=new_field.required)
            )
        else:
            fields.append(used.adopt(new_field, TOP, required=new_field.required))
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
