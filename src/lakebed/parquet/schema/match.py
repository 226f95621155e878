"""Match the columns of a file to those of the table: by field id, or by physical name where the file has none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakebed.core.schema.schema import walk
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct
from lakebed.parquet.schema.tree import Node, decode_schema, schema_prefix
from lakebed.parquet.schema.types import Conversion, can_read, conversion_of, stored_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq

    from lakebed.core.schema.schema import Schema

_REMEMBERED = 32
_KEY_AND_VALUE = 2
_REQUIRED = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leaf:
    """One column chunk that belongs to a column of the table; `rank` counts the table's leaves from 0."""

    column: int
    rank: int
    field_id: int
    kind: Primitive
    repeats: bool
    conversion: Conversion | None  # None: no bounds, the column repeats or is of another type


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """A file's columns and a table's side by side; equal only to itself, so that it can key a cache."""

    root: Node
    schema: Schema
    has_ids: bool
    leaves: tuple[Leaf, ...]
    repeating: frozenset[int]  # field ids of the leaves in lists and maps
    required: tuple[Leaf, ...]  # those at the top, where a null can only be the column's own
    flat: frozenset[int]  # numbers of the file's column chunks that hold one value per row


# A table's files share one layout. The value holds the schema, so that no other can take over its id.
_layouts: dict[tuple[int, str, tuple[str, ...]], Layout] = {}


def find_layout(metadata: pq.FileMetaData, schema: Schema, *, meta: bytes) -> Layout:
    """The layout of a parsed footer; `meta` are its own bytes."""
    # The printed schema does not escape names. With the names of the leaves beside it, it is unambiguous.
    columns = metadata.schema
    key = (id(schema), str(columns).partition("\n")[2], tuple(columns.names))  # the first line is an address in memory
    if (known := _layouts.get(key)) is not None:
        return known
    layout = lay_out(decode_schema(meta), schema)
    if len(_layouts) >= _REMEMBERED:
        _layouts.clear()
    return _layouts.setdefault(key, layout)


class LayoutFinder:
    """Layouts of files under one schema; files of one writer begin alike, so most are found by their first bytes."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._known: list[tuple[bytes, Layout]] = []

    def find(self, meta: bytes) -> Layout:
        """The layout of the file whose metadata `meta` is."""
        for prefix, layout in self._known:
            if meta.startswith(prefix):
                return layout
        layout = lay_out(decode_schema(meta), self._schema)
        self._known = [(schema_prefix(meta), layout), *self._known[: _REMEMBERED - 1]]
        return layout


def forget_layouts() -> None:
    """Free the memory that remembered layouts take."""
    _layouts.clear()


def lay_out(root: Node, schema: Schema) -> Layout:
    has_ids = any(node.field_id is not None for node in walk_nodes(root.children))
    ranks = {field.field_id: rank for rank, field in enumerate(leaf for leaf in walk(schema.fields) if isinstance(leaf.type, Primitive))}
    leaves = (_leaf(node, field, ranks, repeats=repeats) for node, field, repeats in _matches(root, schema, has_ids=has_ids))
    ordered = sorted((leaf for leaf in leaves if leaf is not None), key=lambda leaf: leaf.rank)
    repeating = frozenset(leaf.field_id for leaf in ordered if leaf.repeats)
    required_ids = {field.field_id for field in schema.fields if field.required}
    required = tuple(leaf for leaf in ordered if leaf.field_id in required_ids)
    return Layout(
        root=root,
        schema=schema,
        has_ids=has_ids,
        leaves=tuple(ordered),
        repeating=repeating,
        required=required,
        flat=frozenset(_flat_columns(root.children)),
    )


def walk_nodes(nodes: tuple[Node, ...]) -> Iterator[Node]:
    stack = list(reversed(nodes))
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def _flat_columns(nodes: tuple[Node, ...]) -> Iterator[int]:
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if not node.is_repeated:
            stack.extend(node.children)
            if node.column >= 0:
                yield node.column


def pair(nodes: tuple[Node, ...], fields: tuple[Field, ...], *, has_ids: bool) -> list[tuple[Node | None, Field | None]]:
    """The columns of one struct beside the table's; None on the side where one is missing."""
    by_key: dict[int | str | None, Field] = {f.field_id if has_ids else f.physical_name: f for f in fields}
    known: list[tuple[Node | None, Field | None]] = [(n, by_key.pop(n.field_id if has_ids else n.name, None)) for n in nodes]
    return known + [(None, field) for field in by_key.values()]


def members(node: Node, field: Field, *, has_ids: bool) -> list[tuple[Node | None, Field | None]] | None:
    """The children of a nested column beside the table's; None when the two are not nested alike."""
    match field.type:
        case Struct(fields=fields) if node.physical is None and not node.annotation.name:
            return pair(node.children, fields, has_ids=has_ids)
        case List(element=element) if (found := list_element(node)) is not None:
            return [*_same(found, element)]
        case Map(key=key, value=value) if (entry := map_entry(node)) is not None:
            return [*_same(entry[0], key), *_same(entry[1], value)]
        case _:
            return None


def list_element(node: Node) -> Node | None:
    """The element of a list, also where an old writer left out the level between."""
    if node.annotation.name != "list" or len(node.children) != 1 or not node.children[0].is_repeated:
        return None
    middle = node.children[0]
    is_element = len(middle.children) != 1 or middle.name in {"array", f"{node.name}_tuple"}
    # Seen from the table, such an element does not repeat: its list does.
    return replace(middle, repetition=_REQUIRED) if is_element else middle.children[0]


def map_entry(node: Node) -> tuple[Node, Node] | None:
    if node.annotation.name != "map" or len(node.children) != 1 or not node.children[0].is_repeated:
        return None
    entry = node.children[0].children
    return (entry[0], entry[1]) if len(entry) == _KEY_AND_VALUE else None


def _same(node: Node, field: Field) -> list[tuple[Node | None, Field | None]]:
    """Elements, keys and values are matched by their place, unless their ids contradict it."""
    if node.field_id is None or node.field_id == field.field_id:
        return [(node, field)]
    return [(node, None), (None, field)]


def _matches(root: Node, schema: Schema, *, has_ids: bool) -> Iterator[tuple[Node, Field, bool]]:
    """Every leaf of the file that the table knows, and whether it is in a list or map."""
    stack = [(node, field, False) for node, field in pair(root.children, schema.fields, has_ids=has_ids)]
    while stack:
        node, field, repeats = stack.pop()
        if node is None or field is None:
            continue
        repeats = repeats or node.is_repeated or not isinstance(field.type, Struct | Primitive)
        if isinstance(field.type, Primitive):
            yield node, field, repeats
        else:
            stack.extend((child, wanted, repeats) for child, wanted in members(node, field, has_ids=has_ids) or ())


def _leaf(node: Node, field: Field, ranks: dict[int, int], *, repeats: bool) -> Leaf | None:
    if node.column < 0 or not isinstance(field.type, Primitive):
        return None
    is_bounded = not repeats and can_read(stored_type(node), field.type)
    return Leaf(
        column=node.column,
        rank=ranks[field.field_id],
        field_id=field.field_id,
        kind=field.type,
        repeats=repeats,
        conversion=conversion_of(node) if is_bounded else None,
    )
