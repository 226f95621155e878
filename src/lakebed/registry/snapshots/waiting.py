"""Wait until Iceberg has reached a group, from any process."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from lakebed.core.errors import CommitTimeoutError, RegistryLockedError, RegistryUnavailableError, StorageFullError, TableNotFoundError
from lakebed.registry.journal.notifications import SWEEP_S, open_hints
from lakebed.registry.schema.predicates import is_pending, is_visible
from lakebed.registry.snapshots.foreign import require_not_stopped
from lakebed.registry.tables.groups import find_group_under_way, require_group, seal_table
from lakebed.registry.tables.lake_tables import require_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.core.names import TableName
    from lakebed.core.tables.snapshots import Trigger
    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.journal.notifications import Hints
    from lakebed.registry.registry import Registry

    WaitForGroup = Callable[[int, int, float], int | None]  # of a table, no longer than the seconds given

T = TypeVar("T")
logger = logging.getLogger(__name__)

_AGAIN_S = 0.2  # between two questions to a registry that does not answer
_COMMITTED = "SELECT committed_group, current_snapshot_id, database, name FROM tables WHERE id = :id"
_BEHIND = f"""SELECT 1 FROM tables t WHERE t.dropped_at IS NULL AND t.state = 'ok' AND (t.committed_group < t.last_group OR EXISTS (
SELECT 1 FROM table_files f JOIN table_metadata v ON v.table_id = f.table_id AND v.schema_hash = f.schema_hash
AND {is_visible("v.")} WHERE f.table_id = t.id AND {is_pending("f.")})) LIMIT 1"""
_HOLDER = "SELECT owner FROM leases WHERE name = 'astha' AND expires_at > :now"


def find_committed(reader: Queryable, table_id: int) -> tuple[int, int | None]:
    """The committed group and the snapshot that holds it."""
    rows = reader.query(_COMMITTED, {"id": table_id})
    if not rows:
        raise TableNotFoundError(f"with id {table_id}")
    return rows[0][0], rows[0][1]


def wait_for_group(registry: Registry, table_id: int, group: int, *, timeout_s: float) -> int | None:
    """The snapshot that holds `group` or a later one; a typed timeout names who publishes. A table that is stopped raises why, at once."""
    find = partial(find_committed, registry, table_id)
    with closing(open_hints(registry)) as hints:

        def pause(left_s: float) -> None:
            await_change(hints, table_id, until=time.monotonic() + min(left_s, SWEEP_S))

        return poll_group(registry, table_id, group, timeout_s=timeout_s, find=find, pause=pause)


def poll_group(
    registry: Registry,
    table_id: int,
    group: int,
    *,
    timeout_s: float,
    find: Callable[[], tuple[int, int | None]],
    pause: Callable[[float], object],
) -> int | None:
    """`find` answers as `find_committed` does; `pause` gets the seconds that are left, and returns when it may be worth asking again."""
    deadline = time.monotonic() + timeout_s
    while True:
        committed, snapshot_id = find()
        if committed >= group:
            return snapshot_id
        require_not_stopped(registry, table_id)
        left = deadline - time.monotonic()
        if left <= 0:
            raise timed_out(registry, table_id, group, timeout_s=timeout_s)
        pause(left)


def await_change(hints: Hints, table_id: int, *, until: float) -> None:
    """Returns at a hint that may concern the table, those of others cost it no query, and at `until` in any case."""
    while (left := until - time.monotonic()) > 0:
        hint = hints.wait(left)
        if hint is None or hint.concerns(table_id):
            return


def wait_until_published(registry: Registry, *, timeout_s: float) -> bool:
    """Whether Iceberg reached the newest group of every healthy table, with nothing pending, whichever process publishes."""
    deadline = time.monotonic() + timeout_s
    with closing(open_hints(registry)) as hints:
        while registry.query(_BEHIND):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            hints.wait(min(left, SWEEP_S))
    return True


def timed_out(registry: Registry, table_id: int, group: int, *, timeout_s: float) -> CommitTimeoutError:
    committed, _, database, name = registry.query(_COMMITTED, {"id": table_id})[0]
    holders = registry.query(_HOLDER, {"now": registry.now()})
    holder = holders[0][0] if holders else None
    return CommitTimeoutError(f"{database}.{name}", group=group, committed=committed, timeout_s=timeout_s, holder=holder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The group of some files, and the current snapshot when Iceberg had reached it."""

    group: int
    snapshot_id: int | None


