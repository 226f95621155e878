"""The registry is away when a write is to be published: its files go at once where nothing can be visible, and stay where something may be."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from builders import ORDERS, arrow_rows, count, make_table, recover_writers, stepped_lake, within, write_partition, writing_path
from lakebed.core.errors import CommitTimeoutError, LakebedError, OutcomeUnknownError, RegistryLockedError, RegistryUnavailableError
from lakebed.lake import connect
from lakebed.registry.tables.groups import set_committed_group
from lakebed.testing import Steps
from poolers import breaking_line
from serving import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Databases
    from lakebed.lake import Lake
    from lakebed.registry.registry import Registry


def files_of(lake: Lake) -> list[Path]:
    return list(Path(lake.storage.paths.root).rglob("*.parquet"))


def is_asking_again(caplog: pytest.LogCaptureFixture) -> bool:
    return any("waiting for Iceberg goes on" in record.getMessage() for record in caplog.records)


def publish_after(lake: Lake, then: Callable[[], object]) -> None:
    """Files are written, then something happens, then they are to be published."""
    with lake.writing(str(ORDERS)) as writing:
        pq.write_table(arrow_rows(9), writing_path(writing.new_path()))
        then()
        writing.publish()


def require_recoverable(lake: Lake, *, partitions: int) -> None:
    """Recovery closes the operation, its directory there or not, and the next write works."""
    assert [row[0] for row in lake.registry.query("SELECT state FROM operations WHERE state <> 'registered'")] == ["writing"]
    recover_writers(lake)
    assert count(lake.registry, "operations", "state = 'rolled_back'") == 1
    write_partition(lake, 1)
    assert count(lake.registry, "partitions") == len(files_of(lake)) == partitions + 1
    assert lake.check().clean


def test_a_write_that_finds_the_registry_locked_leaves_no_file(url: str, registry: Registry, tmp_path: Path) -> None:
    make_table(registry)
    with connect(url, warehouse=str(tmp_path / "warehouse"), timeout_s=0.2) as lake:
        holding = registry.write([ORDERS])

        with pytest.raises(RegistryLockedError):
            publish_after(lake, holding.__enter__)

        assert files_of(lake) == []
        holding.__exit__(None, None, None)
        require_recoverable(lake, partitions=0)


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_write_whose_connections_are_cut_before_it_is_published_leaves_no_file(databases: Databases, url: str, tmp_path: Path) -> None:
    with breaking_line(databases.directory, url) as line, connect(line.url, warehouse=str(tmp_path / "warehouse")) as lake:
        make_table(lake.registry)

        with pytest.raises(RegistryUnavailableError):
            publish_after(lake, line.break_now)

        assert files_of(lake) == []
        line.restore()
        require_recoverable(lake, partitions=0)


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_write_whose_commit_may_have_arrived_keeps_its_files(databases: Databases, url: str, tmp_path: Path) -> None:
    """From the second append on one statement is the whole transaction: whether it was sent whole is unknown."""
    with breaking_line(databases.directory, url) as line, connect(line.url, warehouse=str(tmp_path / "warehouse")) as lake:
        make_table(lake.registry)
        write_partition(lake, 1)

        with pytest.raises(OutcomeUnknownError):
            publish_after(lake, line.break_now)

        assert len(files_of(lake)) == 2
        line.restore()
        require_recoverable(lake, partitions=1)


def swallow_the_unknown_outcome(lake: Lake, then: Callable[[], object]) -> None:
    with lake.writing(str(ORDERS)) as writing:
        pq.write_table(arrow_rows(9), writing_path(writing.new_path()))
        then()
        with suppress(OutcomeUnknownError):
            writing.publish()
        raise ZeroDivisionError


@pytest.mark.parametrize("kind", ["postgresql"])
def test_an_unknown_outcome_that_the_block_swallows_keeps_the_files(databases: Databases, url: str, tmp_path: Path) -> None:
    with breaking_line(databases.directory, url) as line, connect(line.url, warehouse=str(tmp_path / "warehouse")) as lake:
        make_table(lake.registry)
        write_partition(lake, 1)

        with pytest.raises(ZeroDivisionError):
            swallow_the_unknown_outcome(lake, line.break_now)

        assert len(files_of(lake)) == 2
        line.restore()


@dataclass(slots=True)
class Interrupted(Steps):
    """Interrupts the caller just after a commit; from then on the registry is away."""

    armed: bool = False
    is_away: bool = False

    def reach(self, what: str) -> None:
        if self.is_away:
            message = "away"
            raise RegistryUnavailableError(message)
        if self.armed and what == "committed":
            self.is_away = True
            raise KeyboardInterrupt

    def arm(self) -> None:
        self.armed = True


def test_an_interrupt_behind_the_commit_keeps_the_files(url: str, registry: Registry, tmp_path: Path) -> None:
    make_table(registry)
    steps = Interrupted()
    lake = stepped_lake(url, str(tmp_path / "warehouse"), steps)

    with pytest.raises(KeyboardInterrupt):
        publish_after(lake, steps.arm)

    assert len(files_of(lake)) == count(registry, "partitions") == 1
    steps.is_away = steps.armed = False
    assert lake.files.recover() == []
    assert lake.check().clean
    lake.close()


def lose_another_outcome() -> None:
    raise OutcomeUnknownError("of another write")


def test_an_unknown_outcome_of_another_write_does_not_keep_the_files(lake: Lake) -> None:
    make_table(lake.registry)

    with pytest.raises(LakebedError, match="of another write"):
        publish_after(lake, lose_another_outcome)

    assert files_of(lake) == []
    assert count(lake.registry, "operations", "state = 'rolled_back'") == 1
    assert lake.check().clean


def test_a_wait_for_iceberg_goes_on_while_the_registry_is_locked(
    url: str, registry: Registry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The rows are registered: an error of the registry would look like a failed insert."""
    caplog.set_level("INFO", "lakebed")
    make_table(registry)
    with connect(url, warehouse=str(tmp_path / "warehouse"), timeout_s=0.2, service="off") as lake, ThreadPoolExecutor(1) as pool:
        done = write_partition(lake, 1)
        with registry.write([ORDERS]):
            waiting = pool.submit(lake._context.commits.wait, done.table_id, done.file_ids, timeout_s=60)
            wait_until(lambda: is_asking_again(caplog))
        wait_until(lambda: count(registry, "tables", "last_group = 1") == 1)
        within(registry, lambda tx: set_committed_group(tx, ORDERS, 1, snapshot_id=77))

        committed = waiting.result(60)
        assert committed is not None
        assert committed.snapshot_id == 77


