"""The administrative calls of the specification, which are the same in Spark SQL and on the command line."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lakebed import admin
from lakebed.admin import DEFAULT_GRACE_S, MAX_LIMIT, MAX_PARTITIONS
from lakebed.api.groups.files import find_needed
from lakebed.api.open_lake import OpenLake
from lakebed.api.unknown_options import refuse_unknown_options
from lakebed.core.names import GLOBAL_INSTANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakebed.core.results import Rows
    from lakebed.core.times import Time
    from lakebed.registry.queries.listing import IncompatibleRow, PartitionRow, ViewSetRow


@refuse_unknown_options
class Administration(OpenLake):
    """Retired files stay readable for a grace period, a day by default."""

    def list_partitions(
        self,
        table: str | None = None,
        *,
        instance: str | None = None,
        schema_hash: str | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        insert_begin: Time | None = None,
        insert_end: Time | None = None,
        after: int = 0,
        limit: int = MAX_LIMIT,
    ) -> Rows[PartitionRow]:
        """List partitions, ordered by insert time.

        Args:
            table: The table, as `database.name`; None for every table.
            instance: Only this instance.
            schema_hash: Only partitions written under this schema.
            begin: Only partitions with event times at or after this.
            end: Only partitions with event times before this.
            insert_begin: Only partitions whose insert time is at or after this.
            insert_end: Only partitions whose insert time is before this.
            after: The id of the last partition of the page before.
            limit: The maximum number of rows to return.

        """
        return admin.list_partitions(
            self.registry, table, instance=instance, schema_hash=schema_hash, begin=begin, end=end, insert_begin=insert_begin,
            insert_end=insert_end, after=after, limit=limit,
        )  # fmt: skip

    def list_view_sets(self) -> Rows[ViewSetRow]:
        """List the view sets, with the serving version and the staged one, if there is one."""
        return admin.list_view_sets(self.registry)

    def list_incompatible_partitions(self, table: str | None = None) -> Rows[IncompatibleRow]:
        """List the partitions, including empty ones, that no reader can see any more, with the reason.

        Args:
            table: The table, as `database.name`; None for every table.

        """
        return admin.list_incompatible_partitions(self.registry, table)

    def retire_partition_by_metadata(
        self,
        table: str,
        instance: str = GLOBAL_INSTANCE,
        *,
        insert_begin: Time,
        insert_end: Time,
        schema_hash: str | None = None,
        grace_s: float = DEFAULT_GRACE_S,
        actor: str | None = None,
    ) -> admin.Retirement:
        """Retire the one partition with exactly this key, empty or not.

        Args:
            table: The table, as `database.name`.
            instance: The instance of the partition.
            insert_begin: The begin of its slice.
            insert_end: The end of its slice.
            schema_hash: Its schema. If several schemas have this slice and none is given, nothing is retired (`ambiguous`).
            grace_s: How many seconds the files stay readable before they may be deleted.
            actor: Who is recorded in the audit log; default `user@host`.

        """
        return admin.retire_partition_by_metadata(
            self.registry, table, instance, insert_begin=insert_begin, insert_end=insert_end, schema_hash=schema_hash, grace_s=grace_s,
            actor=actor,
        )  # fmt: skip

    def retire_partition_by_file(self, path: str, *, grace_s: float = DEFAULT_GRACE_S, actor: str | None = None) -> admin.Retirement:
        """Deprecated: use `retire_partition_by_metadata`, which finds empty partitions too. Retire the partition that owns a file.

        Args:
            path: A file of the partition.
            grace_s: How many seconds the files stay readable before they may be deleted.
            actor: Who is recorded in the audit log; default `user@host`.

        """
        return admin.retire_partition_by_file(self.registry, self.storage, path, grace_s=grace_s, actor=actor, stacklevel=4)

    def retire_partitions(
        self,
        table: str,
        *,
        insert_begin: Time,
        insert_end: Time,
        instance: str | None = None,
        schema_hash: str | None = None,
        dry_run: bool = True,
        atomic: bool = False,
        max_partitions: int = MAX_PARTITIONS,
        grace_s: float = DEFAULT_GRACE_S,
        actor: str | None = None,
    ) -> admin.Retirement:
        """Retire every partition that is completely inside a range of insert time. Those that only overlap it are returned as `straddles`.

        Args:
            table: The table, as `database.name`.
            insert_begin: The begin of the range.
            insert_end: The end of the range, not included.
            instance: Only this instance.
            schema_hash: Only partitions written under this schema.
            dry_run: Only list what would be retired. The default; pass False to retire.
            atomic: Retire all in one transaction or none; by default in bounded transactions, one outcome per partition.
            max_partitions: Refuse to retire more partitions than this.
            grace_s: How many seconds the files stay readable before they may be deleted.
            actor: Who is recorded in the audit log; default `user@host`.

        """
        return admin.retire_partitions(
            self.registry, table, insert_begin=insert_begin, insert_end=insert_end, instance=instance, schema_hash=schema_hash,
            dry_run=dry_run, atomic=atomic, max_partitions=max_partitions, grace_s=grace_s, actor=actor,
        )  # fmt: skip

    def retire_incompatible_partitions(
        self,
        table: str | None = None,
        *,
        partition_ids: Sequence[int] | None = None,
        dry_run: bool = True,
        atomic: bool = False,
        max_partitions: int = MAX_PARTITIONS,
        grace_s: float = DEFAULT_GRACE_S,
        actor: str | None = None,
    ) -> admin.Retirement:
        """Retire the partitions that `list_incompatible_partitions` lists. Each is checked again inside the transaction.

        Args:
            table: The table, as `database.name`; None for every table.
            partition_ids: Only these; there is one outcome for each of them, in their order.
            dry_run: Only list what would be retired. The default; pass False to retire.
            atomic: Retire all in one transaction or none; by default in bounded transactions, one outcome per partition.
            max_partitions: Refuse to retire more partitions than this.
            grace_s: How many seconds the files stay readable before they may be deleted.
            actor: Who is recorded in the audit log; default `user@host`.

        """
        return admin.retire_incompatible_partitions(
            self.registry, table, partition_ids=partition_ids, dry_run=dry_run, atomic=atomic, max_partitions=max_partitions,
            grace_s=grace_s, actor=actor,
        )  # fmt: skip

    def delete_expired_temporary_files(
        self,
        *,
        batch_size: int = 1000,
        max_batches: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> admin.CleanUp:
        """Delete retired files that are past their grace period, under no reader's lease and in no kept snapshot.

        Args:
            batch_size: How many files are claimed at a time.
            max_batches: Stop after this many batches.
            progress: Called with the number of files deleted so far.

        """
        registry, storage = self.registry, self.storage
        needed = partial(find_needed, registry, storage)
        return admin.delete_expired_temporary_files(
            registry, storage, find_needed=needed, batch_size=batch_size, max_batches=max_batches, progress=progress
        )
