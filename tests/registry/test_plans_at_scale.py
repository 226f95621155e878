"""What hot calls read in a lake of 10^5 files: counted by the database itself, so that no plan of a planner can hide a scan.

PostgreSQL plans by what it knows of the tables: here they are analyzed, and every call runs often enough for its generic plan.
SQLite's plans do not depend on size; `test_hot_queries` pins them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from builders import DAILY, LONG, ORDERS, fake_file, make_table, make_view, new_partition, operation, publish, within
from lakebed.check.rules import iceberg as check_iceberg
from lakebed.core.files import ColumnStatistics
from lakebed.core.names import TableName
from lakebed.core.schema import bounds
from lakebed.registry.files import footers
from lakebed.registry.files.deletion_queue import claim_expired
from lakebed.registry.ids import ids_of_table
from lakebed.registry.journal import changes
from lakebed.registry.journal.changes import last_journal_numbers, read_changes
from lakebed.registry.open import open_registry
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.partitions.replace import _SEEN, list_visible_partitions
from lakebed.registry.queries import metrics, small_files
from lakebed.registry.queries.listing import list_partitions, list_view_sets
from lakebed.registry.queries.plans import AtGroup, ColumnRange, find_number_at, list_partition_paths
from lakebed.registry.snapshots import waiting
from lakebed.registry.snapshots.history import sum_at_group
from lakebed.registry.tables import groups
from lakebed.registry.tables.expired import _STAYING
from lakebed.testing import FILES_PER_GROUP, multiply_file
from planning import plan_files
from retiring import retire_by_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from conftest import Databases
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable

BIG, SMALL = 90_000, 500
GROWING = frozenset({"table_files", "partitions", "file_ranges", "file_columns", "partition_metadata", "change_log", "temporary_files"})
WARM = 7  # executions after which statements are prepared and PostgreSQL has chosen between its plans
NEIGHBOUR = TableName("shop", "returns")
_QUEUE_MANY = """INSERT INTO temporary_files (file_path, file_size, table_id, retired_at, expiration, reason)
SELECT '/gone/' || i, 1, :table_id, :now - i, :now - i, 'retired' FROM generate_series(1, 20000) AS i"""
_SCANS = "SELECT relname, seq_scan, seq_tup_read FROM pg_stat_user_tables"
_LOOKUPS = "SELECT relname, CAST(sum(idx_tup_read) AS bigint) FROM pg_stat_user_indexes GROUP BY relname"


@dataclass(frozen=True)
class Read:
    """Rows that one call read of the tables that grow."""

    scanned: dict[str, int]
    looked_up: int


@dataclass(frozen=True)
class Large:
    """A table with 90 % of a lake's files, small ones beside it, and what is measured by the database."""

    registry: Registry
    big: LakeTable
    neighbour: LakeTable
    last_group: int

    def count(self, call: Callable[[], object]) -> Read:
        before = self._counters()
        call()
        after = self._counters()
        scanned = {t: after[t][1] - before[t][1] for t in GROWING if after[t][0] > before[t][0]}
        return Read({t: rows for t, rows in scanned.items() if rows}, sum(after[t][2] - before[t][2] for t in GROWING))

    def _counters(self) -> dict[str, tuple[int, int, int]]:
        """Every connection of the pool is the one that called: it hands over what it counted before it answers."""
        self.registry.query("SELECT pg_stat_force_next_flush()")
        self.registry.query("SELECT pg_stat_clear_snapshot()")
        lookups: dict[str, int] = dict(self.registry.query(_LOOKUPS))
        return {table: (scans, rows, int(lookups.get(table, 0))) for table, scans, rows in self.registry.query(_SCANS)}


def statistics(number: int) -> tuple[ColumnStatistics, ...]:
    low, high = number * 1000, number * 1000 + 999
    return (
        ColumnStatistics(
            field_id=1,
            null_count=0,
            value_count=100,
            lower=bounds.lower_bound(LONG, low),
            upper=bounds.upper_bound(LONG, high),
            lower_coordinate=bounds.coordinate(LONG, low),
            upper_coordinate=bounds.coordinate(LONG, high),
        ),
    )


