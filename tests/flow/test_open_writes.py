"""Every open write keeps its lease: while it runs its files are not deleted, and a writer that lost the lease learns why."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from builders import ORDERS, SCHEMA, arrow_rows, count, logical_dump, make_table, recover_writers, write_partition, writing_path
from lakebed.core.errors import FileMissingError, OperationConflictError, RegistryUnavailableError, StorageUnavailableError
from lakebed.lake import Lake, connect
from lakebed.registry.files.operations import DEFAULT_LEASE_US, require_operation
from lakebed.staging.write import open_writing
from poolers import Cut, breaking_line

if TYPE_CHECKING:
    from conftest import Databases
    from lakebed.staging.write import Writing
    from lakebed.storage.protocol import Storage
    from lakebed.testing import FixedClock

LEASE_S = DEFAULT_LEASE_US / 1e6


def create(lake: Lake) -> Lake:
    lake.create_table(str(ORDERS), SCHEMA, event_time="ts")
    return lake


def write_file(writing: Writing, number: int = 1) -> None:
    pq.write_table(arrow_rows(number), writing_path(writing.new_path()))


def files_of(lake: Lake) -> list[Path]:
    return list(Path(lake.storage.paths.root).rglob("*.parquet"))


def wait_for_a_renewal(lake: Lake, *op_ids: str) -> None:
    first = [require_operation(lake.registry, op_id).lease_until for op_id in op_ids]
    while any(require_operation(lake.registry, op_id).lease_until == was for op_id, was in zip(op_ids, first, strict=True)):
        pass


def test_the_lease_of_a_write_without_spark_is_renewed_while_its_block_runs(lake: Lake) -> None:
    create(lake)

    with open_writing(lake.registry, lake.storage, lake.table(str(ORDERS)), lease_us=900_000) as writing:
        write_file(writing)
        wait_for_a_renewal(lake, writing.operation.op_id)
        wait_for_a_renewal(lake, writing.operation.op_id)
        assert lake.files.recover() == []
        writing.publish()

    assert lake.check().clean


def test_a_short_lease_is_renewed_beside_a_long_one(lake: Lake) -> None:
    """One thread renews both: the second must not wait until the first is due."""
    create(lake)

    with lake.writing(str(ORDERS)) as long, open_writing(lake.registry, lake.storage, lake.table(str(ORDERS)), lease_us=900_000) as short:
        write_file(short)
        wait_for_a_renewal(lake, short.operation.op_id)
        short.publish()
        write_file(long, 2)
        long.publish()

    assert count(lake.registry, "partitions") == 2


def test_all_writes_of_a_lake_share_one_thread_which_ends_with_it(url: str, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with connect(url, warehouse=str(tmp_path / "warehouse")) as lake:
        create(lake)
        for number in range(3):
            write_partition(lake, number)
        with lake.writing(str(ORDERS)), lake.writing(str(ORDERS)):
            assert [t.name for t in set(threading.enumerate()) - before] == ["lakebed-heartbeat"]

    assert set(threading.enumerate()) - before == set()


def test_a_write_that_begins_after_an_idle_time_is_renewed_too(lake: Lake) -> None:
    create(lake)
    for number in range(2):
        with open_writing(lake.registry, lake.storage, lake.table(str(ORDERS)), lease_us=300_000) as writing:
            write_file(writing, number)
            wait_for_a_renewal(lake, writing.operation.op_id)
            writing.publish()

    assert lake.check().clean


def test_a_writer_that_was_recovered_gets_a_conflict(timed_lake: Lake, clock: FixedClock) -> None:
    """It stood still for longer than its lease, and its files are gone."""
    create(timed_lake)

    with timed_lake.writing(str(ORDERS)) as writing:
        write_file(writing)
        clock.advance(seconds=LEASE_S + 1)
        assert timed_lake.files.recover() == [writing.operation.op_id]
        with pytest.raises(OperationConflictError, match="is rolled_back, not writing"):
            writing.publish()

    assert files_of(timed_lake) == []
    assert timed_lake.check().clean


def test_a_writer_whose_directory_was_taken_away_gets_a_conflict(timed_lake: Lake, clock: FixedClock) -> None:
    create(timed_lake)

    def go_on_after_the_recovery() -> None:
        with timed_lake.writing(str(ORDERS)) as writing:
            write_file(writing)
            clock.advance(seconds=LEASE_S + 1)
            timed_lake.files.recover()
            pq.write_table(arrow_rows(2), writing.new_path())

    with pytest.raises(OperationConflictError) as caught:
        go_on_after_the_recovery()

    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert timed_lake.check().clean


def test_a_file_that_is_missing_for_another_reason_is_called_missing(lake: Lake) -> None:
    create(lake)

    def lose_a_file() -> None:
        with lake.writing(str(ORDERS)) as writing:
            write_file(writing)
            Path(writing.paths[0]).unlink()
            writing.publish()

    with pytest.raises(FileMissingError):
        lose_a_file()

    assert lake.check().clean


def test_nothing_is_written_into_a_warehouse_that_is_not_there(lake: Lake) -> None:
    create(lake)
    write_partition(lake, 1)
    root = Path(lake.storage.paths.root)
    root.rename(root.with_name("unmounted"))
    root.mkdir()
    before = logical_dump(lake.registry)

    with pytest.raises(StorageUnavailableError, match="no marker"), lake.writing(str(ORDERS)):
        pytest.fail("the block must not run")

    assert logical_dump(lake.registry) == before
    assert list(root.iterdir()) == []


@dataclass(slots=True)
class Unmovable:
    """A real storage that cannot delete a directory now."""

    real: Storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def delete_tree(self, directory: str) -> bool:
        raise StorageUnavailableError(directory)


def test_the_first_error_is_raised_also_when_the_undo_fails(lake: Lake) -> None:
    """What the failed undo leaves, recovery removes."""
    create(lake)

    def fail() -> None:
        with Lake(lake.registry, Unmovable(lake.storage)).writing(str(ORDERS)) as writing:
            write_file(writing)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert len(files_of(lake)) == 1
    recover_writers(lake)
    assert files_of(lake) == []
    assert lake.check().clean


@pytest.mark.parametrize("kind", ["postgresql"])
def test_an_intent_whose_answer_is_lost_may_be_repeated(databases: Databases, url: str, tmp_path: Path) -> None:
    """It makes nothing visible: the outcome need not be known."""
    with breaking_line(databases.directory, url) as line, connect(line.url, warehouse=str(tmp_path / "warehouse")) as far:
        table = create(far).table(str(ORDERS))
        line.break_at_commit(Cut.AFTER)

        with (
            pytest.raises(RegistryUnavailableError, match="nothing was written: retry"),
            open_writing(far.registry, far.storage, table),
        ):
            pytest.fail("the block must not run")

        write_partition(far, 1)
        recover_writers(far)
        assert far.check().clean


def fail_with(lake: Lake, message: str) -> None:
    with lake.writing(str(ORDERS)) as writing:
        Path(writing_path(writing.new_path())).write_bytes(b"x")
        raise OSError(message)


def test_a_failure_whose_text_cannot_be_stored_as_it_is_leaves_no_file(lake: Lake) -> None:
    make_table(lake.registry)

    with pytest.raises(OSError, match="a name"):
        fail_with(lake, "a name that is not UTF-8: \udc80")

    assert [facts.path for facts in lake.storage.list_files(lake.storage.paths.root) if facts.path.endswith(".parquet")] == []
    assert lake.registry.query("SELECT state, error FROM operations") == [("rolled_back", "OSError: a name that is not UTF-8: \\udc80")]