class Commits:
    """How a writer waits for Iceberg after it has written, whichever process publishes: by the registry, unless `wait_for_group` is given."""

    def __init__(self, registry: Registry, *, timeout_s: float = 60.0, wait_for_group: WaitForGroup | None = None) -> None:
        self._registry, self._timeout_s = registry, timeout_s
        self._wait_for_group = wait_for_group or partial(_wait_by_registry, registry)

    def wait(self, table_id: int, file_ids: range, *, timeout_s: float | None = None) -> Committed | None:
        """Until the files are in a snapshot; None when they never enter one as they are (no file, JSON)."""
        return wait_for_files(self._registry, self, table_id, file_ids, timeout_s=self._limit(timeout_s))

    def wait_for_group(self, table_id: int, group: int, *, timeout_s: float | None = None) -> int | None:
        """Until Iceberg has reached the group; the snapshot that is current then."""
        return outlast(partial(self._wait_for_group, table_id, group), table_id, timeout_s=self._limit(timeout_s))

    def _limit(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else timeout_s


def _wait_by_registry(registry: Registry, table_id: int, group: int, left_s: float) -> int | None:
    return wait_for_group(registry, table_id, group, timeout_s=left_s)


def take_snapshot(registry: Registry, commits: Commits, name: TableName, *, trigger: Trigger, timeout_s: float | None = None) -> int | None:
    """Seal what is pending and wait until Iceberg has it; the current snapshot's id, None for a table that never had a file."""
    table_id = require_table(registry, name).table_id
    seal_table(registry, table_id, trigger=trigger)
    group = require_table(registry, name).row.last_group
    return commits.wait_for_group(table_id, group, timeout_s=timeout_s) if group else None


def wait_for_files(registry: Registry, commits: Commits, table_id: int, file_ids: range, *, timeout_s: float) -> Committed | None:
    """Until a snapshot has these registered files; None when they never enter one as they are.

    While a commit of the table is under way its end is awaited first: all files that came meanwhile then share one group, and the commit after it.
    """

    def wait(left_s: float) -> Committed | None:
        ends_at = time.monotonic() + left_s
        if (under_way := find_group_under_way(registry, table_id, file_ids)) is not None:
            commits.wait_for_group(table_id, under_way, timeout_s=left_s)
        if (group := require_group(registry, table_id, file_ids)) is None:
            return None
        return Committed(group=group, snapshot_id=commits.wait_for_group(table_id, group, timeout_s=max(0.0, ends_at - time.monotonic())))

    return outlast(wait, table_id, timeout_s=timeout_s)


def outlast(wait: Callable[[float], T], table_id: int, *, timeout_s: float) -> T:
    """`wait(seconds left)`, again while the registry does not answer.

    Its own error would be taken for that of the insert, whose rows are registered, and a repeated insert would write them twice.
    """
    ends_at = time.monotonic() + timeout_s
    while True:
        try:
            return wait(max(0.0, ends_at - time.monotonic()))
        except (RegistryUnavailableError, RegistryLockedError, StorageFullError) as exc:
            if time.monotonic() + _AGAIN_S >= ends_at:
                raise CommitTimeoutError(f"table {table_id}", group=None, committed=None, timeout_s=timeout_s, reason=exc.code) from exc
            logger.info("waiting for Iceberg goes on: %s", exc, extra={"action": "retry", "table_id": table_id, "code": exc.code})
            time.sleep(_AGAIN_S)
