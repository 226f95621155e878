"""Changing the columns of a plain table: a new version in one transaction; every partition stays readable, no file is touched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.admin.audit import find_actor
from lakebed.core.errors import InvalidValueError, SchemaRefusedError
from lakebed.core.names import TableName
from lakebed.core.results import Rows, single_result
from lakebed.core.schema.altering import AddColumn, Change, DropColumn, MakeOptional, RenameColumn, WidenColumn, alter
from lakebed.core.schema.evolution import show_type
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import List, Map, Primitive, Struct, Type
from lakebed.parquet.schema.arrow import from_arrow
from lakebed.registry.maintenance.runs import add_run, finish_run
from lakebed.registry.table_cache import missing_table
from lakebed.registry.tables.lake_tables import read_table, require_table
from lakebed.registry.tables.names import resolve_name
from lakebed.registry.tables.versions import evolve_schema, list_versions, require_evolvable
from lakebed.registry.tables.view_sets import list_definitions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.core.schema.types import Field
    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Transaction

JOB = "alter"  # stored in runs: never rename


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """The table's columns now, or what `dry_run` would make them. `view_sets` read the table: check whether they name a changed column."""

    table: TableName
    changes: tuple[str, ...]
    schema: Schema = field(repr=False)
    schema_version: int
    schema_hash: str | None
    view_sets: tuple[str, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRow:
    """One column; a nested one under its path. `role` holds what the table needs it for: `event_time`, `partition`, `sort`, `index`."""

    name: str
    type: str
    nullable: bool
    field_id: int
    role: str


def list_columns(registry: Registry, table: str) -> Rows[ColumnRow]:
    """The columns of today in the table's order, each before those inside it."""
    found = require_table(registry, TableName.parse(table))
    roles = _list_roles(found)
    return Rows(ColumnRow, (_column_row(path, f, roles) for path, f in _walk_paths(found.schema.fields)))


def _walk_paths(fields: Sequence[Field], above: str = "") -> Iterator[tuple[str, Field]]:
    for f in fields:
        yield f"{above}{f.name}", f
        yield from _walk_paths(f.children, f"{above}{f.name}.")


def _column_row(path: str, column: Field, roles: dict[str, frozenset[int]]) -> ColumnRow:
    role = ", ".join(name for name, ids in roles.items() if column.field_id in ids)
    return ColumnRow(name=path, type=show_type(column.type), nullable=not column.required, field_id=column.field_id, role=role)


def _list_roles(table: LakeTable) -> dict[str, frozenset[int]]:
    event_time = frozenset[int]() if table.row.event_time_field is None else frozenset({table.row.event_time_field})
    return {
        "event_time": event_time,
        "partition": frozenset(source.field_id for _, source in table.transforms),
        "sort": frozenset(table.schema.require_original(name).field_id for name in table.sort_by),
        "index": frozenset(table.indexed) - event_time,
    }


def alter_table(registry: Registry, table: str, *changes: Change, dry_run: bool = False, actor: str | None = None) -> Alteration:
    """Apply all changes as one new version, or none. Rows, files, partitions and counters stay as they are.

    Names, ids and partitions of earlier rows keep their meaning: a dropped column never reappears under another name. Writers that
    started before continue under the version they read.
    """
    name = resolve_name(registry, table)
    if dry_run:
        with registry.read() as reader:
            return _plan(reader, name, changes)
    return registry.transact(lambda tx: _carry_out(tx, name, changes, actor=find_actor(actor)), tables=[name])


def add_column(registry: Registry, table: str, column: str, kind: str | Type | pa.DataType, *, dry_run: bool = False) -> Alteration:
    """Add an optional column. `kind` is the name of a type, a type of the lake or an Arrow type; `a.b` adds b to the struct a."""
    return alter_table(registry, table, AddColumn(column=column, type=type_of(kind)), dry_run=dry_run)


def rename_column(registry: Registry, table: str, column: str, to: str, *, dry_run: bool = False) -> Alteration:
    """Rename a column; for a nested one, `to` is the last part of its path."""
    return alter_table(registry, table, RenameColumn(column=column, to=to), dry_run=dry_run)


def drop_column(registry: Registry, table: str, column: str, *, dry_run: bool = False) -> Alteration:
    """Drop a column that is not an event time, partition source or sort column. Earlier states can still be read with it."""
    return alter_table(registry, table, DropColumn(column=column), dry_run=dry_run)


def widen_column(registry: Registry, table: str, column: str, kind: str | Type | pa.DataType, *, dry_run: bool = False) -> Alteration:
    """Promote a column: int to long, float to double, a decimal to a wider one of the same scale."""
    wanted = type_of(kind)
    if not isinstance(wanted, Primitive):
        message = f"{table}: only plain columns can be widened, not to {type(wanted).__name__.lower()}"
        raise SchemaRefusedError(message)
    return alter_table(registry, table, WidenColumn(column=column, type=wanted), dry_run=dry_run)


def make_column_optional(registry: Registry, table: str, column: str, *, dry_run: bool = False) -> Alteration:
    """Make a required column optional."""
    return alter_table(registry, table, MakeOptional(column=column), dry_run=dry_run)


def type_of(kind: str | Type | pa.DataType) -> Type:
    """`decimal(10,2)`, a type of the lake, or Arrow's."""
    if isinstance(kind, Primitive | Struct | List | Map):
        return kind
    if isinstance(kind, str):
        return Primitive.parse(kind.strip().lower())
    if isinstance(kind, pa.DataType):
        return from_arrow(pa.schema([pa.field("column", kind)])).fields[0].type
    message = f"invalid type {kind!a}: expected a name such as 'string', or a pyarrow type"
    raise InvalidValueError(message)


def _carry_out(tx: Transaction, name: TableName, changes: tuple[Change, ...], *, actor: str) -> Alteration:
    planned = _plan(tx, name, changes)
    table = tx.require(name)
    run_id = add_run(tx, JOB, actor=actor, plan={"table": str(name), "changes": list(planned.changes)}, table_id=table.table_id)
    schema_hash = evolve_schema(tx, name, planned.schema)
    finish_run(tx, run_id, state="done", result={"schema_version": planned.schema_version, "schema_hash": schema_hash})
    return Alteration(
        table=name, changes=planned.changes, schema=planned.schema, schema_version=planned.schema_version, schema_hash=schema_hash,
        view_sets=planned.view_sets,
    )  # fmt: skip


def _plan(reader: Queryable, name: TableName, changes: tuple[Change, ...]) -> Alteration:
    table = read_table(reader, name)
    if table is None:
        raise missing_table(reader, name)
    if table.row.kind != "table":
        message = f"{name} is a view set: its columns come from its definition; define it again with create_view_set"
        raise InvalidValueError(message)
    versions = list_versions(reader, table.table_id)
    try:
        altered = alter(table.schema, changes, history=[Schema.from_json(v.schema) for v in versions])
    except SchemaRefusedError as exc:
        message = f"{name}: {exc}"
        raise SchemaRefusedError(message) from exc
    require_evolvable(name, altered, versions, event_time=table.row.event_time_field)
    reading = sorted(str(view) for view, inputs in list_definitions(reader).items() if name in inputs)
    version = max(v.schema_version for v in versions) + 1
    return Alteration(
        table=name, changes=tuple(map(str, changes)), schema=altered, schema_version=version, schema_hash=None, view_sets=tuple(reading),
        dry_run=True,
    )  # fmt: skip