def point(value: int) -> ColumnRange:
    low, high = bounds.lower_bound(LONG, value), bounds.upper_bound(LONG, value)
    return ColumnRange(field_id=1, lower=low, upper=high, lower_coordinate=float(value), upper_coordinate=float(value))


@pytest.fixture(scope="module")
def large(databases: Databases) -> Iterator[Large]:
    url = databases.new("postgresql")
    registry = open_registry(url)
    big, last = make_table(registry, ORDERS), 0
    for table, copies in [(big, BIG), *((make_table(registry, TableName("shop", f"t{n}")), SMALL) for n in range(20))]:
        seed = publish(registry, table, fake_file(0), hours=(0, 1))
        last = max(last, multiply_file(registry, seed, copies, columns=statistics))
    neighbour = make_table(registry, NEIGHBOUR)
    publish(registry, neighbour, fake_file(1))
    within(registry, lambda tx: groups.seal(tx, NEIGHBOUR), NEIGHBOUR)
    make_view(registry, DAILY)
    retire_some(registry, big)
    with registry.write() as tx:
        tx.run(_QUEUE_MANY, {"table_id": big.table_id, "now": tx.now})
        tx.send("ANALYZE")
    yield Large(registry, big, neighbour, last)
    registry.close()
    databases.drop(url)


def retire_some(registry: Registry, table: LakeTable) -> None:
    """So that files are queued, and removed in a group of their own."""
    ids = {row[0] for row in registry.query("SELECT id FROM partitions WHERE table_id = :t ORDER BY id LIMIT 30", {"t": table.table_id})}
    retired = within(registry, lambda tx: retire_by_ids(tx, ORDERS, ids, grace_us=0))
    within(registry, lambda tx: groups.set_committed_group(tx, ORDERS, retired.group or 0, snapshot_id=1))


def last_partition(large: Large) -> int:
    sql = f"SELECT id FROM partitions WHERE {ids_of_table()} ORDER BY id DESC LIMIT 1"
    return int(large.registry.query(sql, {"table_id": large.big.table_id})[0][0])


def paths_at_group(large: Large, table: LakeTable, group: int) -> list[str]:
    with large.registry.read() as reader:
        return list_partition_paths(reader, table.table_id, as_of=AtGroup(group))


def ids_of_one_group(large: Large) -> Sequence[int]:
    return groups.plan_step(large.registry, large.big.table_id, since=5, until=6).added


def find_one_group(large: Large) -> None:
    """Also by paths alone, as the ids of an unknown manifest are found."""
    paths = list(groups.find_paths(large.registry, ids_of_one_group(large)))
    assert len(groups.find_at_group(large.registry, large.big.table_id, large.last_group, paths)) == FILES_PER_GROUP
    assert len(groups.find_ids(large.registry, paths)) == FILES_PER_GROUP


def seal_one(large: Large) -> None:
    publish(large.registry, large.big, fake_file(1))
    groups.seal_table(large.registry, large.big.table_id)


def retire_one(large: Large) -> None:
    gone = last_partition(large)
    within(large.registry, lambda tx: retire_by_ids(tx, ORDERS, {gone}))


