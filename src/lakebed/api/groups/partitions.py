"""`lake.partitions`: merge partitions, and retire the old ones. The other calls on partitions are on the lake itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed import admin
from lakebed.api.unknown_options import refuse_unknown_options
from lakebed.core.names import GLOBAL_INSTANCE
from lakebed.core.tables.compaction import TARGET_BYTES
from lakebed.core.times import TimeRange

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from lakebed.api.open_lake import OpenLake
    from lakebed.compaction import RunPlan
    from lakebed.core.times import Time
    from lakebed.pipeline.views.merge import MergeResult


@refuse_unknown_options
class Partitions:
    """A partition is one slice of insert time of one table and instance, written under one schema."""

    def __init__(self, lake: OpenLake) -> None:
        self._lake = lake

    def merge(
        self,
        table: str,
        *,
        insert_begin: Time | None = None,
        insert_end: Time | None = None,
        instance: str | None = GLOBAL_INSTANCE,
        window: str | int | timedelta | None = None,
        target_bytes: int = TARGET_BYTES,
        progress: Callable[[int, int], None] | None = None,
    ) -> MergeResult:
        """Merge runs of adjacent partitions into one each, inside the table's merge window. Views over the table stay fresh.

        Args:
            table: The table or view set, as `database.name`.
            insert_begin: Merge only partitions whose insert time is at or after this.
            insert_end: Merge only partitions whose insert time is before this.
            instance: The instance to merge; None for all of them.
            window: A shorter window than the table's, such as `"6h"`.
            target_bytes: The size of file to aim for.
            progress: Called with the number of runs done and of all runs.

        """
        from lakebed.pipeline.views.merge import merge

        return merge(
            self._lake._context, table, insert_begin=insert_begin, insert_end=insert_end, instance=instance, window=window,
            target_bytes=target_bytes, progress=progress,
        )  # fmt: skip

    def plan_merge(
        self,
        table: str,
        *,
        insert_begin: Time | None = None,
        insert_end: Time | None = None,
        instance: str | None = GLOBAL_INSTANCE,
        window: str | int | timedelta | None = None,
        target_bytes: int = TARGET_BYTES,
    ) -> Sequence[RunPlan]:
        """Return the runs of partitions that `merge` would merge, from the registry alone.

        Args:
            table: The table or view set, as `database.name`.
            insert_begin: Merge only partitions whose insert time is at or after this.
            insert_end: Merge only partitions whose insert time is before this.
            instance: The instance to merge; None for all of them.
            window: A shorter window than the table's, such as `"6h"`.
            target_bytes: The size of file to aim for.
        """
        from lakebed.pipeline.views.merge import plan_merge

        return plan_merge(
            self._lake._context, table, inserts=TimeRange.open_ended(insert_begin, insert_end), instance=instance, window=window,
            target_bytes=target_bytes,
        )  # fmt: skip

    def retire_expired(
        self,
        table: str | None = None,
        *,
        retention: timedelta | str,
        dry_run: bool = True,
        atomic: bool = False,
        max_partitions: int = admin.MAX_PARTITIONS,
        grace_s: float = admin.DEFAULT_GRACE_S,
        actor: str | None = None,
    ) -> admin.Retirement:
        """Retire every partition whose last event (or, without an event time, whose slice) is older than `retention`.

        Args:
            table: The table, as `database.name`; None for every table.
            retention: The age, such as `"90d"`.
            dry_run: Only list what would be retired. The default; pass False to retire.
            atomic: Retire all in one transaction or none; by default in bounded transactions, one outcome per partition.
            max_partitions: Refuse to retire more partitions than this.
            grace_s: How many seconds the files stay readable before they may be deleted.
            actor: Who is recorded in the audit log; default `user@host`.

        """
        return admin.retire_expired_partitions(
            self._lake.registry, table, retention=retention, dry_run=dry_run, atomic=atomic, max_partitions=max_partitions,
            grace_s=grace_s, actor=actor,
        )  # fmt: skip
