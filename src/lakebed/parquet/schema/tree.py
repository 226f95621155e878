"""The column tree of a file as its footer spells it: physical types, annotations, ids, nesting."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from lakebed.parquet.footer.thrift import BINARY, BYTE, I16, I32, I64, MAX_DEPTH, STRUCT, TRUE, ThriftReader, corrupt, refuse_truncated

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCHEMA = 2  # FileMetaData.schema
# SchemaElement, as the Parquet specification numbers its fields.
_TYPE, _LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _SCALE, _PRECISION, _FIELD_ID, _LOGICAL = range(1, 11)


class Physical(IntEnum):
    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    INT96 = 3
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """The logical type, whether the footer gives it the new way or only the old one."""

    name: str = ""
    precision: int = 0
    scale: int = 0
    unit: str = ""
    is_utc: bool = False
    bits: int = 0
    is_signed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """One element of the file's schema; `column` is the number of a leaf's column chunk, -1 for a group."""

    name: str
    field_id: int | None
    repetition: int
    physical: int | None
    length: int
    annotation: Annotation
    children: tuple[Node, ...]
    column: int

    @property
    def is_repeated(self) -> bool:
        return self.repetition == _REPEATED


_REPEATED = 2
_NOTHING = Annotation()
_LOGICAL_NAMES = {
    1: "string", 2: "map", 3: "list", 4: "enum", 5: "decimal", 6: "date", 7: "time", 8: "timestamp", 10: "integer",
    11: "null", 12: "json", 13: "bson", 14: "uuid", 15: "float16", 16: "variant", 17: "geometry", 18: "geography",
}  # fmt: skip
_UNITS = {1: "millis", 2: "micros", 3: "nanos"}
_CONVERTED_TYPES = {
    0: Annotation(name="string"),
    1: Annotation(name="map"),
    2: Annotation(name="map"),
    3: Annotation(name="list"),
    4: Annotation(name="enum"),
    6: Annotation(name="date"),
    7: Annotation(name="time", unit="millis", is_utc=True),
    8: Annotation(name="time", unit="micros", is_utc=True),
    9: Annotation(name="timestamp", unit="millis", is_utc=True),
    10: Annotation(name="timestamp", unit="micros", is_utc=True),
    **{code: Annotation(name="integer", bits=bits, is_signed=False) for code, bits in ((11, 8), (12, 16), (13, 32), (14, 64))},
    **{code: Annotation(name="integer", bits=bits) for code, bits in ((15, 8), (16, 16), (17, 32), (18, 64))},
    19: Annotation(name="json"),
    20: Annotation(name="bson"),
    21: Annotation(name="interval"),
}
_CONVERTED_DECIMAL = 5

_Values = dict[int, object]


def decode_schema(meta: bytes) -> Node:
    """The root of the column tree; refuses counts that do not add up and nesting beyond the limit."""
    return _grow(_elements(meta))


@refuse_truncated
def schema_prefix(meta: bytes) -> bytes:
    """The bytes up to the end of the column tree: files that share them have the same columns."""
    reader = ThriftReader(meta)
    for field_id, kind, _ in reader.fields():
        reader.skip(kind)
        if field_id == _SCHEMA:
            return meta[: reader.position]
    raise corrupt("it has no schema")


@refuse_truncated
def _elements(meta: bytes) -> list[_Values]:
    reader = ThriftReader(meta)
    for field_id, kind, _ in reader.fields():
        if field_id == _SCHEMA:
            return [_struct(reader) for _ in reader.structs(kind)]
        reader.skip(kind)
    raise corrupt("it has no schema")


def _struct(reader: ThriftReader) -> _Values:
    """The scalars and structs of one struct by field id. Calls itself only as deep as the reader allows."""
    values: _Values = {}
    for field_id, kind, _ in reader.fields():
        values[field_id] = _value(reader, kind)
    return values


def _value(reader: ThriftReader, kind: int) -> object:
    if kind == STRUCT:
        if reader.depth >= MAX_DEPTH:
            raise corrupt(f"it is nested deeper than {MAX_DEPTH} levels")
        return _struct(reader)
    if kind in (I16, I32, I64):
        return reader.integer()
    if kind == BINARY:
        return reader.require_text(kind)
    start = reader.position
    reader.skip(kind)
    return reader.buffer[start] if kind == BYTE else kind == TRUE


def _grow(elements: list[_Values]) -> Node:
    """A tree from its elements in depth-first order."""
    if not elements:
        raise corrupt("its schema is empty")
    rest = iter(elements)
    columns = iter(range(len(elements)))
    open_groups: list[tuple[_Values, int, list[Node]]] = []
    for element in rest:
        wanted = _number(element, _CHILDREN)
        if not 0 <= wanted < len(elements):
            raise corrupt(f"a group claims {wanted} columns")
        open_groups.append((element, wanted, []))
        if len(open_groups) > MAX_DEPTH:
            raise corrupt(f"its schema is nested deeper than {MAX_DEPTH} levels")
        root = _close(open_groups, columns)
        if root is not None:
            break
    else:
        raise corrupt("its schema ends in the middle of a group")
    if next(rest, None) is not None:
        raise corrupt("its schema has columns outside of its root")
    return root


def _close(open_groups: list[tuple[_Values, int, list[Node]]], columns: Iterator[int]) -> Node | None:
    """Finish every group that has all its children; the root when that was the last one."""
    while len(open_groups[-1][2]) == open_groups[-1][1]:
        element, _, children = open_groups.pop()
        node = _node(element, tuple(children), columns)
        if not open_groups:
            return node
        open_groups[-1][2].append(node)
    return None


def _node(element: _Values, children: tuple[Node, ...], columns: Iterator[int]) -> Node:
    name = element.get(_NAME)
    if not isinstance(name, str):
        raise corrupt("a column has no name")
    physical = _number(element, _TYPE) if _TYPE in element and not children else None
    field_id = _number(element, _FIELD_ID, -1)
    return Node(
        name=name,
        field_id=field_id if field_id >= 0 else None,
        repetition=_number(element, _REPETITION),
        physical=physical,
        length=_number(element, _LENGTH),
        annotation=_annotation(element),
        children=children,
        column=-1 if physical is None else next(columns),
    )


def _annotation(element: _Values) -> Annotation:
    logical = element.get(_LOGICAL)
    if isinstance(logical, dict) and logical:
        return _new_annotation(*next(iter(logical.items())))
    converted = _number(element, _CONVERTED, -1)
    if converted == _CONVERTED_DECIMAL:
        return Annotation(name="decimal", precision=_number(element, _PRECISION), scale=_number(element, _SCALE))
    return _CONVERTED_TYPES.get(converted, _NOTHING)


def _new_annotation(code: int, details: object) -> Annotation:
    name = _LOGICAL_NAMES.get(code, f"logical type {code}")
    values = details if isinstance(details, dict) else {}
    match name:
        case "decimal":
            return Annotation(name=name, scale=_number(values, 1), precision=_number(values, 2))
        case "time" | "timestamp":
            unit = values.get(2)
            return Annotation(
                name=name, is_utc=values.get(1) is True, unit=_UNITS.get(next(iter(unit), 0), "") if isinstance(unit, dict) else ""
            )
        case "integer":
            return Annotation(name=name, bits=_number(values, 1), is_signed=values.get(2) is True)
        case _:
            return Annotation(name=name)


def _number(values: _Values, key: int, default: int = 0) -> int:
    found = values.get(key, default)
    if isinstance(found, bool) or not isinstance(found, int):
        raise corrupt("a schema element holds something other than a number")
    return found
