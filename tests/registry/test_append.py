"""PostgreSQL appends in one call; anything but a plain append must take the general way, with the same answer."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from builders import ORDERS, count, fake_file, grow_schema, make_table, new_partition, operation, publish, within
from lakebed.check import check
from lakebed.core.errors import ClockRegressedError, InvalidValueError, OperationConflictError, SchemaRefusedError, TableNotFoundError
from lakebed.registry.connect import open_backend
from lakebed.registry.files.operations import Operation, open_operation, start_rollback
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.registry import Registry
from lakebed.registry.schema.append_function import NAME, append_function
from lakebed.registry.tables.lake_tables import drop_table, require_table
from lakebed.testing import SteppedBackend, Steps

if TYPE_CHECKING:
    from lakebed.testing import FixedClock


def test_from_the_second_append_on_one_call_is_the_whole_transaction(url: str, kind: str) -> None:
    steps = Steps()
    registry = Registry(SteppedBackend(open_backend(url), steps))
    table = make_table(registry)
    publish(registry, table, fake_file(1))
    steps.done.clear()

    publish(registry, table, fake_file(2), fake_file(3, partition_path="day=1"))

    assert (steps.done == ["call", "committed"]) == (kind == "postgresql")
    assert check(registry).clean
    registry.close()


def test_rows_of_every_shape_are_appended_alike(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1))
    bare = replace(fake_file(4), columns=())

    empty = publish(registry, table)
    several = publish(registry, table, *[fake_file(n, partition_path=f"day={n % 3}") for n in range(10, 20)])
    publish(registry, table, bare)

    assert (empty.file_count, several.file_count) == (0, 10)
    assert empty.insert_range.begin < several.insert_range.begin
    assert count(registry, "table_files") == 12
    assert count(registry, "table_stats") == 4
    assert check(registry).clean


def test_arguments_find_their_names_whatever_their_order(registry: Registry, kind: str) -> None:
    """The verified hash of a function covers its body, not its arguments."""
    if kind != "postgresql":
        pytest.skip("SQLite has no functions of its own")
    table = make_table(registry)
    publish(registry, table, fake_file(1))
    head, arguments, body = re.split(r"\((.*?)\)", append_function()[NAME], maxsplit=1)
    turned = ", ".join(reversed(arguments.split(", ")))
    with registry.write() as tx:
        registry.backend.script(tx.connection, [f"DROP FUNCTION {NAME}", f"{head}({turned}){body}"])

    publish(registry, table, fake_file(2, partition_path="day=1"))

    assert count(registry, "table_files") == 2
    assert check(registry).clean


def test_the_same_batch_is_appended_once(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1))

    first = publish(registry, table, fake_file(2), operation=replace(operation(), app_id="stream", batch_id=7))
    again = publish(registry, table, fake_file(3), operation=replace(operation(), app_id="stream", batch_id=7))

    assert again == first
    assert count(registry, "table_files") == 2


def test_the_same_operation_gets_its_first_answer(registry: Registry) -> None:
    table, known = make_table(registry), operation()
    publish(registry, table, fake_file(1))
    partition = new_partition(table, fake_file(2))

    assert publish_partition(registry, partition, known) == publish_partition(registry, partition, known)

    assert count(registry, "table_files") == 2


def test_an_operation_that_was_taken_back_is_not_registered(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1))
    ours = Operation(op_id=operation().op_id, has_intent=True, staging_path="/warehouse/x")
    open_operation(registry, ORDERS, ours)
    within(registry, lambda tx: start_rollback(tx, ours.op_id, error="gone", abandoned=True))

    with pytest.raises(OperationConflictError):
        publish(registry, table, fake_file(2), operation=ours)

    assert count(registry, "table_files") == 1
    assert check(registry).clean


def test_rows_without_their_event_range_are_refused(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1))

    with pytest.raises(InvalidValueError, match="needs its event range"):
        publish_partition(registry, replace(new_partition(table, fake_file(2)), event_range=None), operation())

    assert count(registry, "table_files") == 1


def test_a_schema_that_was_never_the_tables_is_refused(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1))
    registry.tables.scopes[table.table_id, "global", "no such hash"] = 1

    with pytest.raises(SchemaRefusedError, match="no version has the schema hash"):
        publish(registry, table, fake_file(2), schema_hash="no such hash")

    assert count(registry, "table_files") == 1


def test_an_earlier_readable_schema_is_appended_still(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1))
    grow_schema(registry)

    publish(registry, table, fake_file(2))

    assert count(registry, "table_files") == 2
    assert check(registry).clean


def test_a_table_that_another_process_dropped_is_not_found(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1))
    within(registry, lambda tx: drop_table(tx, ORDERS))
    registry.tables._ids[ORDERS] = table.table_id

    with pytest.raises(TableNotFoundError):
        publish(registry, table, fake_file(2))

    assert count(registry, "table_files") == 1


def test_a_clock_that_jumped_back_is_reported(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    publish(timed_registry, table, fake_file(1))
    clock.advance(seconds=-3600)

    with pytest.raises(ClockRegressedError):
        publish(timed_registry, table, fake_file(2))

    assert count(timed_registry, "table_files") == 1
    assert require_table(timed_registry, ORDERS).row.file_count == 1
