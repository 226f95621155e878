"""What made a snapshot is recorded with it: in the registry's row, in Iceberg's own summary, and in the list that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from builders import ORDERS, within
from lakebed.components.snapshotter import Snapshotter
from lakebed.core.tables.snapshots import Trigger
from lakebed.iceberg.snapshots import create_iceberg_snapshot
from lakebed.registry.tables.groups import require_group, seal_table
from lakebed.registry.tables.versions import set_properties

if TYPE_CHECKING:
    from ice import IceLake

NAME = str(ORDERS)


def _newest(ice: IceLake) -> str:
    """As the list has it, after a look that the registry's row and Iceberg's summary say the same."""
    newest = ice.lake.snapshots(NAME)[-1]
    summary = ice.static().snapshots()[-1].summary
    assert summary is not None
    assert summary["lakebed.trigger"] == newest.trigger
    assert ice.lake.check().clean
    return newest.trigger


@pytest.mark.parametrize(
    ("policy", "recorded"),
    [
        ({"trigger": "every_insert"}, "insert"),
        ({"trigger": "time", "interval_s": 0}, "time"),
        ({"trigger": "bytes", "bytes": 1}, "bytes"),
        ({"trigger": "rows", "rows": 1}, "rows"),
        ({"trigger": "files", "files": 1}, "files"),
    ],
)
def test_a_snapshot_records_the_trigger_of_its_table(ice: IceLake, policy: dict[str, Any], recorded: str) -> None:
    ice.create()
    within(ice.lake.registry, lambda tx: set_properties(tx, ORDERS, {"snapshot": policy}))
    ice.write(1)

    Snapshotter(ice.lake.registry).on_refresh(ice.table_id())
    ice.advance()

    assert _newest(ice) == recorded


def test_a_snapshot_that_somebody_asked_for_is_manual(ice: IceLake) -> None:
    ice.create()
    ice.write(1)

    create_iceberg_snapshot(ice.committer, ORDERS.database, ORDERS.name, [])

    assert _newest(ice) == "manual"


def test_an_insert_that_waits_is_the_trigger_where_the_policy_is_another(ice: IceLake) -> None:
    ice.create()
    within(ice.lake.registry, lambda tx: set_properties(tx, ORDERS, {"snapshot": {"trigger": "manual"}}))
    done = ice.write(1)

    require_group(ice.lake.registry, ice.table_id(), done.file_ids)
    ice.advance()

    assert _newest(ice) == "insert"


def test_a_change_with_a_group_of_its_own_records_its_kind(ice: IceLake) -> None:
    ice.create()
    first, *_ = [ice.write(number).partition_id for number in range(1, 5)]
    ice.seal()
    ice.advance()

    ice.retire(first)
    ice.advance()
    assert _newest(ice) == "retire"

    ice.lake.compact(NAME)
    ice.advance()
    assert _newest(ice) == "compact"


def test_groups_that_go_together_record_the_trigger_of_the_newest(ice: IceLake) -> None:
    ice.create()
    first = ice.write(1)
    ice.seal()
    ice.write(2)
    ice.retire(first.partition_id)
    seal_table(ice.lake.registry, ice.table_id(), trigger=Trigger.QUERY)

    ice.advance()

    assert _newest(ice) == "query"


def test_a_group_of_an_earlier_version_has_no_known_trigger(ice: IceLake) -> None:
    """As of a registry that was upgraded while a sealed group waited for its commit."""
    ice.create()
    ice.write(1)
    ice.seal()
    with ice.lake.registry.write() as tx:
        tx.run("DELETE FROM table_groups")

    ice.advance()

    assert _newest(ice) == "groups"


def test_a_commit_that_a_refresh_makes_to_restore_iceberg_is_a_repair(ice: IceLake) -> None:
    """A file row that Iceberg lost: the groups are the same as before."""
    ice.create()
    ice.insert(1)
    within(ice.lake.registry, lambda tx: set_properties(tx, ORDERS, {"snapshot": {"trigger": "manual"}}))
    done = ice.write(2)
    with ice.lake.registry.write() as tx:
        tx.run("UPDATE table_files SET added_group = 1 WHERE id = :id", {"id": done.first_file_id})

    assert ice.committer.refresh(ice.table_id()) is not None

    assert _newest(ice) == "repair"
