"""After everything Astha writes, the checker finds the lake in order: cursors, purged journals, parked and healed tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from recorders import COMPACTOR, PATIENCE_S, UPDATER, await_that, fail, fail_on, recorders, running

from builders import ORDERS, make_table, seal_pending, write_partition
from lakebed.lake import Lake, connect
from lakebed.registry.tables.lake_tables import require_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def quiet_lake(url: str, tmp_path: Path) -> Iterator[Lake]:
    """One that publishes nothing by itself: the components are the test's."""
    with connect(url, warehouse=str(tmp_path / "warehouse"), service="off") as opened:
        make_table(opened.registry)
        yield opened


def test_delivery_with_purges_and_restarts_leaves_the_lake_in_order(quiet_lake: Lake) -> None:
    for number in range(3):
        with running(quiet_lake.registry, recorders(quiet_lake.registry), purge_every_s=0.05) as astha:
            write_partition(quiet_lake, number, files=3)
            seal_pending(quiet_lake.registry)
            assert astha.drain(PATIENCE_S)

    assert quiet_lake.check().clean


def test_a_laggard_beyond_the_cap_leaves_the_lake_in_order(quiet_lake: Lake) -> None:
    components = recorders(quiet_lake.registry)
    components[COMPACTOR].before_event = components[COMPACTOR].before_refresh = fail()
    with running(quiet_lake.registry, components, purge_every_s=0.05, purge_cap=3):
        write_partition(quiet_lake, 1, files=5)
        await_that(lambda: require_table(quiet_lake.registry, ORDERS).row.state == "degraded", "the parked table")
        await_that(lambda: quiet_lake.registry.query("SELECT count(*) FROM change_log WHERE seq < 5") == [(0,)], "the purge")

    assert quiet_lake.check().clean


def test_a_table_that_was_parked_and_healed_leaves_the_lake_in_order(quiet_lake: Lake) -> None:
    components = recorders(quiet_lake.registry)
    with running(quiet_lake.registry, components) as astha:
        assert astha.drain(PATIENCE_S)
        components[UPDATER].before_event = components[UPDATER].before_refresh = fail_on(1)
        write_partition(quiet_lake, 1)
        await_that(lambda: require_table(quiet_lake.registry, ORDERS).row.state == "degraded", "the parked table")
        components[UPDATER].before_event = components[UPDATER].before_refresh = lambda _: None
        assert astha.retry(UPDATER, 1)
        await_that(lambda: require_table(quiet_lake.registry, ORDERS).row.state == "ok", "the healed table")
        assert astha.drain(PATIENCE_S)

    assert quiet_lake.check().clean
