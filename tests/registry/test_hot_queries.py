"""Hot queries use an index on both databases, and their number does not grow with the table."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from builders import LONG, ORDERS, fake_file, make_table, new_partition, operation, publish, within
from lakebed.check.rules import iceberg as check_iceberg
from lakebed.core.names import TableName
from lakebed.core.schema import bounds
from lakebed.registry.connect import open_backend
from lakebed.registry.files import batches, deletion_queue, footers, operations
from lakebed.registry.journal import changes
from lakebed.registry.open import open_registry
from lakebed.registry.partitions import replace
from lakebed.registry.partitions.publish import _OVERLAP, publish_partition
from lakebed.registry.queries import plans, small_files
from lakebed.registry.queries.plans import ColumnRange, read_plan
from lakebed.registry.registry import Registry
from lakebed.registry.snapshots import history
from lakebed.registry.tables import expired, groups
from lakebed.registry.tables.lake_tables import require_table
from lakebed.testing import SteppedBackend, Steps
from retiring import retire_by_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from conftest import Databases
    from lakebed.registry.backends.protocol import RawRows
    from lakebed.registry.backends.statements import Dialect
    from lakebed.registry.transaction import Reader

MANY = 3000
POINT = ColumnRange(
    field_id=1,
    lower=bounds.lower_bound(LONG, 150_500),
    upper=bounds.upper_bound(LONG, 150_500),
    lower_coordinate=150500.0,
    upper_coordinate=150500.0,
)


@dataclass
class Explained:
    """A reader that asks the database how it would answer, beside the answer."""

    real: Reader
    plans: list[str] = field(default_factory=list)

    @property
    def dialect(self) -> Dialect:
        return self.real.dialect

    @property
    def indexed_fields(self) -> dict[int, tuple[int, ...]]:
        return self.real.indexed_fields

    def __post_init__(self) -> None:
        if self.dialect == "postgresql":  # so that a scan is left only where no index could serve, whatever the size
            self.real._connection.run("SET LOCAL enable_seqscan = off")

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> RawRows:
        how = "EXPLAIN QUERY PLAN " if self.dialect == "sqlite" else "EXPLAIN "
        self.plans.append("\n".join(str(row[-1]) for row in self.real.query(how + sql, params)))
        return self.real.query(sql, params)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, databases: Databases) -> Iterator[str]:
    made = databases.new(request.param)
    yield made
    databases.drop(made)


@pytest.fixture(scope="module")
def full(url: str) -> Iterator[Registry]:
    """A table with thousands of files in many partitions and paths, and another beside it."""
    registry = open_registry(url)
    for name in (ORDERS, TableName("shop", "returns")):
        table = make_table(registry, name)
        for start in range(0, MANY, 100):
            files = [fake_file(start + n, partition_path=f"p={(start + n) % 50}") for n in range(100)]
            publish(registry, table, *files, hours=(start, start + 1))
    gone = registry.query("SELECT min(id) FROM partitions")[0][0]
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {gone}))
    with registry.write() as tx:
        tx.send("ANALYZE")
    yield registry
    registry.close()


def explain(registry: Registry, sql: str, params: dict[str, Any]) -> str:
    with registry.read() as reader:
        explained = Explained(reader)
        explained.query(sql, params)
    return explained.plans[-1]


def test_a_point_query_is_led_by_the_range_index(full: Registry) -> None:
    with full.read() as reader:
        explained = Explained(reader)
        plan = read_plan(explained, ORDERS, ranges=[POINT])  # type: ignore[arg-type]

    assert len(plan.paths) == 1
    assert "file_ranges_bin" in explained.plans[-1]
    assert "SCAN f" not in explained.plans[-1]
    assert "Seq Scan" not in explained.plans[-1]


def test_one_partition_path_is_read_from_the_index_of_live_files_alone(full: Registry) -> None:
    with full.read() as reader:
        explained = Explained(reader)
        plan = read_plan(explained, ORDERS, partition_paths=["p=7"])  # type: ignore[arg-type]

    assert len(plan.paths) == MANY // 50 - 2
    assert "table_files_live" in explained.plans[-1]


def test_all_files_are_found_by_the_index_of_live_files(full: Registry) -> None:
    with full.read() as reader:
        explained = Explained(reader)
        read_plan(explained, ORDERS)  # type: ignore[arg-type]

    assert "table_files_live" in explained.plans[-1]


GROUPED: dict[str, tuple[str, dict[str, Any]]] = {
    "what a step adds": (groups._ADDED, {"table_id": 1, "low": 3, "high": 4}),
    "files of a group": (groups._AT_GROUP, {"table_id": 1, "g": 4}),
    "ids of a group": (groups._IDS_AT_GROUP, {"table_id": 1, "g": 4}),
    "totals": (history._TOTALS, {"id": 1, "g": 4}),
    "files that the check expects": (check_iceberg._AT_GROUP, {"id": 1, "g": 4}),
}


@pytest.mark.parametrize("case", GROUPED)
def test_what_a_group_holds_is_found_by_the_index_of_groups(full: Registry, case: str) -> None:
    plan = explain(full, *GROUPED[case])

    assert "table_files_added_group" in plan
    assert "Seq Scan" not in plan
    assert not [line for line in plan.splitlines() if line.startswith("SCAN") and "table_files" in line]


def test_what_a_step_removes_is_found_by_an_index_of_its_own(full: Registry) -> None:
    if full.dialect == "postgresql":
        pytest.skip("its planner chooses by size: test_plans_at_scale counts what it reads")

    assert "table_files_removed_group" in explain(full, groups._REMOVED, {"table_id": 1, "low": 3, "high": 4})


RANGED: dict[str, tuple[str, dict[str, Any], str]] = {
    "number of a time": (plans._NUMBER_AT, {"table_id": 1, "at": 5}, "table_files"),
    "files that the check knows": (check_iceberg._KNOWN, {"id": 1}, "table_files"),
    "what an overwrite has seen": (replace._SEEN, {"table_id": 1, "paths": ["p=1"], "since": 5, "instance": "global"}, "table_files"),
    "what an overwrite replaces": (replace._PARTITIONS, {"table_id": 1, "instance": "global"}, "partitions"),
    "slices that stay": (expired._STAYING, {"table_id": 1, "instance": "global", "ids": [1], "low": 1, "high": 2}, "partitions"),
}


@pytest.mark.parametrize("case", RANGED)
def test_what_no_index_knows_is_looked_for_among_the_ids_of_its_table(full: Registry, case: str) -> None:
    sql, params, table = RANGED[case]

    plan = explain(full, sql, params)

    assert f"{table}_pkey" in plan or "INTEGER PRIMARY KEY (rowid>? AND rowid<?)" in plan
    assert "Seq Scan" not in plan


def test_a_journal_number_is_looked_for_among_the_ids_of_its_table(full: Registry) -> None:
    number = changes.last_journal_numbers(full)[require_table(full, ORDERS).table_id]
    with full.read() as reader:
        explained = Explained(reader)
        plan = read_plan(explained, ORDERS, as_of=number)  # type: ignore[arg-type]

    assert len(plan.paths) == MANY - 100
    assert "table_files_pkey" in explained.plans[-1] or "INTEGER PRIMARY KEY (rowid>? AND rowid<?)" in explained.plans[-1]


PATH = {"path": "/nothing"}
BATCH = {"table_id": 1, "app_id": "app", "batch_id": 5}
HOT: dict[str, tuple[str, dict[str, Any], str]] = {
    "overlap": (_OVERLAP, {"scope": 1, "begin": 5, "end": 6}, "partition"),
    "operation": (operations._FIND, {"op_id": "0" * 32}, "operations"),
    "batch": (batches._THIS, BATCH, "operations"),
    "newest batch": (batches._NEWEST, BATCH, "operations"),
    "footer": (footers._LOAD, PATH, "partition_metadata"),
    "journal": (changes._READ, {"table_id": 1, "after": 5, "limit": 10}, "change_log"),
    "updated files": (changes._FILES, {"ids": [1, 2]}, "table_files"),
    "deleted files": (changes._DELETED, {"ids": [1, 2]}, "change_log"),
    "cursors": (changes._CURSORS, {"table_id": 1}, ""),
    "JSON files": (small_files._JSON, {"table_id": 1}, "table_files"),
    "pending files": (f"SELECT 1 FROM table_files WHERE {groups.PENDING} LIMIT 1", {"table_id": 1}, "table_files"),
}


def test_the_queue_of_temporary_files_is_read_in_the_order_of_its_index(full: Registry) -> None:
    plan = explain(full, deletion_queue._FIND[full.dialect], {"now": 5, "limit": 10})

    assert "temporary_files_expiration" in plan or "SEARCH q" in plan
    assert "SCAN f" not in plan
    assert "Seq Scan on table_files" not in plan


@pytest.mark.parametrize("case", HOT)
def test_no_hot_query_scans_a_table_that_grows(full: Registry, case: str) -> None:
    sql, params, table = HOT[case]

    plan = explain(full, sql, params)

    grown = [
        line for line in plan.splitlines() if ("SCAN" in line and "json_each" not in line and "USING" not in line) or "Seq Scan" in line
    ]
    assert not [line for line in grown if table and table in line], plan


def test_the_number_of_statements_of_an_insert_does_not_depend_on_the_table(full: Registry, url: str) -> None:
    counts, steps = [], Steps()
    with closing(Registry(SteppedBackend(open_backend(url), steps))) as stepped:
        for table in (require_table(full, ORDERS), make_table(full, TableName("shop", "small"))):
            for number in range(3):  # the first ones fill caches
                steps.done.clear()
                publish_partition(stepped, new_partition(table, fake_file(number)), operation())
            counts.append(len(steps.done))

    assert counts[0] == counts[1] < 12
