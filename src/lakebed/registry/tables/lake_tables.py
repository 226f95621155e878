"""Lake tables: create, evolve, look up, drop."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from lakebed.core.errors import SchemaRefusedError, TableExistsError
from lakebed.core.names import TableName
from lakebed.core.results import single_result
from lakebed.core.rows import TableMetadata, Tables, list_columns
from lakebed.core.schema.altering import require_settings
from lakebed.core.schema.schema import Schema, hash_schema, require_clear_names
from lakebed.core.schema.transforms import resolve_transforms
from lakebed.core.schema.types import Primitive
from lakebed.core.suggestions import require_options
from lakebed.core.tables.settings import read_free_properties
from lakebed.registry.codec import decode_row
from lakebed.registry.ids import ID_BITS
from lakebed.registry.table_cache import find_named, missing_table
from lakebed.registry.tables.names import require_free_name
from lakebed.registry.tables.serving import record_serving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.schema.transforms import Transform
    from lakebed.core.schema.types import Field
    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Reader, Transaction

MAX_INDEXED = 8  # slots of the range index per table; part of stored ids: never change
_INDEXABLE = frozenset({"int", "long", "float", "double", "date", "timestamp", "timestamptz"})
_TIMES = frozenset({"timestamp", "timestamptz", "date", "long"})
METADATA_COLUMNS = list_columns(TableMetadata)


class TableOptions(TypedDict, total=False):
    """The options of a plain table."""

    event_time: str | None
    partition_by: Sequence[str]
    sort_by: Sequence[str]
    index: Sequence[str]
    properties: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """The definition of a new table. `index` names columns whose value ranges are indexed beside the event time."""

    name: TableName
    schema: Schema
    kind: str = "table"
    event_time: str | None = None
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    index: tuple[str, ...] = ()
    definition: str = ""
    compression: str = "zstd"
    properties: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: TableName, schema: Schema, **options: Unpack[TableOptions]) -> TableSpec:
        require_options("create_table", options, TableOptions.__annotations__)
        return cls(
            name=name,
            schema=schema,
            event_time=options.get("event_time"),
            partition_by=tuple(options.get("partition_by", ())),
            sort_by=tuple(options.get("sort_by", ())),
            index=tuple(options.get("index", ())),
            properties=read_free_properties(str(name), options.get("properties") or {}),
        )


@single_result
@dataclass(frozen=True, kw_only=True)
class LakeTable:
    """A table as the registry knows it, with its serving version."""

    row: Tables
    metadata: TableMetadata
    schema: Schema

    @property
    def name(self) -> TableName:
        return TableName(self.row.database, self.row.name)

    @property
    def table_id(self) -> int:
        return self.row.id

    @property
    def schema_hash(self) -> str:
        return self.metadata.schema_hash

    @cached_property
    def properties(self) -> dict[str, Any]:
        """The settings of the serving version, those that only Lakebed writes among them."""
        found: dict[str, Any] = json.loads(self.metadata.properties)
        return found

    @property
    def indexed(self) -> tuple[int, ...]:
        """Field ids in the order of their range-index slots; the event time first."""
        return tuple(self.properties.get("indexed", ()))

    @cached_property
    def partition_by(self) -> tuple[str, ...]:
        """The partition transforms as they were given."""
        return decode_settings(self.metadata.partition_by)

    @cached_property
    def transforms(self) -> tuple[tuple[Transform, Field], ...]:
        """Each partition transform beside its source column."""
        return resolve_transforms(self.schema, self.partition_by)

    @cached_property
    def sort_by(self) -> tuple[str, ...]:
        """The columns that files are sorted by, as they were first called."""
        return decode_settings(self.metadata.sort_by)

    @cached_property
    def sort_columns(self) -> tuple[str, ...]:
        """Physical names of the columns that files are sorted by: settings name a column as it was first called."""
        return tuple(self.schema.require_original(name).physical_name for name in self.sort_by)


def decode_settings(stored: str) -> tuple[str, ...]:
    """`partition_by` and `sort_by` as the registry keeps them."""
    return tuple(json.loads(stored))


def read_indexed(reader: Reader | Transaction, table_id: int) -> tuple[int, ...]:
    """Field ids in the order of their range-index slots: fixed when the table is made, so a process may remember them."""
    known = reader.indexed_fields.get(table_id)
    if known is None:
        rows = reader.query("SELECT properties FROM table_metadata WHERE table_id = :id AND standing = 'serving'", {"id": table_id})
        known = tuple(json.loads(rows[0][0]).get("indexed", ())) if rows else ()
        reader.indexed_fields[table_id] = known
    return known


def create_table(registry: Registry, spec: TableSpec) -> LakeTable:
    """Create the table, or refuse when the name is taken in any case; its first journal entries are numbered from 1."""
    event_time, indexed = _require_sound(spec)
    registry.tables.forget(spec.name)  # another process may have dropped it
    try:
        with registry.write() as tx:
            require_free_name(tx, spec.name)
            add_table(tx, spec, event_time=event_time, indexed=indexed)
    except TableExistsError as exc:
        if exc.found is not None:
            raise
        raise TableExistsError(str(spec.name)) from exc  # by a program that does not look first: the constraint's error has no name
    return require_table(registry, spec.name)


def require_creatable(registry: Registry, spec: TableSpec) -> None:
    """Refuse what `create_table` would refuse now, and create nothing."""
    _require_sound(spec)
    with registry.read() as reader:
        if (found := find_named(reader, spec.name)) is not None:
            raise TableExistsError(str(spec.name), found=str(found[1]))


def _require_sound(spec: TableSpec) -> tuple[int | None, list[int]]:
    """The event time and the indexed columns of a table that can be created."""
    require_clear_names(spec.schema)
    require_settings(spec.schema, partition_by=spec.partition_by, sort_by=spec.sort_by)
    return _find_event_time(spec), _indexed_fields(spec)


def add_table(tx: Transaction, spec: TableSpec, *, event_time: int | None = None, indexed: Sequence[int] = ()) -> int:
    """The rows of a new table, whatever other tables are called."""
    table_id: int = tx.query("INSERT INTO table_seq (last_id) VALUES (1) RETURNING table_id")[0][0]
    tx.created.add(table_id)
    tx.insert(
        "tables",
        ("id", "database", "name", "kind", "event_time_field", "last_modified", "created_at"),
        [(table_id, spec.name.database, spec.name.name, spec.kind, event_time, tx.now, tx.now)],
    )
    metadata_id = (table_id << ID_BITS) + 1
    insert_version(
        tx, spec, metadata_id=metadata_id, table_id=table_id, version=1, version_state="serving", indexed=list(indexed), now=tx.now
    )  # fmt: skip
    record_serving(tx, table_id, seq=0, version=1, group=0)
    return table_id


def find_table(registry: Registry, name: TableName) -> LakeTable | None:
    with registry.read() as reader:
        return read_table(reader, name)


def require_table(registry: Registry, name: TableName) -> LakeTable:
    if (table := find_table(registry, name)) is None:
        registry.tables.forget(name)
        raise missing_table(registry, name)
    return table


def read_table(reader: Queryable, name: TableName) -> LakeTable | None:
    columns = ", ".join(list_columns(Tables))
    rows = reader.query(
        f"SELECT {columns} FROM tables WHERE database = :database AND name = :name AND dropped_at IS NULL",
        {"database": name.database, "name": name.name},
    )
    if not rows:
        alike = find_named(reader, name)
        return None if alike is None else read_table(reader, alike[1])
    row = decode_row(Tables, rows[0])
    found = reader.query(
        f"SELECT {', '.join(METADATA_COLUMNS)} FROM table_metadata WHERE table_id = :id AND standing = 'serving'", {"id": row.id}
    )
    metadata = decode_row(TableMetadata, found[0])
    return LakeTable(row=row, metadata=metadata, schema=Schema.from_json(metadata.schema))


def find_row(reader: Queryable, table_id: int) -> Tables | None:
    """The table's own row, dropped or not."""
    columns = ", ".join(list_columns(Tables))
    rows = reader.query(f"SELECT {columns} FROM tables WHERE id = :id", {"id": table_id})
    return decode_row(Tables, rows[0]) if rows else None


