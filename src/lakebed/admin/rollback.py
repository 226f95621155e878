"""Going back to a snapshot: its files come again as copies, in one new group. No path ever comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.admin.actors import write_down
from lakebed.core.errors import InvalidValueError
from lakebed.core.names import GLOBAL_INSTANCE, TableName
from lakebed.registry.groups import list_files_at_group
from lakebed.registry.lake_tables import require_table
from lakebed.registry.overwrite import list_visible_partitions
from lakebed.registry.plans import AtGroup
from lakebed.registry.snapshots import has_instances
from lakebed.registry.time_travel import resolve_as_of
from lakebed.writing import open_writing

if TYPE_CHECKING:
    from lakebed.core.rows import TableFiles
    from lakebed.registry.engine import Registry
    from lakebed.registry.lake_tables import LakeTable
    from lakebed.registry.publish import Published
    from lakebed.storage.access import Storage


def roll_back_to(registry: Registry, storage: Storage, name: str, snapshot_id: int, *, actor: str | None = None) -> Published:
    """Replace the visible rows of a plain table by those of a kept snapshot, in one transaction.

    Rows that others insert meanwhile stay; a partition that goes meanwhile makes it conflict, and nothing is changed. The copies share
    their bytes with the old files where the storage has hard links.
    """
    table = require_table(registry, TableName.parse(name))
    replacing = list_visible_partitions(registry, table.table_id, instance=GLOBAL_INSTANCE)
    files = _require_files(registry, table, snapshot_id)
    with registry.write() as tx:
        write_down(tx, "rollback", {"table": name, "snapshot_id": snapshot_id, "files": len(files)}, actor=actor, table_id=table.table_id)
    with open_writing(registry, storage, table, kind="rollback") as writing:
        for file in files:
            storage.copy(file.file_path, writing.new_path(partition_path=file.partition_path))
        return writing.publish(replacing=replacing)


def _require_files(registry: Registry, table: LakeTable, snapshot_id: int) -> list[TableFiles]:
    if table.row.kind != "table":
        message = f"{table.name} is a view set: regenerate it from its source instead"
        raise InvalidValueError(message)
    with registry.read() as reader:
        if has_instances(reader, table.table_id):
            message = f"{table.name} has several instances, and files of a snapshot do not tell theirs: insert the wanted rows again"
            raise InvalidValueError(message)
        at = resolve_as_of(reader, table, snapshot_id)
        if not isinstance(at, AtGroup):
            message = f"{table.name}: {snapshot_id} is a journal number: name one of `lake.snapshots`"
            raise InvalidValueError(message)
        return list_files_at_group(reader, table.table_id, at.group)