FEW = 200  # rows: whatever the size of the lake, and of the table
CALLS: dict[str, tuple[Callable[[Large], object], int]] = {
    "publish one file": (lambda x: publish_partition(x.registry, new_partition(x.big, fake_file(7)), operation()), FEW),
    "publish a slice": (lambda x: publish(x.registry, x.neighbour, fake_file(8), hours=slot()), FEW),
    "retire one": (retire_one, FEW),
    "seal": (seal_one, FEW),
    "a page of partitions": (lambda x: list_partitions(x.registry, x.big.table_id, limit=100), 1500),
    "plan a point": (lambda x: plan_files(x.registry, ORDERS, ranges=[point(45_000_500)]), 500),
    "plan a point of the past": (lambda x: plan_files(x.registry, ORDERS, ranges=[point(45_000_500)], as_of=x.last_group), 500),
    "plan one partition value": (lambda x: plan_files(x.registry, ORDERS, partition_paths=["p=7"]), BIG // 100 + FEW),
    "the step of one group": (lambda x: groups.plan_step(x.registry, x.big.table_id, since=5, until=6), FILES_PER_GROUP + FEW),
    "the step of one file beside a large table": (lambda x: groups.plan_step(x.registry, x.neighbour.table_id, since=0, until=1), FEW),
    "the step of a removal": (lambda x: groups.plan_step(x.registry, x.big.table_id, since=x.last_group, until=x.last_group + 1), 600),
    "the files of a group by their paths": (find_one_group, 6 * FILES_PER_GROUP + FEW),
    "the files of a step by their ids": (lambda x: groups.load_files(x.registry, ids_of_one_group(x)), 2 * FILES_PER_GROUP + FEW),
    "the paths of a step by their ids": (lambda x: groups.find_paths(x.registry, ids_of_one_group(x)), 2 * FILES_PER_GROUP + FEW),
    "the files of a group": (lambda x: groups.list_files_at_group(x.registry, x.neighbour.table_id, 1), FEW),
    "totals": (lambda x: sum_at_group(x.registry, x.neighbour.table_id, 1), FEW),
    "plan at a group": (lambda x: plan_files(x.registry, NEIGHBOUR, as_of=AtGroup(1)), FEW),
    "plan at an early group of a large table": (lambda x: plan_files(x.registry, ORDERS, as_of=AtGroup(1)), FILES_PER_GROUP + FEW),
    "plan at a number": (lambda x: plan_files(x.registry, NEIGHBOUR, as_of=last_journal_numbers(x.registry)[x.neighbour.table_id]), FEW),
    "the number of a time": (lambda x: find_number_at(x.registry, x.neighbour.table_id, x.registry.now()), FEW),
    "the paths of a group": (lambda x: paths_at_group(x, x.neighbour, 1), FEW),
    "the files that the check knows": (lambda x: x.registry.query(check_iceberg._KNOWN, {"id": x.neighbour.table_id}), FEW),
    "the files that the check expects": (lambda x: x.registry.query(check_iceberg._AT_GROUP, {"id": x.neighbour.table_id, "g": 1}), FEW),
    "claim of temporary files": (lambda x: claim_expired(x.registry, limit=10), FEW),
    "journal": (lambda x: read_changes(x.registry, x.big.table_id, after=50, limit=100), 1000),
    "ends of some tables": (lambda x: last_journal_numbers(x.registry, [x.neighbour.table_id]), FEW),
    "footer": (lambda x: footers.load_footer(x.registry, last_path(x)), FEW),
    "pending sums": (lambda x: groups.read_pending(x.registry, x.big.table_id), FEW),
    "JSON files": (lambda x: small_files.has_json(x.registry, x.big.table_id), FEW),
    "is anything behind": (lambda x: x.registry.query(waiting._BEHIND), 1000),
    "updated files": (lambda x: x.registry.query(changes._FILES, {"ids": [1, 2, last_partition(x) + 1]}), FEW),
    "what an overwrite replaces": (lambda x: list_visible_partitions(x.registry, x.neighbour.table_id, instance="global"), FEW),
    "what an overwrite of paths has seen": (
        lambda x: x.registry.query(_SEEN, {"table_id": x.neighbour.table_id, "paths": [""], "since": 1000, "instance": "global"}),
        FEW,
    ),
    "slices that retention leaves": (
        lambda x: x.registry.query(
            _STAYING, {"table_id": x.neighbour.table_id, "instance": "global", "ids": [1], "low": 0, "high": x.registry.now()}
        ),
        FEW,
    ),
    "view sets": (lambda x: list_view_sets(x.registry), FEW),
    "figures": (lambda x: metrics.read_metrics(x.registry), 1000),
}
WHOLE = {"figures": {"temporary_files"}}  # the sums of the queue are of all of it
_slots = iter(range(10_000, 20_000))


def slot() -> tuple[int, int]:
    begin = next(_slots)
    return begin, begin + 1


def last_path(large: Large) -> str:
    rows = large.registry.query("SELECT file_path FROM table_files WHERE partition_id = :id", {"id": last_partition(large)})
    return str(rows[0][0])


@pytest.mark.parametrize("name", CALLS)
def test_a_hot_call_reads_what_it_is_about_and_scans_no_table_that_grows(large: Large, name: str) -> None:
    call, most = CALLS[name]
    for _ in range(WARM):
        call(large)

    read = large.count(lambda: call(large))

    assert read.scanned.keys() <= WHOLE.get(name, set())
    assert read.looked_up <= most
