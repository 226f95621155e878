"""Planning beyond ranges: nulls, instances, kinds of files, partition paths, counts, and times of the past."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from builders import ORDERS, START, fake_file, grow_schema, make_table, micros_of, publish, within
from lakebed.core.errors import InvalidValueError
from lakebed.core.files import ColumnStatistics, FileType
from lakebed.registry.files.deletion_queue import claim_expired, finalize_deleted
from lakebed.registry.queries.plans import (
    ColumnRange,
    FileCount,
    NullTest,
    count_files,
    find_event_range,
    find_number_at,
    list_json,
    list_partition_paths,
)
from planning import plan_files
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.core.files import NewFile
    from lakebed.registry.registry import Registry


def with_nulls(number: int, nulls: int | None) -> NewFile:
    file = fake_file(number)
    return replace(file, columns=(ColumnStatistics(field_id=1, null_count=nulls, value_count=100),))


def test_files_are_left_out_by_their_counts_of_nulls(registry: Registry) -> None:
    table = make_table(registry)
    none, some, only, unknown, silent = (with_nulls(n, nulls) for n, nulls in enumerate([0, 5, 100, None, 0]))
    silent = replace(silent, columns=())
    publish(registry, table, none, some, only, unknown, silent)

    wanted_null = plan_files(registry, ORDERS, nulls=[NullTest(field_id=1, is_null=True)])
    wanted_value = plan_files(registry, ORDERS, nulls=[NullTest(field_id=1, is_null=False)])

    assert sorted(wanted_null.paths) == sorted(f.path for f in (some, only, unknown, silent))
    assert sorted(wanted_value.paths) == sorted(f.path for f in (none, some, unknown, silent))


def test_a_column_that_came_later_may_be_null_and_may_not_be(registry: Registry) -> None:
    table, old = make_table(registry), fake_file(1)
    publish(registry, table, old)
    grow_schema(registry, field_id=9)

    for is_null in (True, False):
        assert plan_files(registry, ORDERS, nulls=[NullTest(field_id=9, is_null=is_null)]).paths == [old.path]


def test_an_instance_is_planned_alone_but_not_in_the_past(registry: Registry) -> None:
    table, ours, theirs = make_table(registry), fake_file(1), fake_file(2)
    publish(registry, table, ours, instance="mine")
    publish(registry, table, theirs)

    assert plan_files(registry, ORDERS, instance="mine").paths == [ours.path]
    assert plan_files(registry, ORDERS, instance="global").paths == [theirs.path]
    assert plan_files(registry, ORDERS, instance="nobody").paths == []
    with pytest.raises(InvalidValueError, match=r"shop\.orders: an earlier state can be read for all instances only"):
        plan_files(registry, ORDERS, instance="mine", as_of=1)


def test_json_files_are_recognized_by_the_registry_not_by_their_names(registry: Registry) -> None:
    table = make_table(registry)
    parquet, odd, json, bare = fake_file(1), fake_file(2), fake_file(3), fake_file(4)
    odd = replace(odd, path=odd.path.replace(".parquet", ".json"))
    json = replace(json, path=json.path.replace(".parquet", ".log"), file_type=FileType.JSON, footer=None)
    bare = replace(bare, path=bare.path.replace(".parquet", ""))
    publish(registry, table, parquet, odd, json, bare)

    assert list_json(registry, plan_files(registry, ORDERS).paths) == {json.path}
    assert list_json(registry, [parquet.path]) == frozenset()


def test_no_json_file_may_be_called_parquet() -> None:
    with pytest.raises(InvalidValueError, match=r"only a Parquet file may be called \*\.parquet"):
        replace(fake_file(1), file_type=FileType.JSON, footer=None)


def test_counting_agrees_with_planning(registry: Registry) -> None:
    table = make_table(registry)
    files = [fake_file(n, partition_path=f"day={n % 2}", rows=100 + n, size_bytes=1000 + n) for n in range(6)]
    publish(registry, table, *files)
    one_day = [f for f in files if f.partition_path == "day=1"]

    with registry.read() as reader:
        assert count_files(reader, ORDERS) == FileCount(files=6, rows=615, size_bytes=6015)
        counted = count_files(reader, ORDERS, partition_paths=["day=1"])
        nothing = count_files(reader, ORDERS, ranges=[ColumnRange(field_id=1, lower=b"\xff" * 8)])

    assert counted == FileCount(files=3, rows=sum(f.row_count for f in one_day), size_bytes=sum(f.size_bytes for f in one_day))
    assert nothing == FileCount(files=0, rows=0, size_bytes=0)


def test_partition_paths_are_those_of_now_or_of_then(registry: Registry) -> None:
    table = make_table(registry)
    first = publish(registry, table, fake_file(1, partition_path="day=1"))
    second = publish(registry, table, fake_file(2, partition_path="day=2"))
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {first.partition_id}))

    with registry.read() as reader:
        assert list_partition_paths(reader, table.table_id) == ["day=2"]
        assert sorted(list_partition_paths(reader, table.table_id, as_of=second.journal_number)) == ["day=1", "day=2"]
        assert list_partition_paths(reader, table.table_id, as_of=first.journal_number) == ["day=1"]


def test_the_event_range_is_that_of_the_visible_rows(registry: Registry) -> None:
    table = make_table(registry)
    with registry.read() as reader:
        assert find_event_range(reader, table.table_id) is None

    publish(registry, table, fake_file(1))

    with registry.read() as reader:
        assert find_event_range(reader, table.table_id) == (micros_of(START), micros_of(START) + 1000)


def test_a_time_in_the_millisecond_of_a_retirement_is_before_it(registry: Registry) -> None:
    table = make_table(registry)
    for number in range(20):  # SQLite's triggers know milliseconds only: one of these falls into the same one
        done = publish(registry, table, fake_file(number))
        before = registry.now()
        _retire_and_clean(registry, {done.partition_id})

        with pytest.raises(InvalidValueError, match="is not kept any more"):
            find_number_at(registry, table.table_id, before)


def test_a_time_whose_files_are_gone_is_refused_with_the_nearest_that_is_kept(registry: Registry) -> None:
    table = make_table(registry)
    done = [publish(registry, table, fake_file(number)) for number in range(4)]
    before = registry.now()
    after = _retire_and_clean(registry, {done[0].partition_id, done[1].partition_id})

    with pytest.raises(InvalidValueError, match=r"is not kept any more: the nearest that is kept is journal number \d+ of 20"):
        find_number_at(registry, table.table_id, before)
    for moment in (after, registry.now()):
        number = find_number_at(registry, table.table_id, moment)
        assert len(plan_files(registry, ORDERS, as_of=number).paths) == 2


def _retire_and_clean(registry: Registry, partition_ids: set[int]) -> int:
    """The moment between the two."""
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, partition_ids, grace_us=0))
    between = registry.now()
    claim = claim_expired(registry, limit=10)
    finalize_deleted(registry, claim, [f.path for f in claim.files])
    return between