def list_tables(registry: Registry) -> list[Tables]:
    columns = ", ".join(list_columns(Tables))
    rows = registry.query(f"SELECT {columns} FROM tables WHERE dropped_at IS NULL ORDER BY database, name")
    return [decode_row(Tables, row) for row in rows]


def list_all_tables(registry: Registry) -> list[Tables]:
    """Dropped ones too."""
    columns = ", ".join(list_columns(Tables))
    return [decode_row(Tables, row) for row in registry.query(f"SELECT {columns} FROM tables ORDER BY id")]


def drop_table(tx: Transaction, name: TableName) -> None:
    """Hide the table; its files stay until they are retired and cleaned."""
    table = tx.require(name)
    tx.run(
        "UPDATE tables SET dropped_at = :now, last_modified = :modified WHERE id = :id",
        {"now": tx.now, "modified": tx.modified_at(table), "id": table.table_id},
    )
    tx.after_commit.append(lambda: tx.cache.forget(name))


def _find_event_time(spec: TableSpec) -> int | None:
    if not spec.event_time:
        return None
    field = spec.schema.require(spec.event_time)
    if not (isinstance(field.type, Primitive) and field.type.name in _TIMES):
        message = f"{spec.name}: the event time {spec.event_time} must be a timestamp, date or long column"
        raise SchemaRefusedError(message)
    return field.field_id


def _indexed_fields(spec: TableSpec) -> list[int]:
    names = [n for n in (spec.event_time, *spec.index) if n is not None]
    fields = [spec.schema.require(name) for name in dict.fromkeys(names)]
    for f in fields:
        if not (isinstance(f.type, Primitive) and f.type.name in _INDEXABLE):
            message = f"{spec.name}: column {f.name} cannot be indexed: only numbers, dates and timestamps have ranges"
            raise SchemaRefusedError(message)
    if len(fields) > MAX_INDEXED:
        message = f"{spec.name}: at most {MAX_INDEXED} columns can be indexed, the event time included"
        raise SchemaRefusedError(message)
    return [f.field_id for f in fields]


def insert_version(
    tx: Transaction, spec: TableSpec, *, metadata_id: int, table_id: int, version: int, version_state: str, indexed: list[int], now: int
) -> str:
    schema_hash = hash_schema(spec.schema, version=version, definition=spec.definition)
    properties = {**spec.properties, "indexed": indexed}
    if spec.definition:
        properties["definition"] = spec.definition
    values = (
        metadata_id,
        table_id,
        version,
        spec.schema.to_json(),
        schema_hash,
        version_state,
        "filesystem",
        "{}",
        "parquet",
        spec.compression,
        json.dumps(spec.partition_by),
        json.dumps(spec.sort_by),
        json.dumps(properties, sort_keys=True),
        now,
        now,
        now,
    )
    tx.insert("table_metadata", METADATA_COLUMNS, [values])
    return schema_hash
