"""The connection breaks at the swap: its outcome is found out, never guessed, and no file that may be live is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from compaction_lakes import disk_paths, fill, live_paths, make_orders, read_all

from builders import ORDERS
from lakebed.compaction import LocalEngine, plan_compaction, swap
from lakebed.core.errors import OutcomeUnknownError, RegistryUnavailableError
from lakebed.lake import connect
from lakebed.registry.files.operations import require_operation
from poolers import BreakingLine, Cut, breaking_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conftest import Databases
    from lakebed.compaction import RewriteRequest, Rewriting
    from lakebed.lake import Lake


@pytest.fixture
def url(databases: Databases) -> Iterator[str]:
    """PostgreSQL alone: SQLite has no line that could break."""
    made = databases.new("postgresql")
    yield made
    databases.drop(made)


@pytest.fixture
def line(databases: Databases, url: str) -> Iterator[BreakingLine]:
    with breaking_line(databases.directory, url) as made:
        yield made


@pytest.fixture
def far(line: BreakingLine, lake: Lake) -> Iterator[Lake]:
    """The lake at the other end of the line."""
    with connect(line.url, warehouse=lake.storage.paths.root, create=False) as opened:
        yield opened


class Arming:
    """The local engine; when it is done, the line is about to break."""

    name = "arming"

    def __init__(self, far: Lake, arm: Callable[[], None]) -> None:
        self._engine, self._arm = LocalEngine(storage=far.storage), arm

    def rewrite(self, request: RewriteRequest, *, cancelled: Callable[[], bool]) -> Rewriting | None:
        done = self._engine.rewrite(request, cancelled=cancelled)
        self._arm()
        return done


def swap_over(far: Lake, arm: Callable[[], None]) -> None:
    (run,) = plan_compaction(far.registry, str(ORDERS)).runs
    swap(far.registry, far.storage, run, Arming(far, arm))


def test_a_swap_whose_answer_is_lost_is_done_once(lake: Lake, far: Lake, line: BreakingLine) -> None:
    make_orders(lake)
    fill(lake, 4)
    rows = read_all(lake)

    swap_over(far, lambda: line.break_at_commit(Cut.AFTER))

    assert line.cuts == 1
    assert (len(live_paths(lake)), read_all(lake)) == (1, rows)
    assert lake.check().clean


def test_a_swap_that_never_arrived_is_swept_and_may_be_repeated(lake: Lake, far: Lake, line: BreakingLine) -> None:
    make_orders(lake)
    fill(lake, 4)
    rows, disk = read_all(lake), disk_paths(lake)

    with pytest.raises(RegistryUnavailableError, match="nothing was changed"):
        swap_over(far, lambda: line.break_at_commit(Cut.BEFORE))

    assert (disk_paths(lake), read_all(lake)) == (disk, rows)
    assert lake.check().clean
    swap_over(far, lambda: None)
    assert (len(live_paths(lake)), read_all(lake)) == (1, rows)


def test_an_outcome_that_cannot_be_looked_up_deletes_nothing(lake: Lake, far: Lake, line: BreakingLine, tmp_path: Path) -> None:
    make_orders(lake)
    fill(lake, 4)
    rows = read_all(lake)

    with pytest.raises(OutcomeUnknownError) as caught:
        swap_over(far, lambda: line.break_at_commit(Cut.AFTER, for_good=True))

    assert len(list(tmp_path.rglob("*.parquet"))) == 5
    line.restore()
    assert require_operation(lake.registry, caught.value.op_id).state == "registered"
    assert far.files.recover() == []
    assert (len(live_paths(lake)), read_all(lake)) == (1, rows)
    assert lake.check().clean
