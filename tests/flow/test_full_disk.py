"""Writes that fail, for want of room or for any other reason, leave the registry byte for byte as it was, and no file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from builders import (
    ORDERS,
    arrow_rows,
    count,
    fake_file,
    logical_dump,
    make_table,
    publish,
    stepped_lake,
    within,
    write_partition,
    writing_path,
)
from lakebed.check import check
from lakebed.core.errors import LakebedError, StorageFullError
from lakebed.lake import Lake
from lakebed.registry.connect import open_backend
from lakebed.registry.registry import Registry
from lakebed.storage.open import open_storage
from lakebed.testing import FixedClock, SteppedBackend, Steps
from retiring import retire_by_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Databases
    from lakebed.registry.backends.protocol import Connection

AUDIT = frozenset({"operations"})  # that a write was tried and failed may be told
LEASE_S = 601.0


class BoundedBackend(SteppedBackend):
    """SQLite in a file that may not grow beyond `pages`: it then says the same as when the disk is full."""

    pages = 2**30

    def connect(self) -> Connection:
        connection = self.real.connect()
        connection.query(f"PRAGMA max_page_count = {self.pages}")
        return connection


class Room:
    """A registry and how much it may still grow."""

    def __init__(self, url: str, clock: FixedClock) -> None:
        self.backend = BoundedBackend(open_backend(url), Steps())
        self.registry = Registry(self.backend, clock=clock)

    def leave(self, pages: int) -> None:
        ((used,),) = self.registry.query("PRAGMA page_count")
        self._reconnect(used + pages)

    def lift(self) -> None:
        self._reconnect(BoundedBackend.pages)

    def _reconnect(self, pages: int) -> None:
        self.backend.pages = pages
        for connection in self.registry.take_idle():
            connection.close()


@pytest.fixture
def room(databases: Databases, clock: FixedClock) -> Iterator[Room]:
    made = Room(databases.new("sqlite"), clock)
    with closing(made.registry):
        yield made


def fill_until_it_fits(room: Room, write: Callable[[], object]) -> int:
    """Try `write` with ever more room; how often it failed. Each failure hits another statement and changes nothing."""
    before = logical_dump(room.registry)
    for pages in range(200):
        room.leave(pages)
        try:
            write()
        except StorageFullError:
            assert logical_dump(room.registry) == before, pages
        else:
            return pages
    pytest.fail("it never fitted")


def test_a_full_disk_changes_nothing_and_publishing_works_again_with_room(room: Room) -> None:
    table = make_table(room.registry)
    files = [fake_file(number) for number in range(60)]

    failures = fill_until_it_fits(room, lambda: publish(room.registry, table, *files))

    assert failures > 5
    assert count(room.registry, "table_files") == 60
    room.lift()
    publish(room.registry, table, *[fake_file(number) for number in range(100, 160)])
    assert check(room.registry).clean


def test_a_full_disk_changes_nothing_when_a_partition_is_retired(room: Room) -> None:
    table = make_table(room.registry)
    published = publish(room.registry, table, *[fake_file(number) for number in range(60)])

    failures = fill_until_it_fits(room, lambda: within(room.registry, lambda tx: retire_by_ids(tx, ORDERS, {published.partition_id})))

    assert failures > 2
    assert count(room.registry, "temporary_files") == 60
    assert check(room.registry).clean


def write_partition_into(room: Room, lake: Lake) -> None:
    """There is room for the intent, and then no more."""
    with lake.writing(str(ORDERS)) as writing:
        for number in range(30):
            pq.write_table(arrow_rows(number), writing_path(writing.new_path()))
        room.leave(0)
        writing.publish()


def test_a_write_that_finds_the_disk_full_leaves_no_file_once_it_is_recovered(room: Room, clock: FixedClock, tmp_path: Path) -> None:
    make_table(room.registry)
    with Lake(room.registry, open_storage(str(tmp_path / "warehouse"), create=True)) as lake:
        before = logical_dump(room.registry, without=AUDIT)
        with pytest.raises(StorageFullError, match="free some and retry; nothing was changed"):
            write_partition_into(room, lake)
        room.lift()
        clock.advance(seconds=LEASE_S)  # there may have been no room to take it back at once

        lake.files.recover()

        assert logical_dump(room.registry, without=AUDIT) == before
        assert files_of(lake) == []
        assert lake.check().clean


def files_of(lake: Lake) -> list[Path]:
    return sorted(Path(lake.storage.paths.root).rglob("*.parquet"))


def interrupt(_: str) -> None:
    raise KeyboardInterrupt


def write_two(lake: Lake, *, replacing: frozenset[int]) -> None:
    with lake.writing(str(ORDERS)) as writing:
        for number in (7, 8):
            pq.write_table(arrow_rows(number), writing_path(writing.new_path()))
        writing.publish(replacing=replacing)


@pytest.mark.parametrize("replaces", [False, True], ids=["insert", "replacement"])
def test_a_write_interrupted_at_any_statement_before_its_commit_leaves_everything_as_it_was(
    lake: Lake, url: str, *, replaces: bool
) -> None:
    make_table(lake.registry)
    old = frozenset({write_partition(lake, 1).partition_id})
    before, files = logical_dump(lake.registry, without=AUDIT), files_of(lake)
    for step in range(1, 100):
        steps = Steps(at=step, act=interrupt)
        with stepped_lake(url, lake.storage.paths.root, steps) as other, pytest.raises(KeyboardInterrupt):
            write_two(other, replacing=old if replaces else frozenset())
        if count(lake.registry, "table_files") > 1:
            break
        assert logical_dump(lake.registry, without=AUDIT) == before, steps.done
        assert files_of(lake) == files
    assert (steps.done[step - 1], steps.done.count("committed")) == ("committed", 2)  # the intent's, then its own
    assert step > 12
    assert lake.check().clean


def write_torn(lake: Lake, kept: int) -> None:
    """Two files, of the second only the given per cent."""
    with lake.writing(str(ORDERS)) as writing:
        for _ in range(2):
            pq.write_table(arrow_rows(7), writing_path(writing.new_path()))
        whole = Path(writing.paths[1]).read_bytes()
        Path(writing.paths[1]).write_bytes(whole[: len(whole) * kept // 100])
        writing.publish()


@pytest.mark.parametrize("kept", range(0, 100, 7))
def test_a_write_with_a_torn_file_leaves_everything_as_it_was(lake: Lake, kept: int) -> None:
    make_table(lake.registry)
    write_partition(lake, 1)
    before, files = logical_dump(lake.registry, without=AUDIT), files_of(lake)

    with pytest.raises(LakebedError):
        write_torn(lake, kept)

    assert logical_dump(lake.registry, without=AUDIT) == before
    assert files_of(lake) == files
    assert lake.check().clean
