"""Versions of a table: added, staged, promoted and withdrawn; what was written under an earlier one stays readable."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import InvalidValueError, SchemaChangedError, SchemaRefusedError
from lakebed.core.rows import TableMetadata
from lakebed.core.schema.altering import list_needed
from lakebed.core.schema.schema import Schema, hash_schema, list_obstacles
from lakebed.core.tables.settings import DEFINITION, INDEXED
from lakebed.registry.codec import decode_row
from lakebed.registry.schema.predicates import VISIBLE, is_pending, is_visible
from lakebed.registry.tables.counters import recount
from lakebed.registry.tables.groups import allocate_group
from lakebed.registry.tables.lake_tables import METADATA_COLUMNS, LakeTable, TableSpec, insert_version
from lakebed.registry.tables.serving import record_serving

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakebed.core.names import TableName
    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.transaction import LockedTable, Transaction


def plan_evolution(
    table: LakeTable, schema: Schema, *, versions: Sequence[TableMetadata]
) -> tuple[LakeTable, Callable[[Transaction], None]]:
    """The table as its next version, and what makes it so in the publishing transaction, or refuses when another version came first."""
    version = max(v.schema_version for v in versions) + 1
    schema_hash = hash_schema(schema, version=version)

    def evolve(tx: Transaction) -> None:
        require_serving(tx, table)
        if evolve_schema(tx, table.name, schema) != schema_hash:
            raise SchemaChangedError(str(table.name))
        locked = tx.require(table.name)
        # the head was read before the version was made
        locked.head = replace(locked.head, version_states=f"{locked.head.version_states},{schema_hash}:serving")

    metadata = replace(table.metadata, schema=schema.to_json(), schema_hash=schema_hash, schema_version=version)
    return LakeTable(row=table.row, metadata=metadata, schema=schema), evolve


def require_serving(tx: Transaction, table: LakeTable) -> None:
    """Refuse when the version that the caller read serves no longer."""
    if tx.require(table.name).head.find_version_state(table.schema_hash) != "serving":
        raise SchemaChangedError(str(table.name))


_FIXED_PROPERTIES = frozenset({INDEXED, DEFINITION})


_LEAVE = """UPDATE table_files SET removed_group = :g, modified_at = :now
WHERE table_id = :table_id AND added_group IS NOT NULL AND removed_group IS NULL AND schema_hash <> :hash"""


_ENTER = f"""UPDATE table_files SET added_group = :g, modified_at = :now
WHERE table_id = :table_id AND {is_pending()} AND schema_hash = :hash"""


def list_versions(reader: Queryable, table_id: int) -> list[TableMetadata]:
    rows = reader.query(
        f"SELECT {', '.join(METADATA_COLUMNS)} FROM table_metadata WHERE table_id = :id ORDER BY schema_version", {"id": table_id}
    )
    return [decode_row(TableMetadata, row) for row in rows]


def evolve_schema(tx: Transaction, name: TableName, schema: Schema) -> str:
    """Serve a plain table under a new schema that reads every readable version; the hash of the new version.

    Refuses with every obstacle named: every partition of a plain table stays readable.
    """
    table = tx.require(name)
    versions = list_versions(tx, table.table_id)
    serving = next(v for v in versions if v.standing == "serving")
    require_evolvable(name, schema, versions, event_time=table.head.event_time_field)
    tx.run("UPDATE table_metadata SET standing = 'readable', updated_at = :now WHERE id = :id", {"id": serving.id, "now": tx.now})
    return _add_version(tx, table, serving, schema, versions, version_state="serving")


def require_evolvable(name: TableName, schema: Schema, versions: Sequence[TableMetadata], *, event_time: int | None) -> None:
    """Refuse a schema that cannot read what was written, or that lacks a column which the table's own settings name."""
    obstacles = [
        f"version {v.schema_version}: {o}"
        for v in versions
        if v.standing in VISIBLE
        for o in list_obstacles(schema, Schema.from_json(v.schema))
    ]
    serving = next(v for v in versions if v.standing == "serving")
    known, kept = Schema.from_json(serving.schema), {f.field_id for f in schema.fields}
    needed = list_needed(
        known, event_time=event_time, partition_by=json.loads(serving.partition_by), sort_by=json.loads(serving.sort_by)
    )  # fmt: skip
    obstacles += [f"{known.by_id[field_id].name} cannot be dropped: {why}" for field_id, why in needed.items() if field_id not in kept]
    _require_stable_names(versions, schema, name)
    if obstacles:
        message = f"{name} cannot take the new schema: {'; '.join(obstacles)}"
        raise SchemaRefusedError(message)


