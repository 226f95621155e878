"""The errors that violated constraints become. Names are stored in the database: never rename one."""

from __future__ import annotations

from typing import NoReturn

from lakebed.core.errors import ConflictError, FileConflictError, InvalidValueError, PartitionConflictError, RefusedError, TableExistsError

# SQLite names a UNIQUE violation by its columns
_COLUMNS = {
    "table_files.file_path": "table_files_path",
    "partitions.scope_id, partitions.begin_insert_time, partitions.end_insert_time": "partition_key",
    "tables.database, tables.name": "tables_name",
    "table_metadata.table_id": "table_metadata_serving",
    "table_metadata.table_id, table_metadata.schema_version": "table_metadata_version",
    "table_metadata.table_id, table_metadata.schema_hash": "table_metadata_hash",
    "table_stats.table_id, table_stats.partition_path": "table_stats_path",
    "table_snapshots.table_id, table_snapshots.snapshot_id": "table_snapshots_id",
    "partition_scopes.table_id, partition_scopes.view_instance_id, partition_scopes.schema_hash": "partition_scopes_key",
    "operations.op_id": "operations_pkey",
    "operations.table_id, operations.app_id, operations.batch_id": "operations_batch_once",
    "partition_metadata.file_path": "partition_metadata_pkey",
}


class ConstraintRefusedError(RefusedError):
    """A rule of the registry forbids the change."""

    code = "constraint"

    def __init__(self, constraint: str) -> None:
        super().__init__(f"the registry's rule {constraint} forbids this change; nothing was changed")
        self.constraint = constraint


def raise_unstorable(exc: UnicodeEncodeError) -> NoReturn:
    message = f"invalid text {exc.object[:80]!a}: it cannot be written as UTF-8, because of a lone surrogate at offset {exc.start}"
    raise InvalidValueError(message) from exc


def raise_violation(found: str, *, cause: BaseException) -> NoReturn:
    name = _COLUMNS.get(found, found)
    raise _typed(name) from cause


def _typed(name: str) -> RefusedError | ConflictError:
    match name:
        case "partition_overlap" | "partition_key":
            return PartitionConflictError("the new partition", found="one that is there already")
        case "table_files_path" | "table_files_pkey" | "partition_metadata_pkey":
            return FileConflictError("a path of this request", reason="it is registered already")
        case "tables_name":
            return TableExistsError("of that name")
        case "partition_event_range":
            return InvalidValueError("a partition with rows of a table with an event time needs both event bounds")
        case _:
            return ConstraintRefusedError(name)
