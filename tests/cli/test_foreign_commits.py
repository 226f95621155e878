"""A foreign commit under a running service: waiting calls fail at once with the reason, status and check name it, a repair ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import ORDERS, write_partition
from ice import open_stranger
from lakebed.core.errors import ForeignCommitError
from lakebed.registry.snapshots.waiting import wait_for_group

if TYPE_CHECKING:
    from shells import Shell

    from lakebed.lake import Lake

NAME = str(ORDERS)
LONG_S = 3600.0  # who waited that long would fail by the test's own limit


def _commit_theirs(lake: Lake) -> int:
    """Another program adds the table's own rows again; its snapshot."""
    stranger = open_stranger(lake)
    theirs = stranger.load_table(NAME)
    theirs.append(theirs.scan().to_arrow())
    stranger.engine.dispose()
    assert theirs.metadata.current_snapshot_id is not None
    return theirs.metadata.current_snapshot_id


@pytest.mark.timeout(120)
def test_a_stopped_table_says_so_everywhere_and_goes_on_after_the_repair(shell: Shell) -> None:
    with shell.open() as lake, lake.service():
        lake.snapshot(NAME)
        foreign = _commit_theirs(lake)
        write_partition(lake, 7)

        with pytest.raises(ForeignCommitError, match="discard_foreign"):
            lake.snapshot(NAME, timeout_s=LONG_S)
        with shell.open() as other:  # a process that does not publish
            table = other.table(NAME)
            with pytest.raises(ForeignCommitError, match=str(foreign)):
                wait_for_group(other.registry, table.table_id, table.row.last_group, timeout_s=LONG_S)
        assert [finding.rule for finding in lake.check().findings] == ["iceberg_foreign"]
        (reason,) = (lane["reason"] for lane in shell.json("astha", "status")["lanes"] if lane["component"] == "iceberg_updater")
        assert reason.startswith("foreign_commit: ")
        write_partition(lake, 8)

        lake.repair(NAME, how="discard_foreign", dry_run=False)

        assert lake.snapshot(NAME) not in {None, foreign}
        assert next(row.rows for row in lake.snapshots(NAME) if row.is_current) == lake.table(NAME).row.row_count
        write_partition(lake, 9)
        lake.snapshot(NAME)
        assert lake.check().clean
