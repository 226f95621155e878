"""Publishing one partition: what becomes true together, and what is refused without a trace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from builders import (
    DAILY,
    ORDERS,
    count,
    fake_file,
    grow_schema,
    insert_hours,
    logical_dump,
    make_table,
    make_view,
    new_partition,
    op_id,
    operation,
    publish,
    within,
)
from lakebed.core.errors import FileConflictError, InvalidValueError, PartitionConflictError, SchemaRefusedError, TableNotFoundError
from lakebed.core.files import FileType
from lakebed.core.names import TableName
from lakebed.core.times import TimeRange, to_micros
from lakebed.registry.files.footers import load_footer
from lakebed.registry.files.operations import Operation, find_operation
from lakebed.registry.partitions.publish import publish_partition, update_table_files
from lakebed.registry.queries.listing import list_files, list_partitions
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry


def test_a_published_partition_is_there_with_files_footers_and_statistics(registry: Registry) -> None:
    table, files = make_table(registry), [fake_file(n) for n in range(3)]

    done = publish(registry, table, *files)

    (row,) = list_partitions(registry, table.table_id)
    assert (row.partition_id, row.num_rows, row.file_count, row.file_size) == (done.partition_id, 300, 3, 60_000)
    assert [f.file_path for f in list_files(registry, table.table_id)] == [f.path for f in files]
    assert [load_footer(registry, f.path) for f in files] == [f.footer.tail for f in files if f.footer]
    assert [count(registry, t) for t in ("file_columns", "partition_metadata")] == [3, 3]


def test_a_window_is_kept_to_the_microsecond(registry: Registry) -> None:
    table = make_table(registry)
    window = TimeRange(begin=1_700_000_000_000_001, end=1_700_000_000_000_003)

    publish_partition(registry, replace(new_partition(table, fake_file(1)), insert_range=window), operation())

    (row,) = list_partitions(registry, table.table_id)
    assert (to_micros(row.begin_insert_time), to_micros(row.end_insert_time)) == (window.begin, window.end)


def test_an_empty_partition_proves_that_the_slice_was_processed(registry: Registry) -> None:
    table = make_table(registry)

    publish(registry, table, hours=(0, 1))

    (row,) = list_partitions(registry, table.table_id)
    assert (row.num_rows, row.file_count, row.file_size, row.file_path) == (0, 0, 0, None)
    assert row.min_event_time is row.max_event_time is None
    assert [count(registry, t) for t in ("table_files", "partition_metadata", "table_stats")] == [0, 0, 0]


def test_the_same_key_twice_is_refused_even_when_both_are_empty(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, hours=(0, 1))
    before = logical_dump(registry)

    with pytest.raises(PartitionConflictError):
        publish(registry, table, hours=(0, 1))

    assert logical_dump(registry) == before


@pytest.mark.parametrize("hours", [(1, 2), (0, 1), (0, 2), (1, 3), (2, 5), (0, 9)])
def test_an_overlap_inside_one_schema_names_the_slice_that_was_found(registry: Registry, hours: tuple[int, int]) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1), hours=(0, 3))
    before = logical_dump(registry)

    with pytest.raises(PartitionConflictError) as refused:
        publish(registry, table, fake_file(2), hours=hours)

    assert refused.value.found == "shop.orders/global [2026-01-01T00:00:00Z, 2026-01-01T03:00:00Z)"
    assert str(insert_hours(*hours)) in refused.value.wanted
    assert logical_dump(registry) == before


def test_touching_slices_do_not_overlap(registry: Registry) -> None:
    table = make_table(registry)

    for hours in [(1, 2), (0, 1), (2, 3)]:
        publish(registry, table, fake_file(hours[0]), hours=hours)

    assert count(registry, "partitions") == 3


def test_an_overlap_across_schemas_or_instances_is_accepted(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1), hours=(0, 3))
    later = grow_schema(registry)

    publish(registry, table, fake_file(2), hours=(1, 2), schema_hash=later)
    publish(registry, table, fake_file(3), hours=(1, 2), instance="tenant-7")

    assert count(registry, "partitions") == 3


def test_a_partition_of_an_unknown_schema_is_refused(registry: Registry) -> None:
    table = make_table(registry)
    before = logical_dump(registry)

    with pytest.raises(SchemaRefusedError, match=r"shop\.orders: no version has the schema hash beef: read the table again"):
        publish(registry, table, fake_file(1), schema_hash="beef")

    assert logical_dump(registry) == before


def test_a_partition_with_rows_needs_its_event_range_where_the_table_has_an_event_time(registry: Registry) -> None:
    timed, untimed = make_table(registry), make_table(registry, TableName("shop", "returns"), event_time=None)

    with pytest.raises(InvalidValueError, match="needs its event range"):
        publish_partition(registry, replace(new_partition(timed, fake_file(1)), event_range=None), operation())
    publish_partition(registry, replace(new_partition(untimed, fake_file(2)), event_range=None), operation())

    assert count(registry, "partitions") == 1


def test_an_event_range_the_wrong_way_round_is_refused(registry: Registry) -> None:
    partition = new_partition(make_table(registry), fake_file(1))

    with pytest.raises(InvalidValueError, match=r"shop\.orders: the event range ends before it begins"):
        replace(partition, event_range=(5, 4))
    with pytest.raises(InvalidValueError, match="an empty partition has no event range"):
        replace(partition, files=(), event_range=(4, 5))


def test_a_path_is_registered_once_in_the_whole_lake(registry: Registry) -> None:
    orders, returns, taken = make_table(registry), make_table(registry, TableName("shop", "returns")), fake_file(1)
    publish(registry, orders, taken)
    before = logical_dump(registry)

    for table in (orders, returns):
        with pytest.raises(FileConflictError, match="paths are never reused"):
            publish(registry, table, fake_file(2), taken)

    assert logical_dump(registry) == before


def test_the_path_of_a_retired_file_never_comes_back(registry: Registry) -> None:
    table, once = make_table(registry), fake_file(1)
    done = publish(registry, table, once)
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {done.partition_id}))

    with pytest.raises(FileConflictError):
        publish(registry, table, once)


def test_all_files_of_one_transaction_carry_one_stamp(registry: Registry) -> None:
    table = make_table(registry)
    first = publish(registry, table, *[fake_file(n) for n in range(4)])

    second = publish(registry, table, *[fake_file(n) for n in range(4, 6)])

    stamps = [f.added_seq for f in list_files(registry, table.table_id)]
    assert stamps == [first.journal_number] * 4 + [second.journal_number] * 2
    assert first.journal_number < second.journal_number


def test_a_json_file_is_tracked_without_a_footer_and_stays_pending(registry: Registry) -> None:
    table = make_table(registry)
    made = fake_file(1)
    plain = replace(made, path=made.path.replace(".parquet", ".json"), file_type=FileType.JSON, footer=None, columns=())
    old = publish(registry, table, fake_file(2), hours=(0, 1))

    publish(registry, table, plain, hours=(0, 1), replacing=frozenset({old.partition_id}))

    (row,) = list_files(registry, table.table_id)
    assert (row.file_type, row.added_group) == ("json", None)
    assert count(registry, "partition_metadata") == 1  # the replaced file's, until its deletion is final


def test_the_same_batch_twice_gets_the_first_answer_and_changes_nothing(registry: Registry) -> None:
    table = make_table(registry)
    first = publish(registry, table, fake_file(1), operation=Operation(op_id=op_id(), app_id="stream", batch_id=7))
    before = logical_dump(registry)

    again = publish(registry, table, fake_file(2), operation=Operation(op_id=op_id(), app_id="stream", batch_id=7))

    assert again == first
    assert logical_dump(registry) == before


def test_other_batches_other_apps_and_other_tables_are_other_batches(registry: Registry) -> None:
    orders, returns = make_table(registry), make_table(registry, TableName("shop", "returns"))

    for number, (table, app, batch) in enumerate([(orders, "a", 1), (orders, "a", 2), (orders, "b", 1), (returns, "a", 1)]):
        publish(registry, table, fake_file(number), operation=Operation(op_id=op_id(), app_id=app, batch_id=batch))

    assert count(registry, "partitions") == 4


def test_an_operation_is_registered_with_its_answer(registry: Registry) -> None:
    table, work = make_table(registry), operation()

    done = publish(registry, table, fake_file(1), operation=work)

    found = find_operation(registry, work.op_id)
    assert found is not None
    assert (found.state, type(done).from_json(found.result or "")) == ("registered", done)


def test_publishing_into_an_unknown_or_dropped_table_is_refused(registry: Registry) -> None:
    table = make_table(registry)
    stranger = replace(new_partition(table, fake_file(1)), table=TableName("shop", "nothing"))

    with pytest.raises(TableNotFoundError, match=r"there is no table 'shop\.nothing'"):
        publish_partition(registry, stranger, operation())


def test_forty_thousand_paths_need_no_parameter_limit(registry: Registry) -> None:
    table = make_view(registry)
    done = publish(registry, table, *[fake_file(n) for n in range(3000)], hours=(0, 1))

    within(registry, lambda tx: retire_by_ids(tx, DAILY, {done.partition_id} | set(range(40_000)), exactly=False), DAILY)

    assert count(registry, "temporary_files") == 3000


def test_registering_one_file_by_hand_is_idempotent_by_checksum(registry: Registry) -> None:
    table, offered = make_table(registry), fake_file(1)

    first = within(registry, lambda tx: update_table_files(tx, new_partition(table, offered), operation(), skip_known=True))
    again = within(registry, lambda tx: update_table_files(tx, new_partition(table, offered), operation(), skip_known=True))

    assert first is not None
    assert again is None
    assert count(registry, "table_files") == 1


def test_the_same_path_with_another_checksum_is_a_conflict(registry: Registry) -> None:
    table, offered = make_table(registry), fake_file(1)
    publish(registry, table, offered)
    before = logical_dump(registry)
    changed = replace(offered, checksum="0" * 64)

    with pytest.raises(FileConflictError, match="registered with other content"):
        within(registry, lambda tx: update_table_files(tx, new_partition(table, changed), operation(), skip_known=True))

    assert logical_dump(registry) == before


def test_registering_a_retired_path_by_hand_is_a_conflict(registry: Registry) -> None:
    table, offered = make_table(registry), fake_file(1)
    done = publish(registry, table, offered)
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {done.partition_id}))

    with pytest.raises(FileConflictError, match="it was retired"):
        within(registry, lambda tx: update_table_files(tx, new_partition(table, offered), operation(), skip_known=True))


def test_registering_by_hand_takes_exactly_one_file_of_a_known_table(registry: Registry) -> None:
    table = make_table(registry)

    with pytest.raises(InvalidValueError, match="exactly one file"):
        within(registry, lambda tx: update_table_files(tx, new_partition(table), operation(), skip_known=True))
    with pytest.raises(TableNotFoundError):
        within(
            registry,
            lambda tx: update_table_files(tx, replace(new_partition(table, fake_file(1)), table=DAILY), operation(), skip_known=True),
        )
