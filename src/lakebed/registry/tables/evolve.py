"""A new version of a plain table that comes with the rows written for it, in one transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakebed.core.errors import SchemaChangedError
from lakebed.core.schema.schema import hash_schema
from lakebed.registry.tables.lake_tables import LakeTable, evolve_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakebed.core.rows import TableMetadata
    from lakebed.core.schema.schema import Schema
    from lakebed.registry.transaction import Transaction


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
        locked.head = replace(locked.head, standings=f"{locked.head.standings},{schema_hash}:serving")

    metadata = replace(table.metadata, schema=schema.to_json(), schema_hash=schema_hash, schema_version=version)
    return LakeTable(row=table.row, metadata=metadata, schema=schema), evolve


def require_serving(tx: Transaction, table: LakeTable) -> None:
    """Refuse when the version that the caller read serves no longer."""
    if tx.require(table.name).head.find_version_state(table.schema_hash) != "serving":
        raise SchemaChangedError(str(table.name))
