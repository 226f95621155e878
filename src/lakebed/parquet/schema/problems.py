"""Why a file could never become an Iceberg data file of its table: told at registration, not at the first query."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from lakebed.core.schema.schema import MAX_DEPTH
from lakebed.core.schema.types import Field, Primitive
from lakebed.parquet.schema.match import Layout, find_layout, list_element, map_entry, members, pair, walk_nodes
from lakebed.parquet.schema.tree import Node, Physical
from lakebed.parquet.schema.types import can_read, describe, stored_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq

    from lakebed.core.schema.schema import Schema

_SHOWN_PROBLEMS = 20
_SHOWN_CHARS = 100


def list_problems(metadata: pq.FileMetaData, schema: Schema, *, require_ids: bool) -> tuple[str, ...]:
    """One sentence per obstacle, with the column and the way out; empty when there is none.

    Without `require_ids` a file that has no field ids at all is read by its column names.
    """
    return find_problems(find_layout(metadata, schema), require_ids=require_ids)


@lru_cache(maxsize=64)
def find_problems(layout: Layout, *, require_ids: bool) -> tuple[str, ...]:
    """The same for a layout; remembered, because all files of a table share theirs."""
    found = [*_repeated_ids(layout.root)]
    if require_ids:
        found += _missing_ids(layout.root)
    if require_ids and not layout.has_ids:
        return _shorten(found)  # nothing can be matched: every column would be reported as unknown and as absent
    found += _mismatches(layout)
    return _shorten(found)


def tell_nulls(field: Field, count: int) -> str:
    return f"column {_show((field.name,))} is required and holds {count} nulls: fill them, or make it optional"


def _shorten(found: list[str]) -> tuple[str, ...]:
    """A crafted file may have thousands of problems: a person needs the first ones."""
    left = len(found) - _SHOWN_PROBLEMS
    return tuple(found) if left <= 0 else (*found[:_SHOWN_PROBLEMS], f"and {left} more problems")


def _repeated_ids(root: Node) -> Iterator[str]:
    counts = Counter(node.field_id for node in walk_nodes(root.children) if node.field_id is not None)
    for field_id, count in counts.items():
        if count > 1:
            yield f"field id {field_id} occurs {count} times: give every column an id of its own"


def _missing_ids(root: Node) -> Iterator[str]:
    for path, node in _walk_columns(root):
        if node.field_id is None:
            yield f"column {_show(path)} has no field id: write the file through Lakebed, or adopt it by name mapping"


def _walk_columns(root: Node) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Every column that needs an id: the levels that only spell out a list or map need none."""
    stack: list[tuple[tuple[str, ...], Node]] = [((node.name,), node) for node in reversed(root.children)]
    while stack:
        path, node = stack.pop()
        yield path, node
        stack.extend(((*path, child.name), child) for child in reversed(_columns_of(node)))


def _columns_of(node: Node) -> tuple[Node, ...]:
    if (element := list_element(node)) is not None:
        return (element,)
    return map_entry(node) or node.children


def _mismatches(layout: Layout) -> Iterator[str]:
    top = pair(layout.root.children, layout.schema.fields, has_ids=layout.has_ids)
    todo: list[tuple[tuple[str, ...], Node | None, Field | None]] = [((), *columns) for columns in reversed(top)]
    while todo:
        above, node, field = todo.pop()
        path = (*above, field.name if field is not None else node.name if node is not None else "")
        if node is None or field is None:
            yield from _lonely(path, field)
        elif len(path) > MAX_DEPTH:
            yield f"column {_show(path)} is nested deeper than {MAX_DEPTH} levels: flatten it"
        elif isinstance(field.type, Primitive):
            yield from _leaf_problems(path, node, field.type)
        elif (children := members(node, field, has_ids=layout.has_ids)) is None:
            yield f"column {_show(path)} is not stored as a {_kind(field)}, as the table says: write it with the table's schema"
        else:
            todo.extend((path, *child) for child in reversed(children))


def _lonely(path: tuple[str, ...], field: Field | None) -> Iterator[str]:
    if field is None:
        yield f"column {_show(path)} is unknown to the table: add it to the table first, or leave it out of the file"
    elif field.required:
        yield f"column {_show(path)} is required and absent: write it, or make it optional"


def _leaf_problems(path: tuple[str, ...], node: Node, wanted: Primitive) -> Iterator[str]:
    if node.physical is None or node.is_repeated:
        yield f"column {_show(path)} is nested, the table says {wanted}: write it with the table's schema"
    elif node.physical == Physical.INT96:
        yield f"column {_show(path)} is an INT96 timestamp: write it with spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS"
    elif node.annotation.name == "timestamp" and node.annotation.unit == "nanos":
        yield f"column {_show(path)} counts nanoseconds, which Spark cannot read: write it in microseconds"
    elif not can_read(stored_type(node), wanted):
        yield f"column {_show(path)} is stored as {describe(node)}, the table says {wanted}: cast it to {wanted} before writing"


def _kind(field: Field) -> str:
    return type(field.type).__name__.lower()


def _show(path: tuple[str, ...]) -> str:
    """Names come from the file: cut, and escaped so that they cannot forge a line of a log."""
    text = ".".join(path)
    return ascii(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "...")
