"""Find out at registration, not at the first query, why a file could never become an Iceberg data file of its table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from lakebed.core.schema.schema import MAX_DEPTH
from lakebed.core.schema.types import Field, Primitive
from lakebed.parquet.schema.match import Layout, list_element, map_entry, members, pair, walk_nodes
from lakebed.parquet.schema.tree import Node, Physical
from lakebed.parquet.schema.types import can_read, describe, stored_type

if TYPE_CHECKING:
    from collections.abc import Iterator


_SHOWN_PROBLEMS = 20
_SHOWN_CHARS = 100
_REWRITE = "write it with the table's schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with a file, and the way out. `kind` is stable, programs match on it."""

    kind: str
    message: str
    fix: str
    column: str | None = None
    is_needed: bool = True

    def __str__(self) -> str:
        return f"{self.message}: {self.fix}" if self.fix else self.message


@lru_cache(maxsize=64)
def find_problems(layout: Layout, *, require_ids: bool) -> tuple[Problem, ...]:
    """One per obstacle; empty when there is none. Remembered, because all files of a table share their layout.

    Without `require_ids` a file that has no field ids at all is read by its column names.
    """
    found = [*_repeated_ids(layout.root)]
    if require_ids:
        found += _missing_ids(layout.root)
    if require_ids and not layout.has_ids:
        return _shorten(found)  # nothing can be matched: every column would be reported as unknown and as absent
    found += _mismatches(layout)
    return _shorten(found)


def describe_nulls(field: Field, count: int) -> Problem:
    return _column_problem((field.name,), f"is required and holds {count} nulls", "fill them, or make it optional")


def _column_problem(path: tuple[str, ...], message: str, fix: str, *, kind: str = "schema") -> Problem:
    return Problem(kind=kind, message=f"column {_show(path)} {message}", fix=fix, column=".".join(path))


def _shorten(found: list[Problem]) -> tuple[Problem, ...]:
    """A crafted file may have thousands of problems: a person needs the first ones."""
    left = len(found) - _SHOWN_PROBLEMS
    return tuple(found) if left <= 0 else (*found[:_SHOWN_PROBLEMS], Problem(kind="schema", message=f"and {left} more problems", fix=""))


def _repeated_ids(root: Node) -> Iterator[Problem]:
    counts = Counter(node.field_id for node in walk_nodes(root.children) if node.field_id is not None)
    for field_id, count in counts.items():
        if count > 1:
            yield Problem(kind="schema", message=f"field id {field_id} occurs {count} times", fix="give every column an id of its own")


def _missing_ids(root: Node) -> Iterator[Problem]:
    for path, node in _walk_columns(root):
        if node.field_id is None:
            fix = "write the file through Lakebed, or adopt it by name mapping"
            yield _column_problem(path, "has no field id", fix, kind="missing_field_id")


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


def _mismatches(layout: Layout) -> Iterator[Problem]:
    top = pair(layout.root.children, layout.schema.fields, has_ids=layout.has_ids)
    todo: list[tuple[tuple[str, ...], Node | None, Field | None]] = [((), *columns) for columns in reversed(top)]
    while todo:
        above, node, field = todo.pop()
        path = (*above, field.name if field is not None else node.name if node is not None else "")
        if node is None or field is None:
            yield from _unmatched(path, field)
        elif len(path) > MAX_DEPTH:
            yield _column_problem(path, f"is nested deeper than {MAX_DEPTH} levels", "flatten it")
        elif isinstance(field.type, Primitive):
            yield from _leaf_problems(path, node, field.type)
        elif (children := members(node, field, has_ids=layout.has_ids)) is None:
            yield _column_problem(path, f"is not stored as a {_kind(field)}, as the table says", _REWRITE)
        else:
            todo.extend((path, *child) for child in reversed(children))


def _unmatched(path: tuple[str, ...], field: Field | None) -> Iterator[Problem]:
    if field is None:
        yield _column_problem(path, "is unknown to the table", "add it to the table first, or leave it out of the file")
    elif field.required:
        yield _column_problem(path, "is required and absent", "write it, or make it optional")


def _leaf_problems(path: tuple[str, ...], node: Node, wanted: Primitive) -> Iterator[Problem]:
    if node.physical is None or node.is_repeated:
        yield _column_problem(path, f"is nested, the table says {wanted}", _REWRITE)
    elif node.physical == Physical.INT96:
        fix = "write it with spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS"
        yield _column_problem(path, "is an INT96 timestamp", fix, kind="int96")
    elif node.annotation.name == "timestamp" and node.annotation.unit == "nanos":
        yield _column_problem(path, "counts nanoseconds, which Spark cannot read", "write it in microseconds")
    elif not can_read(stored_type(node), wanted):
        yield _column_problem(path, f"is stored as {describe(node)}, the table says {wanted}", f"cast it to {wanted} before writing")


def _kind(field: Field) -> str:
    return type(field.type).__name__.lower()


def _show(path: tuple[str, ...]) -> str:
    """Names come from the file: cut, and escaped so that they cannot forge a line of a log."""
    text = ".".join(path)
    return ascii(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "...")
