"""Compaction of whole tables: fewer files of a good size, the same rows, a plan that says why, a history of what was done."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compaction_lakes import disk_paths, fill, insert_rows, live_paths, make_orders, read_all
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import ORDERS, SCHEMA, START, arrow_rows, count, fresh_name, grow_schema, logical_dump, seal_pending
from lakebed.compaction import CompactionOptions, Control, compact, plan_compaction
from lakebed.core import fingerprints
from lakebed.core.errors import InvalidNameError, InvalidValueError, TableNotFoundError
from lakebed.parquet.schema.arrow import to_arrow
from lakebed.registry.maintenance.runs import list_runs
from lakebed.registry.tables.lake_tables import TableSpec, create_table, require_table

if TYPE_CHECKING:
    from lakebed.compaction import CompactionPlan
    from lakebed.core.names import TableName
    from lakebed.lake import Lake
    from lakebed.testing import FixedClock


def reasons(plan: CompactionPlan) -> list[tuple[str, str, int]]:
    return [(group.partition_path, group.reason, group.files) for group in plan.groups]


def random_rows(number: int, rows: int) -> pa.Table:
    """Rows that compress badly, in any number."""
    values = random.Random(number)
    columns = [range(number * rows, (number + 1) * rows), [START] * rows, [values.random() for _ in range(rows)]]
    return pa.table(columns, schema=to_arrow(SCHEMA))


def test_small_files_become_one_and_a_second_run_finds_nothing(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 20)
    before, rows = lake.list_partitions(str(ORDERS)), read_all(lake)

    done = compact(lake.registry, lake.storage, str(ORDERS))

    assert (done.files_before, done.files_after, done.rows, done.conflicts) == (20, 1, 400, 0)
    (after,) = lake.list_partitions(str(ORDERS))
    assert after.fingerprint == fingerprints.add(p.fingerprint for p in before)
    assert (after.begin_insert_time, after.end_insert_time) == (before[0].begin_insert_time, before[-1].end_insert_time)
    assert read_all(lake) == rows
    again = compact(lake.registry, lake.storage, str(ORDERS))
    assert (again.runs, again.run_id, [g.reason for g in again.groups]) == ((), None, ["alone"])
    assert lake.check(deep=True).clean


def test_outputs_are_as_many_as_the_target_demands_and_near_it(lake: Lake) -> None:
    make_orders(lake)
    for number in range(50):
        insert_rows(lake, random_rows(number, 2000))
    target = lake.table(str(ORDERS)).row.total_size // 12
    rows = read_all(lake)

    compact(lake.registry, lake.storage, str(ORDERS), CompactionOptions(target_bytes=target))

    sizes = [file.file_size for file in lake.files.list(str(ORDERS))]
    assert len(sizes) == -(-sum(sizes) // target)
    assert [size for size in sizes if not 0.75 * target <= size <= 1.8 * target] == []
    assert read_all(lake) == rows
    assert compact(lake.registry, lake.storage, str(ORDERS), CompactionOptions(target_bytes=target)).runs == ()
    assert lake.check().clean


@pytest.mark.long
def test_500_files_of_a_megabyte_become_files_of_128(lake: Lake) -> None:
    make_orders(lake)
    for number in range(500):
        insert_rows(lake, random_rows(number, 125_000))

    compact(lake.registry, lake.storage, str(ORDERS))

    sizes = [file.file_size for file in lake.files.list(str(ORDERS))]
    assert len(sizes) == -(-sum(sizes) // (128 << 20))
    assert [size for size in sizes if not 0.75 * (128 << 20) <= size <= 1.8 * (128 << 20)] == []
    assert compact(lake.registry, lake.storage, str(ORDERS)).runs == ()


def test_a_dry_run_says_why_and_changes_nothing(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 3)
    before = logical_dump(lake.registry)

    result = compact(lake.registry, lake.storage, str(ORDERS), dry_run=True)

    assert (result.dry_run, result.runs, result.plan.files, result.run_id) == (True, (), 3, None)
    (row,) = result.groups
    assert (row.table, row.instance, row.taken, row.reason, row.files, row.rows, row.files_after) == (
        "shop.orders", "global", True, "small", 3, 60, 1,
    )  # fmt: skip
    assert result.groups.to_arrow().num_rows == 1
    assert logical_dump(lake.registry) == before


def test_no_output_crosses_partition_paths_and_good_files_stay_where_they_are(lake: Lake) -> None:
    schema = to_arrow(SCHEMA)
    make_orders(lake, partition_by=["id"])
    for number in range(3):
        tables = [pa.table([[key] * 5, arrow_rows(number, 5)["ts"], arrow_rows(number, 5)["amount"]], schema=schema) for key in (1, 2, 3)]
        insert_rows(lake, *(tables if number else tables[:2]), paths=["id=1", "id=2", "id=3"][: 3 if number else 2])
    insert_rows(lake, pa.table([[4] * 5, arrow_rows(9, 5)["ts"], arrow_rows(9, 5)["amount"]], schema=schema), paths=["id=4"])
    alone = next(f.file_path for f in lake.files.list(str(ORDERS)) if f.partition_path == "id=4")
    rows = read_all(lake)

    plan = plan_compaction(lake.registry, str(ORDERS))
    done = compact(lake.registry, lake.storage, str(ORDERS))

    assert reasons(plan) == [("id=1", "small", 3), ("id=2", "small", 3), ("id=3", "small", 2), ("id=4", "alone", 1)]
    assert (done.files_before, done.files_after) == (8, 3)
    files = {f.partition_path: f for f in lake.files.list(str(ORDERS))}
    assert {path: f.row_count for path, f in files.items()} == {"id=1": 15, "id=2": 15, "id=3": 10, "id=4": 5}
    assert files["id=4"].file_path == alone
    for path, key in (("id=1", 1), ("id=2", 2), ("id=3", 3)):
        assert set(pq.ParquetFile(files[path].file_path).read().column("id").to_pylist()) == {key}
    assert read_all(lake) == rows
    assert lake.check().clean


def test_only_the_partition_path_that_was_asked_for_is_taken(lake: Lake) -> None:
    schema = to_arrow(SCHEMA)
    make_orders(lake, partition_by=["id"])
    for number in range(2):
        tables = [pa.table([[key] * 5, arrow_rows(number, 5)["ts"], arrow_rows(number, 5)["amount"]], schema=schema) for key in (1, 2)]
        insert_rows(lake, *tables, paths=["id=1", "id=2"])

    done = compact(lake.registry, lake.storage, str(ORDERS), CompactionOptions(partition="id=2"))

    assert reasons(done.plan) == [("id=2", "small", 2), ("id=1", "not_asked", 2)]
    assert sorted(f.partition_path for f in lake.files.list(str(ORDERS))) == ["id=1", "id=1", "id=2"]
    assert lake.check().clean


def test_slices_written_a_moment_ago_are_left_alone_and_never_reached_across(timed_lake: Lake, clock: FixedClock) -> None:
    make_orders(timed_lake)
    fill(timed_lake, 3)
    clock.advance(seconds=100)
    fill(timed_lake, 2, start=10)
    clock.advance(seconds=30)

    hot = compact(timed_lake.registry, timed_lake.storage, str(ORDERS), CompactionOptions(hot_s=60))
    clock.advance(seconds=100)
    cold = compact(timed_lake.registry, timed_lake.storage, str(ORDERS), CompactionOptions(hot_s=60))

    assert reasons(hot.plan) == [("", "small", 3), ("", "hot", 2)]
    assert (hot.files_before, hot.files_after) == (3, 1)
    assert (reasons(cold.plan), cold.files_after) == ([("", "small", 3)], 1)
    assert timed_lake.check().clean


def test_windows_instances_and_schema_versions_stay_apart(timed_lake: Lake, clock: FixedClock) -> None:
    make_orders(timed_lake)
    fill(timed_lake, 2)
    fill(timed_lake, 2, instance="berlin", start=10)
    grow_schema(timed_lake.registry)
    clock.advance(seconds=1)
    rows = to_arrow(require_table(timed_lake.registry, ORDERS).schema)
    for number in (20, 21):
        insert_rows(timed_lake, pa.table([*arrow_rows(number).columns, ["x"] * 50], schema=rows))
    clock.advance(seconds=timedelta(days=1).total_seconds())
    for number in (30, 31):
        insert_rows(timed_lake, pa.table([*arrow_rows(number).columns, ["y"] * 50], schema=rows))
    before = read_all(timed_lake)

    done = compact(timed_lake.registry, timed_lake.storage, str(ORDERS))

    assert sorted((run.instance, run.files_read, run.files_written) for run in done.runs) == [("berlin", 2, 1), *[("global", 2, 1)] * 3]
    assert len({group.schema_hash for group in done.groups}) == 2
    assert read_all(timed_lake) == before
    assert compact(timed_lake.registry, timed_lake.storage, str(ORDERS)).runs == ()
    assert timed_lake.check().clean


def test_one_instance_alone(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 2)
    fill(lake, 2, instance="berlin", start=10)

    done = compact(lake.registry, lake.storage, str(ORDERS), CompactionOptions(instance="berlin"))

    assert [(run.instance, run.files_read) for run in done.runs] == [("berlin", 2)]
    assert lake.check().clean


def test_limits_bound_what_one_call_does_and_the_next_call_goes_on(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 10)
    size = max(f.file_size for f in lake.files.list(str(ORDERS)))

    first = compact(lake.registry, lake.storage, str(ORDERS), CompactionOptions(max_files=4))
    second = compact(lake.registry, lake.storage, str(ORDERS), CompactionOptions(max_bytes=3 * size))
    nothing = compact(lake.registry, lake.storage, str(ORDERS), CompactionOptions(max_files=1))

    assert (first.files_before, first.files_after) == (4, 1)
    assert second.bytes_before <= 3 * size
    assert (nothing.runs, [g.reason for g in nothing.groups]) == ((), ["over_limit"])
    compact(lake.registry, lake.storage, str(ORDERS))
    assert len(lake.files.list(str(ORDERS))) == 1
    assert lake.check().clean


def test_a_swap_is_one_group_of_iceberg_and_pending_files_enter_with_it(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 2)
    seal_pending(lake.registry)
    fill(lake, 2, start=5)

    compact(lake.registry, lake.storage, str(ORDERS))

    rows = lake.registry.query("SELECT added_group, removed_group, retired_seq IS NULL FROM table_files ORDER BY id")
    assert [(a, r, bool(live)) for a, r, live in rows] == [(1, 2, False)] * 2 + [(None, 2, False)] * 2 + [(2, None, True)]


def test_every_compaction_is_in_the_history_with_its_figures(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 3)

    done = compact(lake.registry, lake.storage, str(ORDERS), control=Control(actor="nightly"))

    (run,) = list_runs(lake.registry, job="compact")
    assert (run.run_id, run.state, run.actor, run.plan["files"], run.plan["table"]) == (done.run_id, "done", "nightly", 3, "shop.orders")
    reported = {key: run.result[key] for key in ("runs", "files_in", "files_out", "bytes_in", "conflicts", "engines")}
    assert reported == {"runs": 1, "files_in": 3, "files_out": 1, "bytes_in": done.bytes_before, "conflicts": 0, "engines": ["local"]}


def test_progress_is_reported_after_every_run(timed_lake: Lake, clock: FixedClock) -> None:
    make_orders(timed_lake)
    fill(timed_lake, 2)
    clock.advance(seconds=86_400)
    fill(timed_lake, 2, start=10)
    reported: list[tuple[int, int]] = []

    compact(timed_lake.registry, timed_lake.storage, str(ORDERS), control=Control(progress=lambda *seen: reported.append(seen)))

    assert reported == [(1, 2), (2, 2)]


@pytest.mark.parametrize("asked", range(1, 6))
def test_a_cancelled_compaction_leaves_no_trace(lake: Lake, asked: int) -> None:
    make_orders(lake)
    fill(lake, 70)
    before, disk, files = logical_dump(lake.registry, without=frozenset({"operations", "runs"})), disk_paths(lake), live_paths(lake)
    answers = iter([False] * asked)

    done = compact(lake.registry, lake.storage, str(ORDERS), control=Control(cancelled=lambda: next(answers, True)))

    if done.runs:  # it was too late: nothing was left to cancel
        assert (done.cancelled, [run.state for run in list_runs(lake.registry)]) == (False, ["done"])
        assert len(live_paths(lake)) == 1
    else:
        assert (done.cancelled, [run.state for run in list_runs(lake.registry)]) == (True, ["cancelled"])
        assert (live_paths(lake), disk_paths(lake)) == (files, disk)
        assert logical_dump(lake.registry, without=frozenset({"operations", "runs"})) == before
    assert lake.check().clean


def test_wrong_requests_are_refused_and_change_nothing(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 2)
    before = logical_dump(lake.registry)

    with pytest.raises(TableNotFoundError):
        compact(lake.registry, lake.storage, "shop.nothing")
    with pytest.raises(InvalidValueError, match="target_bytes=-1"):
        CompactionOptions(target_bytes=-1)
    with pytest.raises(InvalidValueError, match="max_files=-1"):
        compact(lake.registry, lake.storage, str(ORDERS), CompactionOptions(max_files=-1))
    with pytest.raises(InvalidNameError):
        CompactionOptions(instance="")

    assert logical_dump(lake.registry) == before


def test_a_sorted_table_stays_sorted_and_its_order_names_columns_as_they_were_first_called(lake: Lake) -> None:
    make_orders(lake, sort_by=["amount"])
    fill(lake, 5)

    compact(lake.registry, lake.storage, str(ORDERS))

    (file,) = lake.files.list(str(ORDERS))
    amounts = pq.ParquetFile(file.file_path).read().column("amount").to_pylist()
    assert amounts == sorted(amounts)
    assert lake.check().clean


def test_runs_of_dead_processes_are_closed_by_the_next_compaction(timed_lake: Lake, clock: FixedClock) -> None:
    make_orders(timed_lake)
    fill(timed_lake, 2)
    table_id = timed_lake.table(str(ORDERS)).table_id
    insert = "INSERT INTO runs (job, table_id, state, plan, result, actor, requested_at, started_at) VALUES ('compact', :t, 'running', '{}', '{}', 'x', :now, :now)"
    with timed_lake.registry.write() as tx:
        tx.run(insert, {"t": table_id, "now": tx.now})
    clock.advance(seconds=3600)

    compact(timed_lake.registry, timed_lake.storage, str(ORDERS))

    done, dead = list_runs(timed_lake.registry)
    assert (done.state, dead.state, dead.result["error"][:17]) == ("done", "failed", "its process ended")


@settings(max_examples=12)
@given(data=st.data())
def test_any_table_keeps_its_multiset_of_rows(lake: Lake, data: st.DataObject) -> None:
    name: TableName = fresh_name()
    create_table(lake.registry, TableSpec(name=name, schema=SCHEMA, event_time="ts"))
    for number in range(data.draw(st.integers(0, 6), label="inserts")):
        sizes = data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=3), label="rows of each file")
        insert_rows(lake, *(arrow_rows(number, rows=rows) for rows in sizes), name=name)
    before = read_all(lake, name)
    target = data.draw(st.integers(500, 20_000), label="target")

    compact(lake.registry, lake.storage, name, CompactionOptions(target_bytes=target))

    assert read_all(lake, name) == before
    assert count(lake.registry, "partitions", f"table_id = {lake.table(str(name)).table_id} AND num_rows = 0") == 0
    assert lake.check().clean
