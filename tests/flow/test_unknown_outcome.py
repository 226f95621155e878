"""The connection breaks at the commit: what was done is found out, never guessed, and happens exactly once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pyarrow.parquet as pq
import pytest

from builders import ORDERS, arrow_rows, count, fake_file, logical_dump, make_table, new_partition, operation, recover_writers, writing_path
from lakebed.check import check
from lakebed.core.errors import LakebedError, OutcomeUnknownError, RegistryUnavailableError, UnavailableError
from lakebed.lake import connect
from lakebed.registry.files.operations import require_operation
from lakebed.registry.open import open_registry
from lakebed.registry.partitions.publish import publish_partition
from poolers import BreakingLine, Cut, breaking_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Databases
    from lakebed.lake import Lake
    from lakebed.registry.files.operations import Operation
    from lakebed.registry.partitions.publish import Published
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


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
def table(registry: Registry) -> LakeTable:
    return make_table(registry)


@pytest.fixture
def far(line: BreakingLine) -> Iterator[Registry]:
    """The registry at the other end of the line."""
    with closing(open_registry(line.url)) as opened:
        yield opened


def publish(far: Registry, table: LakeTable, number: int, op: Operation) -> Published:
    return publish_partition(far, new_partition(table, fake_file(number)), op)


def wait_for_a_waiter(url: str) -> None:
    """Until a session waits for a lock, as the look-up of an outcome must."""
    with psycopg.connect(url, autocommit=True) as connection:
        deadline = time.monotonic() + 20
        while connection.execute(_WAITING).fetchone() == (0,):
            assert time.monotonic() < deadline, "no session waits for the transaction in doubt"


@pytest.mark.parametrize("warm", [0, 1, 5])
def test_a_commit_whose_answer_is_lost_is_a_success_reported_once(
    far: Registry, line: BreakingLine, registry: Registry, table: LakeTable, warm: int
) -> None:
    """Also when the driver has prepared the commit, and only names it."""
    for number in range(warm):
        publish(far, table, number, operation())
    line.break_at_commit(Cut.AFTER)

    published = publish(far, table, 99, operation())

    assert line.cuts == 1
    assert count(registry, "partitions") == warm + 1
    assert count(registry, "partitions", f"id = {published.partition_id}") == 1
    assert check(registry).clean


def test_a_commit_that_never_arrived_changed_nothing_and_may_be_repeated(
    far: Registry, line: BreakingLine, registry: Registry, table: LakeTable
) -> None:
    before, op = logical_dump(registry), operation()
    line.break_at_commit(Cut.BEFORE)

    with pytest.raises(RegistryUnavailableError, match="nothing was changed: retry"):
        publish(far, table, 99, op)

    assert logical_dump(registry) == before
    assert publish(far, table, 99, op).file_count == 1
    assert count(registry, "partitions") == 1
    assert check(registry).clean


@pytest.mark.parametrize("warm", [1, 5])
def test_a_call_that_never_arrived_on_an_idle_session_is_repeated_once_that_is_known(
    far: Registry, line: BreakingLine, registry: Registry, table: LakeTable, warm: int
) -> None:
    """As after a server that ended its idle sessions: the statement is its whole transaction, and its operation is looked up first."""
    for number in range(warm):
        publish(far, table, number, operation())
    op = operation()
    line.break_at_commit(Cut.BEFORE)

    published = publish(far, table, 99, op)

    assert line.cuts == 1
    assert publish(far, table, 99, op) == published
    assert count(registry, "partitions") == warm + 1
    assert check(registry).clean


@pytest.mark.parametrize("how", [Cut.LATE, Cut.LOST])
def test_an_outcome_is_looked_up_only_after_the_transaction_in_doubt_has_ended(
    far: Registry, line: BreakingLine, registry: Registry, table: LakeTable, url: str, how: Cut
) -> None:
    """Looking without waiting for its lock would find nothing, and a retry would do the work twice."""
    line.break_at_commit(how)
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(publish, far, table, 99, operation())
        wait_for_a_waiter(url)
        line.let_go.set()

        if how is Cut.LATE:
            assert publishing.result().file_count == 1
        else:
            with pytest.raises(RegistryUnavailableError, match="nothing was changed"):
                publishing.result()

    assert count(registry, "partitions") == (how is Cut.LATE)
    assert check(registry).clean


def test_repeating_an_operation_whose_answer_was_lost_gives_its_first_result(
    far: Registry, line: BreakingLine, registry: Registry, table: LakeTable
) -> None:
    op = operation()
    line.break_at_commit(Cut.AFTER)
    first = publish(far, table, 99, op)

    assert publish(far, table, 99, op) == first

    assert count(registry, "partitions") == 1
    assert check(registry).clean


def write_until_it_breaks(lake: Lake, line: BreakingLine) -> None:
    with lake.writing(str(ORDERS)) as writing:
        pq.write_table(arrow_rows(1), writing_path(writing.new_path()))
        line.break_at_commit(Cut.AFTER, for_good=True)
        writing.publish()


def test_an_outcome_that_cannot_be_looked_up_is_called_unknown_and_nothing_is_cleaned(
    line: BreakingLine, registry: Registry, tmp_path: Path
) -> None:
    """The files may be live: deleting them now would lose rows."""
    make_table(registry)
    with connect(line.url, warehouse=str(tmp_path / "warehouse")) as far:
        with pytest.raises(OutcomeUnknownError) as caught:
            write_until_it_breaks(far, line)
        assert len(list(tmp_path.rglob("*.parquet"))) == 1
        line.restore()
        assert require_operation(registry, caught.value.op_id).state == "registered"
        assert far.files.recover() == []
        assert far.check().clean


def write_one(lake: Lake) -> LakebedError | None:
    """Three files through `lake.writing`; how it failed."""
    try:
        with lake.writing(str(ORDERS)) as writing:
            for number in range(3):
                pq.write_table(arrow_rows(number), writing_path(writing.new_path()))
            writing.publish()
    except LakebedError as exc:
        return exc
    return None


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("messages", range(0, 90, 6))
def test_all_connections_cut_anywhere_in_a_write_leave_a_known_outcome_or_one_with_an_id(
    line: BreakingLine, registry: Registry, tmp_path: Path, messages: int
) -> None:
    with connect(line.url, warehouse=str(tmp_path / "warehouse"), service="off") as lake:
        fill_pool(lake.registry)
        line.cut_after(messages)

        failure = write_one(lake)

        found = count(registry, "partitions")
        if isinstance(failure, OutcomeUnknownError):
            assert require_operation(registry, failure.op_id).state in ("writing", "registered")
        else:
            assert found == (0 if failure else 1)
        assert "pipeline" not in str(failure)
        assert isinstance(failure, UnavailableError | OutcomeUnknownError | None)
        recover_writers(lake)
        assert write_one(lake) is None
        assert count(registry, "partitions") == found + 1
        assert lake.check(deep=True).clean


def fill_pool(registry: Registry) -> None:
    """Several idle connections, all of which are cut."""
    with registry.read(), registry.read(), registry.read():
        pass
