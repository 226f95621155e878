"""Calls that keep a lake in order: snapshots, compaction, the service, check and repair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.admin import DEFAULT_AGE, MAX_PARTITIONS
from lakebed.api.open_lake import OpenLake
from lakebed.api.unknown_options import refuse_unknown_options
from lakebed.core.names import TableName
from lakebed.core.tables.compaction import TARGET_BYTES
from lakebed.core.tables.snapshots import Trigger
from lakebed.registry.snapshots.waiting import take_snapshot, wait_until_published

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from datetime import timedelta

    from lakebed.astha import AsthaOptions
    from lakebed.check import CheckReport
    from lakebed.compaction import CompactionResult
    from lakebed.components.compactor import CompactorOptions
    from lakebed.repair import Repair, RepairResult
    from lakebed.service.service import Service, Upkeep


@refuse_unknown_options
class MaintenanceCalls(OpenLake):
    """None of these changes what a reader sees."""

    def snapshot(self, table: str, *, timeout_s: float | None = None) -> int | None:
        """Commit pending files and wait until Iceberg has them; return the id of the current snapshot, None if the table never had a file.

        Args:
            table: The table, as `database.name`.
            timeout_s: How long to wait; default the lake's `commit_timeout_s`.

        """
        return take_snapshot(self.registry, self._commits, TableName.parse(table), trigger=Trigger.MANUAL, timeout_s=timeout_s)

    def compact(
        self,
        table: str,
        *,
        dry_run: bool = False,
        target_bytes: int = TARGET_BYTES,
        partition: str | None = None,
        instance: str | None = None,
        max_files: int | None = None,
        max_bytes: int | None = None,
        hot_s: float = 0.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> CompactionResult:
        """Merge small files into larger ones with the same rows. The plan gives the reason for each group of files.

        Args:
            table: The table, as `database.name`.
            dry_run: Only return the plan.
            target_bytes: The size of file to aim for.
            partition: Only this partition path.
            instance: Only this instance.
            max_files: Stop after this many files.
            max_bytes: Stop after this many bytes.
            hot_s: Skip slices that were written within this many seconds.
            progress: Called with the number of runs done and of all runs.

        """
        from lakebed.compaction import CompactionOptions, Control, compact

        options = CompactionOptions(
            target_bytes=target_bytes, partition=partition, instance=instance, max_files=max_files, max_bytes=max_bytes, hot_s=hot_s
        )
        control = Control(progress=progress)
        return compact(self.registry, self.storage, table, options, engines=self._engines, control=control, dry_run=dry_run)

    def service(
        self,
        *,
        options: AsthaOptions | None = None,
        compactor_options: CompactorOptions | None = None,
        maintenance: bool = True,
    ) -> AbstractContextManager[Service]:
        """Run Astha, all components and maintenance in this process until the block ends: `with lake.service():`.

        Args:
            options: How events are delivered.
            compactor_options: When and how much the compactor works.
            maintenance: Also run the tasks that are due by the schedule, and runs that were requested.

        """
        return self._embedded.serve(
            self._engines, self._upkeep, options=options, compactor_options=compactor_options, maintenance=maintenance
        )  # fmt: skip

    def drain(self, timeout_s: float = 30.0) -> bool:
        """Wait until everything committed so far has reached every component and Iceberg; return whether it did.

        Args:
            timeout_s: How long to wait.

        """
        service = self._embedded.require_service() if self._settings.service == "auto" else self._embedded.service
        if service is not None:
            return service.drain(timeout_s)
        return wait_until_published(self.registry, timeout_s=timeout_s)

    def check(self, *, deep: bool = False, pages: bool = False) -> CheckReport:
        """Compare registry, files, footers, journal and Iceberg with each other. The checker shares no code with the writers.

        Args:
            deep: Also read every file whole and compare its checksum.
            pages: Also decode every page of every file.

        """
        from lakebed.check import check

        return check(self.registry, self.storage, deep=deep, pages=pages)

    def repair(
        self,
        table: str | None = None,
        *,
        how: Repair | None = None,
        dry_run: bool = True,
        deep: bool = False,
        pages: bool = False,
        retire_damaged: bool = False,
        give_up_newer: bool = False,
        max_partitions: int = MAX_PARTITIONS,
        orphans_older_than: timedelta = DEFAULT_AGE,
        actor: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> RepairResult:
        """Fix what `check` reports, of one table or of the whole lake.

        Args:
            table: Only this table, as `database.name`.
            how: Repair the Iceberg side of the table by `"refresh"`, `"rebuild"`, `"adopt_foreign"` or `"discard_foreign"`.
            dry_run: Only list the repairs. The default; pass False to apply them.
            deep: Read every file whole before the decision.
            pages: Decode every page of every file before the decision.
            retire_damaged: Retire partitions whose files are lost or changed.
            give_up_newer: Give up files that are unknown to a registry restored from an older backup.
            max_partitions: Refuse to retire more partitions than this.
            orphans_older_than: Skip younger unknown files.
            actor: Who is recorded in the audit log; default `user@host`.
            progress: Called by each check with its progress.

        """
        from lakebed.repair import repair

        return repair(
            self.registry, self.storage, table, how=how, dry_run=dry_run, deep=deep, pages=pages, retire_damaged=retire_damaged,
            give_up_newer=give_up_newer, max_partitions=max_partitions, orphans_older_than=orphans_older_than, actor=actor,
            progress=progress,
        )  # fmt: skip

    def _upkeep(self) -> Upkeep:
        from lakebed.service.service import Upkeep

        settings = self._settings
        return Upkeep(context=lambda: self._context, schedule=settings.schedule, queues_orphans=settings.sweep == "queue")
