"""`lake.snapshots`: the Iceberg snapshots of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed import admin
from lakebed.api.unknown_options import refuse_unknown_options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from lakebed.admin import Expiry, Rollback, SnapshotRow
    from lakebed.api.open_lake import OpenLake
    from lakebed.core.results import Rows


@refuse_unknown_options
class Snapshots:
    """`lake.snapshots("db.t")` lists them; `lake.snapshot("db.t")` takes one."""

    def __init__(self, lake: OpenLake) -> None:
        self._lake = lake

    def __call__(self, table: str, *, expired: bool = False) -> Rows[SnapshotRow]:
        """The same as `list`."""
        return self.list(table, expired=expired)

    def list(self, table: str, *, expired: bool = False) -> Rows[SnapshotRow]:
        """List the kept snapshots of a table, oldest first.

        Args:
            table: The table, as `database.name`.
            expired: Also list the snapshots that were expired.

        """
        return admin.list_snapshots(self._lake.registry, table, expired=expired)

    def tag(self, table: str, tag: str, snapshot_id: int, *, actor: str | None = None) -> None:
        """Keep a snapshot under a name until `untag`. The Iceberg table gets the tag with its next commit.

        Args:
            table: The table, as `database.name`.
            tag: The name of the tag.
            snapshot_id: The snapshot to keep.
            actor: Who is recorded in the audit log; default `user@host`.

        """
        admin.tag_snapshot(self._lake.registry, table, tag, snapshot_id, actor=actor)

    def untag(self, table: str, tag: str, *, actor: str | None = None) -> None:
        """Remove a tag. Its snapshot then expires by the table's retention.

        Args:
            table: The table, as `database.name`.
            tag: The name of the tag.
            actor: Who is recorded in the audit log; default `user@host`.

        """
        admin.untag_snapshot(self._lake.registry, table, tag, actor=actor)

    def expire(
        self,
        table: str,
        *,
        snapshot_ids: Sequence[int] = (),
        older_than: timedelta | str | None = None,
        dry_run: bool = True,
        actor: str | None = None,
    ) -> Expiry:
        """Expire the named snapshots, those older than an age, or (if neither is given) those that the table's retention no longer keeps.

        Args:
            table: The table, as `database.name`.
            snapshot_ids: Exactly these snapshots.
            older_than: Every snapshot older than this, such as `"7d"`; tags and the current snapshot stay.
            dry_run: Only list what would be expired. The default; pass False to expire.
            actor: Who is recorded in the audit log; default `user@host`.

        """
        registry = self._lake.registry
        return admin.expire_snapshots(registry, table, snapshot_ids=snapshot_ids, older_than=older_than, dry_run=dry_run, actor=actor)

    def rollback(self, table: str, snapshot_id: int, *, dry_run: bool = False, actor: str | None = None) -> Rollback:
        """Replace the rows of a plain table by those of a kept snapshot, and its columns by those of that time, in one transaction.

        The files come back as copies in a new group. Columns that were added later stay, and are NULL.

        Args:
            table: The table, as `database.name`.
            snapshot_id: The snapshot to return to.
            dry_run: Only return what the table would be.
            actor: Who is recorded in the audit log; default `user@host`.

        """
        return admin.roll_back_to(self._lake.registry, self._lake.storage, table, snapshot_id, dry_run=dry_run, actor=actor)
