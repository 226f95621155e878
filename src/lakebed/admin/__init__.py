"""Administration: list, retire, clean, recover. One safe call each; nothing here prints."""

from lakebed.admin.cleaning import CleanUp, delete_expired_temporary_files, recover_operations
from lakebed.admin.lists import PartitionOptions, list_files, list_incompatible_partitions, list_partitions, list_view_sets
from lakebed.admin.requests import RequestedRun, request_materialization, request_regeneration
from lakebed.admin.retiring import (
    MAX_PARTITIONS,
    BulkOptions,
    RangeOptions,
    Retirement,
    retire_expired_partitions,
    retire_incompatible_partitions,
    retire_partition_by_file,
    retire_partition_by_metadata,
    retire_partitions,
)
from lakebed.admin.rollback import roll_back_to
from lakebed.admin.snapshots import SnapshotRow, configure_table, list_snapshots, tag_snapshot
from lakebed.admin.sweeping import DEFAULT_AGE, Sweep, sweep_orphans

__all__ = [
    "DEFAULT_AGE",
    "MAX_PARTITIONS",
    "BulkOptions",
    "CleanUp",
    "PartitionOptions",
    "RangeOptions",
    "RequestedRun",
    "Retirement",
    "SnapshotRow",
    "Sweep",
    "configure_table",
    "delete_expired_temporary_files",
    "list_files",
    "list_incompatible_partitions",
    "list_partitions",
    "list_snapshots",
    "list_view_sets",
    "recover_operations",
    "request_materialization",
    "request_regeneration",
    "retire_expired_partitions",
    "retire_incompatible_partitions",
    "retire_partition_by_file",
    "retire_partition_by_metadata",
    "retire_partitions",
    "roll_back_to",
    "sweep_orphans",
    "tag_snapshot",
]
