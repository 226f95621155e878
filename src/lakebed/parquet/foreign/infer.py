"""The columns of files that others wrote, as a table would have them.

Footers are first proven harmless in the isolated worker, which reads the same tree under limits of memory and time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

from lakebed.core.errors import LakebedError, SchemaRefusedError, UnreadableFileError
from lakebed.core.schema.schema import Schema, walk
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct, Type
from lakebed.parquet.footer.framing import find_meta
from lakebed.parquet.foreign.sandbox import WorkerLimits, inspect_isolated
from lakebed.parquet.inspect import StatisticsSpec
from lakebed.parquet.schema.match import list_element, map_entry, walk_nodes
from lakebed.parquet.schema.tree import Node, Physical, decode_schema, schema_prefix
from lakebed.parquet.schema.types import describe, stored_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.parquet.foreign.sandbox import ForeignFile

_LIMITS = WorkerLimits()
# Something to compare with: what differs is not asked for here
_ANY = Schema(fields=(Field(field_id=1, name="-", type=Primitive(name="boolean")),))
_SPEC = StatisticsSpec(first=0, require_ids=False)
_REMEMBERED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovered:
    """What a footer says of its file. `ids`: whether every column has an id (`schema` holds them), none has, or only some do."""

    rows: int
    created_by: str
    schema: Schema
    ids: str


@dataclass(slots=True)
class Discovery:
    """Remembers schemas by the bytes that spell them: files of one writer begin alike."""

    limits: WorkerLimits = _LIMITS
    _known: dict[bytes, tuple[Schema, str]] = field(default_factory=dict)

    def discover(self, items: Sequence[ForeignFile]) -> list[Discovered | LakebedError]:
        """One answer per file, in order."""
        answers = inspect_isolated(items, _ANY, spec=_SPEC, limits=self.limits)
        found: list[Discovered | LakebedError] = []
        for item, answer in zip(items, answers, strict=True):
            if isinstance(answer, LakebedError):
                found.append(answer)
                continue
            try:
                # an empty file adds no column to a table, whatever it says of them
                schema, ids = self._schema_of(find_meta(item.tail)) if answer.footer.num_rows else (_ANY, "none")
            except LakebedError as exc:
                found.append(UnreadableFileError(item.path, reason=str(exc)))
            else:
                found.append(Discovered(rows=answer.footer.num_rows, created_by=answer.created_by, schema=schema, ids=ids))
        return found

    def _schema_of(self, meta: bytes) -> tuple[Schema, str]:
        prefix = schema_prefix(meta)
        if (known := self._known.get(prefix)) is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[prefix] = read_columns(decode_schema(meta))
        return known


def discover_columns(item: ForeignFile) -> Schema:
    """The columns of one file, whether it has rows or not; an unreadable one is refused."""
    (answer,) = inspect_isolated([item], _ANY, spec=_SPEC, limits=_LIMITS)
    if isinstance(answer, LakebedError):
        raise answer
    return read_columns(decode_schema(find_meta(item.tail)))[0]


def read_columns(root: Node) -> tuple[Schema, str]:
    """The columns of a file, all optional, with the file's own ids if every column has one, else numbered in order."""
    numbers = count(1)
    schema = Schema(fields=tuple(_field(node, node.name, numbers) for node in root.children))
    every, given = list(walk(schema.fields)), [node.field_id for node in walk_nodes(root.children) if node.field_id is not None]
    if not given:
        return schema, "none"
    if len(given) == len(set(given)) == len(every) and min(given) > 0:
        return Schema(fields=tuple(_field(node, node.name, None) for node in root.children)), "all"
    return schema, "some"


def _field(node: Node, name: str, numbers: Iterator[int] | None) -> Field:
    """`numbers` gives ids in order, parents first; without it the file's own are taken."""
    field_id = next(numbers) if numbers is not None else node.field_id or 0
    return Field(field_id=field_id, name=name, type=_type(node, name, numbers))


def _type(node: Node, name: str, numbers: Iterator[int] | None) -> Type:
    if node.physical is not None and not node.is_repeated:
        return _primitive(node, name)
    if (element := list_element(node)) is not None:
        return List(element=_field(element, "element", numbers))
    if (entry := map_entry(node)) is not None:
        return Map(key=replace(_field(entry[0], "key", numbers), required=True), value=_field(entry[1], "value", numbers))
    if node.physical is None and node.children and not node.annotation.name and not node.is_repeated:
        return Struct(fields=tuple(_field(child, child.name, numbers) for child in node.children))
    message = f"column {name!a} is nested in a way that no table has: write it again with Spark or pyarrow"
    raise SchemaRefusedError(message)


def _primitive(node: Node, name: str) -> Primitive:
    if node.physical == Physical.INT96:
        return Primitive(name="timestamptz")  # as Spark and Hive mean it; registering still asks for microseconds
    if (kind := stored_type(node)) is not None:
        return kind
    if (wider := _wider(node)) is not None:
        return wider
    message = f"column {name!a} is stored as {describe(node)}, which no Iceberg table can hold: cast it before writing"
    raise SchemaRefusedError(message)


def _wider(node: Node) -> Primitive | None:
    """A type that holds all values of an unsigned integer, for those who let the file be rewritten."""
    if node.annotation.name != "integer" or node.annotation.is_signed:
        return None
    return Primitive(name="long") if node.physical == Physical.INT32 else Primitive(name="decimal", precision=20, scale=0)