def stage_version(tx: Transaction, name: TableName, schema: Schema, *, definition: str) -> str:
    """A view set's next definition: built beside the serving one, invisible until promoted."""
    table = tx.require(name)
    versions = list_versions(tx, table.table_id)
    serving = next(v for v in versions if v.standing == "serving")
    withdraw_staged(tx, name)
    return _add_version(tx, table, serving, schema, versions, version_state="staged", definition=definition)


def withdraw_staged(tx: Transaction, name: TableName) -> None:
    """Give up the staged definition, if there is one; what was built for it becomes incompatible."""
    tx.run(
        "UPDATE table_metadata SET standing = 'incompatible', updated_at = :now WHERE table_id = :id AND standing = 'staged'",
        {"id": tx.require(name).table_id, "now": tx.now},
    )


def promote_version(tx: Transaction, name: TableName, schema_hash: str) -> int:
    """Serve the staged version from now on; the group in which files change places. Counters follow in this transaction."""
    table = tx.require(name)
    staged = tx.query(
        "SELECT id, schema_version FROM table_metadata WHERE table_id = :id AND schema_hash = :hash AND standing = 'staged'",
        {"id": table.table_id, "hash": schema_hash},
    )
    if not staged:
        message = f"{name} has no staged version {schema_hash}: stage it first"
        raise InvalidValueError(message)
    demote = f"UPDATE table_metadata SET standing = 'incompatible', updated_at = :now WHERE table_id = :id AND {is_visible()}"
    tx.run(demote, {"id": table.table_id, "now": tx.now})
    tx.run("UPDATE table_metadata SET standing = 'serving', updated_at = :now WHERE id = :id", {"id": staged[0][0], "now": tx.now})
    allocate_group(tx, table, "promote")
    record_serving(tx, table.table_id, seq=table.journal_number, version=staged[0][1], group=table.last_group)
    params = {"table_id": table.table_id, "g": table.last_group, "now": tx.modified_at(table), "hash": schema_hash}
    tx.run(_LEAVE, params)
    tx.run(_ENTER, params)
    recount(tx, table)
    return table.last_group


def set_properties(tx: Transaction, name: TableName, changes: dict[str, Any]) -> None:
    """Change settings of the serving and the staged version; a None removes one. What files were registered under cannot change."""
    table = tx.require(name)
    if fixed := sorted(_FIXED_PROPERTIES & changes.keys()):
        message = f"{name}: {', '.join(fixed)} is fixed for life; create another table, or stage a new definition"
        raise InvalidValueError(message)
    instant = tx.modified_at(table)
    of_table = "SELECT id, properties FROM table_metadata WHERE table_id = :id AND standing IN ('serving', 'staged')"
    for metadata_id, stored in tx.query(of_table, {"id": table.table_id}):
        kept = {key: value for key, value in {**json.loads(stored), **changes}.items() if value is not None}
        tx.run(
            "UPDATE table_metadata SET properties = :p, updated_at = :now, last_modified = :now WHERE id = :id",
            {"p": json.dumps(kept, sort_keys=True), "now": instant, "id": metadata_id},
        )
    tx.run("UPDATE tables SET last_modified = :now WHERE id = :id", {"now": instant, "id": table.table_id})


def _require_stable_names(versions: Sequence[TableMetadata], schema: Schema, name: TableName) -> None:
    """Ids and physical names are fixed for life: a new column may not take those of a dropped one."""
    for version in versions:
        known = Schema.from_json(version.schema).by_id
        for field_id, f in schema.by_id.items():
            if field_id in known and known[field_id].physical_name != f.physical_name:
                message = f"{name}: field {field_id} was written as {known[field_id].physical_name}, never as {f.physical_name}"
                raise SchemaRefusedError(message)


def _add_version(
    tx: Transaction,
    table: LockedTable,
    serving: TableMetadata,
    schema: Schema,
    versions: list[TableMetadata],
    *,
    version_state: str,
    definition: str = "",
) -> str:
    spec = TableSpec(
        name=table.name,
        schema=schema,
        kind=table.head.kind,
        partition_by=tuple(json.loads(serving.partition_by)),
        sort_by=tuple(json.loads(serving.sort_by)),
        compression=serving.compression,
        definition=definition,
        properties=json.loads(serving.properties),
    )
    instant = tx.modified_at(table)
    tx.run("UPDATE tables SET last_modified = :now WHERE id = :id", {"now": instant, "id": table.table_id})
    version = max(v.schema_version for v in versions) + 1
    if version_state == "serving":
        record_serving(tx, table.table_id, seq=table.journal_number, version=version, group=table.last_group)
    indexed = json.loads(serving.properties).get("indexed", [])
    return insert_version(
        tx,
        spec,
        metadata_id=table.allocate_id(),
        table_id=table.table_id,
        version=version,
        version_state=version_state,
        indexed=indexed,
        now=instant,
    )
