"""A table's schema: ids and physical names for life, a hash that names it, and what it can read."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import SchemaRefusedError
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct, Type, can_promote
from lakebed.core.suggestions import missing_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


MAX_DEPTH = 32
MAX_FIELDS = 20_000
_HASH_CHARS = 32  # 128 bits of SHA-256, as hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The columns of one version. Field ids and physical names are unique at every depth."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        every = list(walk(self.fields))
        if not every:
            message = "a schema needs at least one column"
            raise SchemaRefusedError(message)
        _require_unique("field id", [f.field_id for f in every])
        for level in (self.fields, *(f.type.fields for f in every if isinstance(f.type, Struct))):
            _require_unique("column name", [f.name for f in level])
            _require_unique("physical name", [f.physical_name for f in level])

    @property
    def by_id(self) -> dict[int, Field]:
        return {field.field_id: field for field in walk(self.fields)}

    def find(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name == name), None)

    def require(self, name: str) -> Field:
        if (field := self.find(name)) is None:
            raise missing_column(name, (f.name for f in self.fields))
        return field

    def require_original(self, name: str) -> Field:
        """The field that settings name: as it was first called, or as it is called today."""
        return next((f for f in self.fields if f.physical_name == name), None) or self.require(name)

    def resolve(self, name: str) -> Field:
        """As Spark does: exactly by preference, else without regard to case."""
        alike = [field for field in self.fields if field.name.lower() == name.lower()]
        return alike[0] if len(alike) == 1 else self.require(name)

    def to_json(self) -> bytes:
        return json.dumps({"fields": [_field_out(f) for f in self.fields]}, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, stored: bytes) -> Schema:
        return cls(fields=tuple(_field_in(f) for f in json.loads(stored)["fields"]))


def hash_schema(schema: Schema, *, version: int, definition: str = "") -> str:
    """Names one version of a table. The version number is part of it: reverting never revives old partitions."""
    text = b"%d\n%b\n%b" % (version, definition.encode(), schema.to_json())
    return hashlib.sha256(text).hexdigest()[:_HASH_CHARS]


def list_obstacles(current: Schema, earlier: Schema) -> tuple[str, ...]:
    """Why `current` cannot read files written under `earlier`; empty when it can."""
    return tuple(_obstacles(current.fields, {f.field_id: f for f in earlier.fields}))


def walk(fields: Iterable[Field]) -> Iterator[Field]:
    """Every field at every depth, parents first, without recursion: the depth may come from outside."""
    stack = [(field, 1) for field in reversed(tuple(fields))]
    seen = 0
    while stack:
        field, depth = stack.pop()
        seen += 1
        if depth > MAX_DEPTH or seen > MAX_FIELDS:
            message = f"a schema may be {MAX_DEPTH} levels deep and have {MAX_FIELDS} fields at most"
            raise SchemaRefusedError(message)
        yield field
        stack.extend((child, depth + 1) for child in reversed(field.children))


def _require_unique(what: str, values: list[Any]) -> None:
    if len(set(values)) != len(values):
        twice = next(value for value in values if values.count(value) > 1)
        message = f"{what} {twice!r} occurs twice in the schema"
        raise SchemaRefusedError(message)


def _obstacles(current: tuple[Field, ...], earlier: dict[int, Field]) -> Iterator[str]:
    for field in current:
        old = earlier.get(field.field_id)
        if old is None:
            if field.required:
                yield f"{field.name} was added as required"
            continue
        if field.required and not old.required:
            yield f"{field.name} was optional and is required now"
        if not can_promote(old.type, field.type):
            yield f"{field.name} changed from {_type_name(old.type)} to {_type_name(field.type)}"
        else:
            yield from _obstacles(field.children, {f.field_id: f for f in old.children})


def _type_name(kind: Type) -> str:
    return str(kind) if isinstance(kind, Primitive) else type(kind).__name__.lower()


def _field_out(field: Field) -> dict[str, Any]:
    out: dict[str, Any] = {"id": field.field_id, "name": field.name, "required": field.required, "type": _type_out(field.type)}
    if field.physical_name != field.name:
        out["physical-name"] = field.physical_name
    return out


def _type_out(kind: Type) -> Any:
    match kind:
        case Primitive():
            return str(kind)
        case Struct(fields=fields):
            return {"type": "struct", "fields": [_field_out(f) for f in fields]}
        case List(element=element):
            return {"type": "list", "element": _field_out(element)}
        case Map(key=key, value=value):
            return {"type": "map", "key": _field_out(key), "value": _field_out(value)}


def _field_in(stored: dict[str, Any]) -> Field:
    return Field(
        field_id=stored["id"],
        name=stored["name"],
        required=stored["required"],
        physical_name=stored.get("physical-name", ""),
        type=_type_in(stored["type"]),
    )


def _type_in(stored: Any) -> Type:
    if isinstance(stored, str):
        return Primitive.parse(stored)
    match stored["type"]:
        case "struct":
            return Struct(fields=tuple(_field_in(f) for f in stored["fields"]))
        case "list":
            return List(element=_field_in(stored["element"]))
        case _:
            return Map(key=_field_in(stored["key"]), value=_field_in(stored["value"]))


RESERVED = "lakebed__"  # columns that the writer adds for itself begin so; no underscore first, which would hide directories
_KEPT = (RESERVED, "_lakebed_")  # the second begins columns that only Iceberg shows
_MAX_NAME = 255
_BAD_NAME = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def require_clear_names(schema: Schema) -> None:
    """Refuse names that Spark, Parquet or Iceberg could not distinguish or represent."""
    seen: dict[str, str] = {}
    for path, field in _paths(schema.fields, ()):
        shown = ".".join((*path, field.name))
        _require_legal(field.name, shown)
        if (other := seen.setdefault(shown.lower(), shown)) is not shown:
            message = f"column {shown!a} occurs twice (as {other!a}): names may not differ in case alone; rename one of them"
            raise SchemaRefusedError(message)


def _require_legal(name: str, shown: str) -> None:
    if not name or len(name) > _MAX_NAME or _BAD_NAME.search(name):
        message = f"column {shown!a} has an illegal name: use 1 to {_MAX_NAME} characters without control characters"
        raise SchemaRefusedError(message)
    if name.lower().startswith(_KEPT):
        message = f"column {shown!a}: names that begin with {' or '.join(_KEPT)} are kept for Lakebed; rename it"
        raise SchemaRefusedError(message)


def _paths(fields: Sequence[Field], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Field]]:
    for field in fields:
        yield above, field
        yield from _paths(field.children, (*above, field.name))
