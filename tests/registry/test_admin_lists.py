"""Lists: one row per partition, file, view set or incompatible partition, the same on both databases."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    DAILY,
    ORDERS,
    START,
    fake_file,
    fresh_name,
    grow_schema,
    insert_hours,
    make_table,
    make_view,
    promote,
    publish,
    stage,
    within,
)
from lakebed import admin
from lakebed.core.errors import InvalidNameError, InvalidRangeError, InvalidValueError, PartitionNotFoundError, TableNotFoundError
from lakebed.core.names import TableName
from lakebed.core.times import from_micros
from lakebed.registry.tables.lake_tables import drop_table

if TYPE_CHECKING:
    from datetime import datetime

    from lakebed.registry.queries.listing import PartitionRow
    from lakebed.registry.registry import Registry


def hour(number: int) -> datetime:
    return START + timedelta(hours=number)


def view_with_two_versions(registry: Registry) -> tuple[str, str]:
    """Hours 0 (full) and 1 (empty) of the first definition, hour 0 of the second, which serves."""
    view = make_view(registry)
    publish(registry, view, fake_file(1), fake_file(2), hours=(0, 1))
    publish(registry, view, hours=(1, 2))
    later = stage(registry)
    publish(registry, view, fake_file(3), hours=(0, 1), schema_hash=later)
    promote(registry, later)
    return view.schema_hash, later


def test_a_partition_is_one_row_with_the_sums_of_its_files(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1), fake_file(2), hours=(0, 1))
    only = fake_file(3)
    publish(registry, table, only, hours=(1, 2))
    publish(registry, table, hours=(2, 3))

    rows = admin.list_partitions(registry)

    assert [(r.file_count, r.file_size, r.file_path, r.num_rows) for r in rows] == [
        (2, 40_000, None, 200),
        (1, 20_000, only.path, 100),
        (0, 0, None, 0),
    ]
    assert {r.view_set_name for r in rows} == {str(ORDERS)}
    assert (rows[0].begin_insert_time, rows[0].end_insert_time) == (hour(0), hour(1))
    assert rows[2].min_event_time is rows[2].max_event_time is None


def test_filters_keep_what_overlaps_half_open(registry: Registry) -> None:
    table = make_table(registry)
    for h in range(4):
        publish(registry, table, fake_file(h), hours=(h, h + 1), instance="left" if h % 2 else "right")

    def hours(**filters: object) -> list[int]:
        return [int((r.begin_insert_time - START) / timedelta(hours=1)) for r in admin.list_partitions(registry, **filters)]  # type: ignore[arg-type]

    assert hours(insert_begin=hour(1), insert_end=hour(3)) == [1, 2]
    assert hours(insert_begin=hour(3)) == [3]
    assert hours(insert_end=hour(1)) == [0]
    assert hours(instance="left") == [1, 3]
    assert hours(instance="nobody") == []
    assert hours(schema_hash=table.schema_hash) == [0, 1, 2, 3]
    assert hours(begin=START, end=START + timedelta(microseconds=1)) == [0, 1, 2, 3]
    assert hours(begin=START + timedelta(microseconds=1000)) == [0, 1, 2, 3]
    assert hours(begin=START + timedelta(microseconds=1001)) == []
    assert hours(end=START) == []


def test_pages_together_are_the_whole(registry: Registry) -> None:
    for name in (ORDERS, TableName("shop", "other")):
        table = make_table(registry, name)
        for h in range(5):
            publish(registry, table, fake_file(h), hours=(h, h + 1))
    found: list[PartitionRow] = []
    after = 0
    while page := admin.list_partitions(registry, after=after, limit=3):
        found += page
        after = page[-1].partition_id

    assert found == list(admin.list_partitions(registry))
    assert len(found) == 10


def test_partitions_are_listed_by_insert_time_whatever_order_they_were_made_in(registry: Registry) -> None:
    orders, other = make_table(registry), make_table(registry, TableName("shop", "other"))
    for table, h in ((orders, 4), (other, 3), (orders, 0), (orders, 2), (other, 1), (other, 2)):
        publish(registry, table, fake_file(h), hours=(h, h + 1))

    every = admin.list_partitions(registry)

    assert [r.begin_insert_time for r in every] == [hour(h) for h in (0, 1, 2, 2, 3, 4)]
    assert [r.begin_insert_time for r in admin.list_partitions(registry, str(ORDERS))] == [hour(h) for h in (0, 2, 4)]
    pages = [admin.list_partitions(registry, after=0 if n == 0 else every[n - 1].partition_id, limit=2) for n in (0, 2, 4)]
    assert [row for page in pages for row in page] == list(every)


def test_a_page_after_a_partition_that_is_gone_is_refused_and_says_how_to_go_on(registry: Registry) -> None:
    table = make_table(registry)
    for h in range(3):
        publish(registry, table, fake_file(h), hours=(h, h + 1))
    last = admin.list_partitions(registry, limit=2)[-1]
    admin.retire_partitions(registry, str(ORDERS), insert_begin=hour(1), insert_end=hour(2), dry_run=False)

    with pytest.raises(PartitionNotFoundError, match="continue with insert_begin"):
        admin.list_partitions(registry, after=last.partition_id)

    assert [r.begin_insert_time for r in admin.list_partitions(registry, insert_begin=last.begin_insert_time)] == [hour(2)]


def test_every_list_of_an_empty_registry_has_its_columns(registry: Registry) -> None:
    for empty in (
        admin.list_partitions(registry),
        admin.list_files(registry),
        admin.list_view_sets(registry),
        admin.list_incompatible_partitions(registry),
    ):
        assert empty == []
        assert empty.to_arrow().num_columns == len(empty.columns) > 10


def test_the_columns_of_partitions_are_the_ones_people_rely_on(registry: Registry) -> None:
    schema = admin.list_partitions(registry).to_arrow().schema

    assert schema.names == [
        "partition_id", "view_set_name", "table_id", "view_instance_id", "begin_insert_time", "end_insert_time", "min_event_time",
        "max_event_time", "schema_hash", "source_data_hash", "lookup_hash", "fingerprint", "num_rows", "partition_format_version", "updated",
        "file_count", "file_size", "file_path",
    ]  # fmt: skip
    assert schema.field("updated").type == pa.timestamp("us", tz="UTC")


def test_files_of_all_tables_name_their_table(registry: Registry) -> None:
    orders, other = make_table(registry), make_table(registry, TableName("shop", "other"))
    publish(registry, orders, fake_file(1), fake_file(2))
    publish(registry, other, fake_file(3))

    assert [f.view_set_name for f in admin.list_files(registry)] == ["shop.orders", "shop.orders", "shop.other"]
    assert len(admin.list_files(registry, "shop.other")) == 1


def test_retired_files_are_listed_on_request(registry: Registry) -> None:
    publish(registry, make_table(registry), fake_file(1), hours=(0, 1))
    admin.retire_partitions(registry, str(ORDERS), insert_begin=hour(0), insert_end=hour(1), dry_run=False)

    assert admin.list_files(registry) == []
    (gone,) = admin.list_files(registry, retired=True)
    assert gone.retired_seq is not None


def test_view_sets_show_what_serves_and_what_is_staged(registry: Registry) -> None:
    make_table(registry)
    view = make_view(registry)
    publish(registry, view, fake_file(1), hours=(0, 1))
    staged = stage(registry)

    (row,) = admin.list_view_sets(registry)

    assert (row.view_set_name, row.schema_hash, row.staged_schema_hash) == (str(DAILY), view.schema_hash, staged)
    assert (row.definition, row.partition_count, row.row_count) == ("SELECT 1", 1, 100)


def test_what_a_promotion_left_behind_is_incompatible_empty_slices_too(registry: Registry) -> None:
    old, new = view_with_two_versions(registry)

    rows = admin.list_incompatible_partitions(registry, str(DAILY))

    assert [(r.reason, r.schema_hash, r.current_schema_hash) for r in rows] == [("schema", old, new)] * 2
    assert [r.incompatible_schema_hash for r in rows] == [old, old]
    assert [(r.num_rows, r.file_count, r.file_size, r.file_path) for r in rows] == [(200, 2, 40_000, None), (0, 0, 0, None)]


def test_a_staged_version_is_not_incompatible(registry: Registry) -> None:
    view = make_view(registry)
    later = stage(registry)
    publish(registry, view, fake_file(1), hours=(0, 1), schema_hash=later)

    assert admin.list_incompatible_partitions(registry) == []


def test_a_plain_table_that_grew_has_nothing_incompatible(registry: Registry) -> None:
    publish(registry, make_table(registry), fake_file(1))
    grow_schema(registry)

    assert admin.list_incompatible_partitions(registry) == []


def test_partitions_of_a_dropped_table_are_those_of_an_unknown_view_set(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1), hours=(0, 1))
    publish(registry, table, hours=(1, 2))
    within(registry, lambda tx: drop_table(tx, ORDERS))
    make_table(registry)  # the same name again is another table

    rows = admin.list_incompatible_partitions(registry)

    assert [(r.reason, r.view_set_name, r.current_schema_hash, r.num_rows) for r in rows] == [
        ("unknown view set", str(ORDERS), None, 100),
        ("unknown view set", str(ORDERS), None, 0),
    ]
    assert admin.list_partitions(registry) == []
    assert admin.list_incompatible_partitions(registry, str(ORDERS)) == []


def test_a_partition_of_an_unknown_format_is_incompatible(registry: Registry) -> None:
    file = fake_file(1)
    done = publish(registry, make_table(registry), file)
    within(registry, lambda tx: tx.run("UPDATE partitions SET partition_format_version = 9 WHERE id = :id", {"id": done.partition_id}))

    (row,) = admin.list_incompatible_partitions(registry)

    assert (row.reason, row.partition_format_version, row.schema_hash) == ("format", 9, row.current_schema_hash)
    assert (row.file_path, row.file_size, row.num_rows) == (file.path, file.size_bytes, file.row_count)


def test_an_unknown_table_and_impossible_ranges_are_refused(registry: Registry) -> None:
    make_table(registry)
    with pytest.raises(TableNotFoundError):
        admin.list_partitions(registry, "shop.nothing")
    with pytest.raises(InvalidNameError):
        admin.list_files(registry, "orders")
    with pytest.raises(InvalidRangeError):
        admin.list_partitions(registry, insert_begin=hour(1), insert_end=hour(1))
    with pytest.raises(InvalidValueError):
        admin.list_partitions(registry, limit=-1)


@settings(max_examples=20)
@given(
    edges=st.lists(st.integers(0, 12), min_size=2, max_size=6, unique=True).map(sorted),
    begin=st.none() | st.integers(0, 12),
    end=st.none() | st.integers(0, 12),
)
def test_a_filtered_list_is_the_whole_list_filtered(registry: Registry, edges: list[int], begin: int | None, end: int | None) -> None:
    table = make_table(registry, name := fresh_name())
    for first, last in pairwise(edges):
        publish(registry, table, *([fake_file(first)] if first % 2 else []), hours=(first, last))
    everything = admin.list_partitions(registry, str(name))
    low, high = (None if edge is None else from_micros(insert_hours(edge, edge + 1).begin) for edge in (begin, end))
    if low is not None and high is not None and low >= high:
        with pytest.raises(InvalidRangeError):
            admin.list_partitions(registry, str(name), insert_begin=low, insert_end=high)
        return

    found = admin.list_partitions(registry, str(name), insert_begin=low, insert_end=high)

    assert found == [r for r in everything if (low is None or r.end_insert_time > low) and (high is None or r.begin_insert_time < high)]


@settings(max_examples=30)
@given(table=st.text(max_size=20), instance=st.text(max_size=20), after=st.integers(-5, 1 << 70))
def test_any_arguments_end_in_a_list_or_a_typed_refusal(registry: Registry, table: str, instance: str, after: int) -> None:
    for call in (
        lambda: admin.list_partitions(registry, table, instance=instance),
        lambda: admin.list_partitions(registry, instance=instance, after=after),
        lambda: admin.list_files(registry, after=after),
        lambda: admin.list_incompatible_partitions(registry, table),
    ):
        with suppress(InvalidNameError, TableNotFoundError, InvalidValueError, PartitionNotFoundError):
            assert len(call()) >= 0
