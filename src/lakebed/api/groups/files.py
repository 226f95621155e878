"""`lake.files`: registered files, their footers and histories; orphaned files."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lakebed import admin
from lakebed.admin import MAX_LIMIT
from lakebed.api.unknown_options import refuse_unknown_options
from lakebed.core.files import Verify
from lakebed.core.names import GLOBAL_INSTANCE, TableName
from lakebed.core.times import TimeRange
from lakebed.registry.files.footers import load_partition_metadata
from lakebed.registry.queries.time_travel import plan_at
from lakebed.registry.tables.lake_tables import require_table
from lakebed.staging import register

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import timedelta

    from pyarrow.parquet import FileMetaData

    from lakebed.api.open_lake import OpenLake
    from lakebed.core.files import Needed
    from lakebed.core.results import Rows
    from lakebed.core.times import Time
    from lakebed.registry.files.left_out import LeftOutFile
    from lakebed.registry.partitions.publish import Published
    from lakebed.registry.queries.listing import FileRow
    from lakebed.registry.queries.plans import ColumnRange, Plan
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage


@refuse_unknown_options
class Files:
    """A data file is immutable, has a unique path, and exists for readers once it is registered."""

    def __init__(self, lake: OpenLake) -> None:
        self._lake = lake

    def list(self, table: str | None = None, *, retired: bool = False, after: int = 0, limit: int = MAX_LIMIT) -> Rows[FileRow]:
        """List the live files in the order in which they were added.

        Args:
            table: The table, as `database.name`; None for every table.
            retired: Also list the files that wait for their deletion.
            after: The id of the last file of the page before.
            limit: The maximum number of rows to return.

        """
        return admin.list_files(self._lake.registry, table, retired=retired, after=after, limit=limit)

    def plan(self, table: str, *, ranges: Sequence[ColumnRange] = (), as_of: int | Time | None = None) -> Plan:
        """List the files that may hold rows in the ranges. No file is opened and Spark is not needed.

        Args:
            table: The table, as `database.name`.
            ranges: Ranges of columns; a file is planned when its statistics admit all of them.
            as_of: A snapshot id, a journal number or a time; default now.

        """
        return plan_at(self._lake.registry, TableName.parse(table), ranges=ranges, as_of=as_of)

    def footer(self, path: str, *, fallback: bool = False) -> FileMetaData:
        """Load the Parquet footer of a registered file from the registry.

        Args:
            path: The path of the file.
            fallback: Read the file itself when its footer is missing or damaged in the registry; by default that is an error.

        """
        lake = self._lake
        canonical = lake.storage.canonical(path)
        if fallback:
            return lake._footers.load(canonical)
        return load_partition_metadata(lake.registry, canonical, cache=lake._cache)

    def why(self, path: str) -> admin.FileHistory:
        """Return all recorded events of a path, from the intent to its deletion, oldest first. Nothing is changed.

        Args:
            path: The path of the file, registered or not.

        """
        return admin.why(self._lake.registry, self._lake.storage, path)

    def register(
        self,
        table: str,
        paths: Sequence[str],
        *,
        insert_begin: Time | None = None,
        insert_end: Time | None = None,
        instance: str = GLOBAL_INSTANCE,
        replacing: AbstractSet[int] = frozenset(),
        batch: tuple[str, int] | None = None,
        adopt: bool = False,
        verify: str = Verify.FOOTER,
        progress: Callable[[int, int], None] | None = None,
    ) -> Published:
        """Publish Parquet files that other programs wrote into the warehouse. If one file is refused, none is registered.

        Footers are parsed in a disposable process, with limits on memory and time.

        Args:
            table: The table, as `database.name`.
            paths: The files, where they are in the warehouse.
            insert_begin: The begin of the slice that the files are; default a slot of their own.
            insert_end: The end of that slice.
            instance: The instance that the files belong to.
            replacing: Ids of partitions that the files replace.
            batch: `(app_id, batch_id)`; the same batch is registered once.
            adopt: Accept files without field ids, by their column names.
            verify: `"footer"`, or `"pages"` to decode every page of every file first.
            progress: Called with the number of files done and of all files.

        """
        registry, storage = self._lake.registry, self._lake.storage
        return register.register_files(
            registry, storage, require_table(registry, TableName.parse(table)), paths, insert_range=TimeRange.maybe(insert_begin, insert_end),
            instance=instance, replacing=replacing, batch=batch, adopt=adopt, verify=verify, progress=progress,
        )  # fmt: skip

    def register_json(
        self, table: str, paths: Sequence[str], *, instance: str = GLOBAL_INSTANCE, batch: tuple[str, int] | None = None
    ) -> Published:
        """Publish JSON lines that other programs wrote into the warehouse. If one line does not fit the table, none is registered.

        Spark reads every line once. Each file must hold rows of one partition only.

        Args:
            table: The table, as `database.name`.
            paths: The files, where they are in the warehouse.
            instance: The instance that the rows belong to.
            batch: `(app_id, batch_id)`; the same batch is registered once.
        """
        from lakebed.pipeline.write.json import register_json_files

        return register_json_files(self._lake._context, table, paths, instance=instance, batch=batch)

    def recover(self) -> Sequence[str]:
        """Delete the files of writers that died before they published; return the ids of their operations."""
        return admin.recover_operations(self._lake.registry, self._lake.storage)

    def sweep_orphans(
        self,
        *,
        older_than: timedelta | str = admin.DEFAULT_AGE,
        dry_run: bool = True,
        actor: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> admin.Sweep:
        """Find files in the warehouse that no table, queue, open operation or snapshot references, and queue them for deletion.

        Args:
            older_than: Skip younger files.
            dry_run: Only list the files. The default; pass False to queue them.
            actor: Who is recorded in the audit log; default `user@host`.
            progress: Called with the number of files seen so far.

        """
        registry, storage = self._lake.registry, self._lake.storage
        return admin.sweep_orphans(
            registry, storage, find_needed=partial(find_needed, registry, storage), older_than=older_than, dry_run=dry_run, actor=actor,
            progress=progress,
        )  # fmt: skip

    def list_left_out(self, table: str | None = None, *, after: str = "", limit: int = MAX_LIMIT) -> Rows[LeftOutFile]:
        """List the files that an import or an adoption did not register. No check, sweep or repair treats them as orphans.

        Args:
            table: The table, as `database.name`; None for every table.
            after: The path of the last file of the page before.
            limit: The maximum number of rows to return.

        """
        return admin.list_left_out_files(self._lake.registry, table, after=after, limit=limit)

    def forget_left_out(self, paths: Sequence[str], *, dry_run: bool = True, actor: str | None = None) -> admin.Forgotten:
        """Remove files from the record of those left out; a later sweep may delete them.

        Args:
            paths: The files.
            dry_run: Only list the files. The default; pass False to remove them from the record.
            actor: Who is recorded in the audit log; default `user@host`.

        """
        return admin.forget_left_out_files(self._lake.registry, self._lake.storage, paths, dry_run=dry_run, actor=actor)


def find_needed(registry: Registry, storage: Storage) -> Needed:
    """The files that Iceberg's metadata references; its library is imported only if orphans are considered."""
    from lakebed.iceberg.upkeep.reachable import find_needed

    return find_needed(registry, storage)
