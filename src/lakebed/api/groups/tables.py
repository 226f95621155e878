"""`lake.tables`: list, drop and configure tables; make tables of existing files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never

from lakebed import admin
from lakebed.api.unknown_options import refuse_unknown_options
from lakebed.core.files import Verify
from lakebed.core.names import GLOBAL_INSTANCE, TableName
from lakebed.core.results import Rows
from lakebed.core.rows import Tables as TableRow
from lakebed.registry.tables import lake_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta
    from types import EllipsisType

    from lakebed.adopt import Adoption
    from lakebed.api.open_lake import OpenLake
    from lakebed.legacy import LegacyImport


@refuse_unknown_options
class Tables:
    """Whole tables. `lake.create_table` creates one, `lake.table` looks one up."""

    def __init__(self, lake: OpenLake) -> None:
        self._lake = lake

    def list(self) -> Rows[TableRow]:
        """List every table that was not dropped, with the counters of its visible files."""
        return Rows(TableRow, lake_tables.list_tables(self._lake.registry))

    def configure(
        self,
        table: str,
        *,
        snapshot: Mapping[str, Any] | EllipsisType | None = ...,
        retention: Mapping[str, Any] | EllipsisType | None = ...,
        retire_after: str | float | timedelta | EllipsisType | None = ...,
        merge_window_us: str | float | timedelta | EllipsisType | None = ...,
        properties: Mapping[str, Any] | EllipsisType | None = ...,
        **unknown: Never,
    ) -> None:
        """Change settings of a table. They take effect without a restart; None restores the default of a setting.

        Args:
            table: The table, as `database.name`.
            snapshot: When pending files become a snapshot, such as `{"trigger": "time", "interval_s": 60}`.
            retention: Which snapshots are kept, such as `{"all_s": 3600, "daily_s": 2592000}`.
            retire_after: How long after their last event partitions are kept, such as `"90d"`.
            merge_window_us: The longest range that merging turns into one partition, such as `"7d"`; default one UTC day.
            properties: Your own keys with any JSON value. None as a value removes the key, None for all of them removes them all.
            unknown: Not accepted: an unknown setting is refused, with the nearest known one.

        """
        given: dict[str, Any] = {
            "snapshot": snapshot, "retention": retention, "retire_after": retire_after, "merge_window_us": merge_window_us,
            "properties": properties, **unknown,
        }  # fmt: skip
        admin.configure_table(self._lake.registry, table, **{key: value for key, value in given.items() if value is not ...})

    def drop(
        self,
        table: str,
        *,
        dry_run: bool = True,
        max_partitions: int = admin.MAX_PARTITIONS,
        grace_s: float = admin.DEFAULT_GRACE_S,
        actor: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> admin.Drop:
        """Hide the table from every reader and engine and retire all its partitions. The name is free at once.

        A table that a view set reads is refused.

        Args:
            table: The table, as `database.name`.
            dry_run: Only return what would be dropped. The default; pass False to drop.
            max_partitions: Refuse to retire more partitions than this.
            grace_s: How many seconds the files stay readable before they may be deleted.
            actor: Who is recorded in the audit log; default `user@host`.
            progress: Called with the number of retired partitions and of all partitions.

        """
        from lakebed.iceberg.upkeep.dropping import forget_table

        registry, storage = self._lake.registry, self._lake.storage
        done = admin.drop_table(
            registry, table, dry_run=dry_run, max_partitions=max_partitions, grace_s=grace_s, actor=actor, progress=progress
        )
        if not dry_run:
            forget_table(registry, storage, TableName.parse(done.table), done.table_id)
        return done

    def adopt(
        self,
        table: str,
        directory: str,
        *,
        event_time: str | None = None,
        partition_by: Sequence[str] | None = None,
        sort_by: Sequence[str] = (),
        path_types: Mapping[str, str] | None = None,
        instance: str = GLOBAL_INSTANCE,
        evolve: bool = False,
        rewrite: bool = False,
        copy: bool = False,
        skip_refused: bool = False,
        verify: str = Verify.FOOTER,
        dry_run: bool = False,
        actor: str | None = None,
        progress: Callable[[int, int], None] | None = None,
        batch_files: int = 500,
    ) -> Adoption:
        """Make a table of a directory of Parquet files, or add its files to an existing table. A repeated call adds what is new.

        Args:
            table: The table, as `database.name`.
            directory: The directory; Hive-style paths such as `day=2026-03-01/` become columns.
            event_time: The column that holds the event time of a new table.
            partition_by: Partition transforms of a new table; default the columns of its paths.
            sort_by: Sort columns of a new table.
            path_types: Another type for a column of the paths, or `"ignore"`.
            instance: The instance that the files belong to.
            evolve: Add columns that an existing table lacks.
            rewrite: Rewrite files whose types or field ids prevent their registration.
            copy: Copy files into the warehouse; by default they are hard links where possible.
            skip_refused: Register the other files when some are refused.
            verify: `"footer"`, or `"pages"` to decode every page of every file first.
            dry_run: Only return what would be done.
            actor: Who is recorded in the audit log; default `user@host`.
            progress: Called with the number of files done and of all files.
            batch_files: How many files become visible in one transaction.

        """
        from lakebed.adopt import AdoptRequest, adopt

        request = AdoptRequest(
            event_time=event_time, partition_by=partition_by, sort_by=sort_by, path_types=path_types, instance=instance, evolve=evolve,
            rewrite=rewrite, copy=copy, skip_refused=skip_refused, verify=verify, dry_run=dry_run, actor=actor, progress=progress,
            batch_files=batch_files,
        )  # fmt: skip
        return adopt(self._lake.registry, self._lake.storage, table, directory, request)

    def import_legacy(
        self,
        url: str,
        *,
        root: str | None = None,
        database: str = "legacy",
        names: Mapping[str, str] | None = None,
        view_sets: Sequence[str] = (),
        event_times: Mapping[str, str] | None = None,
        serving: Mapping[str, str] | None = None,
        copy: bool = False,
        dry_run: bool = True,
        actor: str | None = None,
        progress: Callable[[int, int], None] | None = None,
        batch_partitions: int = 500,
    ) -> LegacyImport:
        """Import the view sets of an older lake from its PostgreSQL registry. A repeated call finishes an interrupted one.

        Args:
            url: The address of the older registry.
            root: Where the paths of the older registry begin; default the warehouse.
            database: The database of the imported tables.
            names: Table names by view set.
            view_sets: Import only these.
            event_times: By view set the column that holds the event time.
            serving: By view set the schema hash that readers see; default the newest.
            copy: Copy files; by default they are hard links where possible.
            dry_run: Only return what would be imported. The default; pass False to import.
            actor: Who is recorded in the audit log; default `user@host`.
            progress: Called with the number of partitions done and of all partitions.
            batch_partitions: How many partitions are imported in one transaction.

        """
        from lakebed.legacy import ImportRequest, import_legacy

        request = ImportRequest(
            root=root, database=database, names=names, view_sets=view_sets, event_times=event_times, serving=serving, copy=copy,
            dry_run=dry_run, actor=actor, progress=progress, batch_partitions=batch_partitions,
        )  # fmt: skip
        return import_legacy(self._lake.registry, self._lake.storage, url, request)
