"""What a reader planned under its lease it can load, footers and data, whatever retires and cleans beside it."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
import zstandard

from builders import ORDERS, SCHEMA, arrow_rows, count, new_partition, operation, stepped_lake, within, writing_path
from lakebed.core.errors import FooterNotFoundError
from lakebed.parquet.cache import FooterCache
from lakebed.parquet.capture import capture
from lakebed.registry.files.footers import load_partition_metadata
from lakebed.registry.journal.leases import end_reading, hold_for_reading
from lakebed.registry.partitions.publish import update_table_files
from lakebed.testing import FixedClock, Steps
from retiring import retire_by_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakebed.core.files import NewFile
    from lakebed.lake import Lake
    from lakebed.registry.transaction import Transaction

READERS, ROUNDS = 10, 100  # a thousand interleavings of a reader with the one who cleans
ROWS = 20
GRACE_S = 3600.0
GRACE_US = int(GRACE_S * 1e6)
READING_US = 100 * GRACE_US
_STORE_V1 = """UPDATE partition_metadata SET metadata = :metadata, partition_format_version = 1, footer_length = :length, checksum = :checksum
WHERE file_path = :path"""


@pytest.fixture
def lake(timed_lake: Lake) -> Lake:
    timed_lake.create_table(str(ORDERS), SCHEMA, event_time="ts", index=("id",))
    return timed_lake


@pytest.fixture
def shelf(lake: Lake) -> Shelf:
    path = writing_path(new_path(lake))
    pq.write_table(arrow_rows(1, rows=ROWS), path)
    model = capture(lake.storage, path, SCHEMA).file
    content = Path(path).read_bytes()
    lake.storage.delete_tree(str(Path(path).parent))
    return Shelf(lake, content, model)


def new_path(lake: Lake) -> str:
    table = lake.table(str(ORDERS))
    directory = lake.storage.paths.operation_directory(table.table_id, table.name, operation().op_id)
    return lake.storage.paths.new_file(directory, 0, "parquet")


@dataclass(frozen=True, slots=True)
class Shelf:
    """Publishes real files quickly: copies of one whose footer was captured once."""

    lake: Lake
    content: bytes
    model: NewFile

    def fill(self, partitions: int) -> None:
        """New live partitions of one file, every other one with a version-1 footer."""
        paths = [writing_path(new_path(self.lake)) for _ in range(partitions)]
        for path in paths:
            Path(path).write_bytes(self.content)
        table = self.lake.table(str(ORDERS))

        def body(tx: Transaction) -> None:
            for number, path in enumerate(paths):
                update_table_files(tx, new_partition(table, replace(self.model, path=path)), operation())
                if number % 2:
                    store_v1(tx, self.model, path)

        within(self.lake.registry, body)


def store_v1(tx: Transaction, file: NewFile, path: str) -> None:
    """As version 1 kept it: bare FileMetaData."""
    assert file.footer is not None
    bare = file.footer.tail[:-8]
    values = {"metadata": zstandard.compress(bare), "length": len(bare), "checksum": hashlib.sha256(bare).hexdigest()}
    assert tx.run(_STORE_V1, {**values, "path": path}) == 1


@dataclass(slots=True)
class Reader:
    """One process that reads: its lease, and what it planned under it."""

    lake: Lake
    name: str
    planned: Sequence[str] = field(default=())

    def plan(self) -> None:
        hold_for_reading(self.lake.registry, self.name, [self.lake.table(str(ORDERS)).table_id], owner="h/1/reader", ttl_us=READING_US)
        self.planned = self.lake.files.plan(str(ORDERS)).paths

    def load(self) -> None:
        cache = FooterCache()
        for path in self.planned:
            footer = load_partition_metadata(self.lake.registry, path, cache=cache)
            with pq.ParquetFile(path, metadata=footer) as file:
                assert file.read().num_rows == footer.num_rows == ROWS

    def end(self) -> None:
        end_reading(self.lake.registry, self.name)
        self.planned = ()


def retire_all(lake: Lake) -> None:
    ids = {p.partition_id for p in lake.list_partitions(str(ORDERS))}
    within(lake.registry, lambda tx: retire_by_ids(tx, ORDERS, ids, grace_us=GRACE_US))


def clean(lake: Lake) -> None:
    lake.delete_expired_temporary_files()


def merge(rng: random.Random, *sequences: list[Callable[[], None]]) -> list[Callable[[], None]]:
    """One of all orders that keep each sequence's own."""
    waiting = [list(reversed(sequence)) for sequence in sequences]
    merged: list[Callable[[], None]] = []
    while any(waiting):
        chosen = rng.choices(waiting, weights=[len(sequence) for sequence in waiting])[0]
        merged.append(chosen.pop())
    return merged


@pytest.mark.parametrize("seed", range(ROUNDS // 25))
def test_planned_partitions_load_in_a_thousand_interleavings_with_retiring_and_cleaning(
    lake: Lake, shelf: Shelf, clock: FixedClock, seed: int
) -> None:
    rng = random.Random(seed)
    under_lease = 0
    for number in range(25):
        shelf.fill(2)
        readers = [Reader(lake, f"reader/{number}/{i}") for i in range(READERS)]

        def clean_past_grace(readers: list[Reader] = readers) -> None:
            nonlocal under_lease
            clock.advance(seconds=GRACE_S)
            under_lease += sum(len(reader.planned) == 2 for reader in readers)
            clean(lake)

        janitor = [lambda: retire_all(lake), lambda: clean(lake), clean_past_grace]
        for step in merge(rng, janitor, *([reader.plan, reader.load, reader.end] for reader in readers)):
            step()
        clean(lake)
        assert count(lake.registry, "table_files") == 0
    assert under_lease > 10  # else the orders would prove nothing
    assert lake.check().clean
    assert not list(Path(lake.storage.paths.root).rglob("*.parquet"))


@dataclass(slots=True)
class EveryStep(Steps):
    """Acts at each step, not at one."""

    def reach(self, what: str) -> None:
        self.done.append(what)
        self.act(what)


def test_a_reader_loads_between_any_two_statements_of_retiring_and_cleaning(lake: Lake, shelf: Shelf, url: str, clock: FixedClock) -> None:
    shelf.fill(6)
    reader = Reader(lake, "reader/1")
    reader.plan()
    steps = EveryStep(act=lambda _: reader.load())

    with stepped_lake(url, lake.storage.paths.root, steps, clock=clock) as other:
        retire_all(other)
        clock.advance(seconds=GRACE_S)
        clean(other)

    assert len(reader.planned) == count(lake.registry, "table_files") == 6
    assert len(steps.done) > 10
    assert lake.check().clean


def test_before_their_grace_has_passed_planned_partitions_load_without_any_lease(lake: Lake, shelf: Shelf, clock: FixedClock) -> None:
    shelf.fill(4)
    reader = Reader(lake, "reader/1", planned=lake.files.plan(str(ORDERS)).paths)

    retire_all(lake)
    clock.advance(seconds=GRACE_S - 1)
    clean(lake)

    reader.load()
    assert lake.check().clean


def test_after_the_lease_and_the_grace_footers_and_files_go_together(lake: Lake, shelf: Shelf, clock: FixedClock) -> None:
    shelf.fill(4)
    reader = Reader(lake, "reader/1")
    reader.plan()
    paths = reader.planned
    retire_all(lake)
    clock.advance(seconds=GRACE_S)
    reader.end()

    clean(lake)

    assert not any(Path(path).exists() for path in paths)
    for path in paths:
        with pytest.raises(FooterNotFoundError):
            load_partition_metadata(lake.registry, path, cache=FooterCache())
    assert lake.check().clean