def test_a_wait_that_the_registry_never_answers_says_that_the_rows_are_there(url: str, registry: Registry, tmp_path: Path) -> None:
    make_table(registry)
    with connect(url, warehouse=str(tmp_path / "warehouse"), timeout_s=0.1, service="off") as lake:
        done = write_partition(lake, 1)
        with (
            registry.write([ORDERS]),
            pytest.raises(CommitTimeoutError, match=r"rows are registered.*registry_locked.*do not insert again") as caught,
        ):
            lake._context.commits.wait(done.table_id, done.file_ids, timeout_s=0.3)
        assert isinstance(caught.value.__cause__, RegistryLockedError)


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_wait_for_iceberg_goes_on_while_the_connections_are_cut(
    databases: Databases, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lakebed")
    place = str(tmp_path / "warehouse")
    with breaking_line(databases.directory, url) as line, connect(line.url, warehouse=place, service="off") as lake:
        make_table(lake.registry)
        done = write_partition(lake, 1)
        with ThreadPoolExecutor(1) as pool:
            line.break_now()
            waiting = pool.submit(lake._context.commits.wait, done.table_id, done.file_ids, timeout_s=60)
            wait_until(lambda: is_asking_again(caplog))
            line.restore()
            with connect(url, warehouse=place, service="auto") as publishing:
                snapshot_id = publishing.snapshot(str(ORDERS))
                committed = waiting.result(60)
        assert committed is not None
        assert committed.snapshot_id == snapshot_id
