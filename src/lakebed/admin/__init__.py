"""Administration: list, retire, clean and recover. Each task is one safe call; nothing here prints."""

from lakebed.admin.audit import list_administrators, set_administrators
from lakebed.admin.cleanup import CleanUp, delete_expired_temporary_files, recover_operations
from lakebed.admin.dropping import Drop, drop_table
from lakebed.admin.file_history import FileEvent, FileHistory, why
from lakebed.admin.lists import MAX_LIMIT, list_files, list_incompatible_partitions, list_partitions, list_view_sets
from lakebed.admin.orphans import DEFAULT_AGE, Forgotten, Sweep, forget_left_out_files, list_left_out_files, sweep_orphans
from lakebed.admin.requests import RequestedRun, request_materialization, request_regeneration
from lakebed.admin.retirement import (
    MAX_PARTITIONS,
    BulkOptions,
    Retirement,
    retire_expired_partitions,
    retire_incompatible_partitions,
    retire_partition_by_file,
    retire_partition_by_metadata,
    retire_partitions,
)
from lakebed.admin.rollback import Rollback, roll_back_to
from lakebed.admin.schema import (
    Alteration,
    ColumnRow,
    add_column,
    alter_table,
    drop_column,
    list_columns,
    make_column_optional,
    rename_column,
    widen_column,
)
from lakebed.admin.snapshots import Expiry, SnapshotRow, configure_table, expire_snapshots, list_snapshots, tag_snapshot, untag_snapshot
from lakebed.registry.partitions.retire import DEFAULT_GRACE_S

__all__ = [
    "DEFAULT_AGE",
    "DEFAULT_GRACE_S",
    "MAX_LIMIT",
    "MAX_PARTITIONS",
    "Alteration",
    "BulkOptions",
    "CleanUp",
    "ColumnRow",
    "Drop",
    "Expiry",
    "FileEvent",
    "FileHistory",
    "Forgotten",
    "RequestedRun",
    "Retirement",
    "Rollback",
    "SnapshotRow",
    "Sweep",
    "add_column",
    "alter_table",
    "configure_table",
    "delete_expired_temporary_files",
    "drop_column",
    "drop_table",
    "expire_snapshots",
    "forget_left_out_files",
    "list_administrators",
    "list_columns",
    "list_files",
    "list_incompatible_partitions",
    "list_left_out_files",
    "list_partitions",
    "list_snapshots",
    "list_view_sets",
    "make_column_optional",
    "recover_operations",
    "rename_column",
    "request_materialization",
    "request_regeneration",
    "retire_expired_partitions",
    "retire_incompatible_partitions",
    "retire_partition_by_file",
    "retire_partition_by_metadata",
    "retire_partitions",
    "roll_back_to",
    "set_administrators",
    "sweep_orphans",
    "tag_snapshot",
    "untag_snapshot",
    "why",
    "widen_column",
]
