"""Several partitions replaced at once: one group, one operation, every slice as it was; all of it or nothing."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest

from builders import HOUR, ORDERS, START, count, fake_file, logical_dump, make_table, operation, publish
from lakebed.core import fingerprints
from lakebed.core.errors import OperationConflictError, RegistryUnavailableError
from lakebed.core.partitions import NewPartition
from lakebed.registry.connect import open_backend
from lakebed.registry.files.operations import Operation, open_operation
from lakebed.registry.partitions.publish import Published, Replacement, first_answer, publish_replacements
from lakebed.registry.registry import Registry
from lakebed.registry.tables.lake_tables import LakeTable, require_table
from lakebed.testing import SteppedBackend, Steps

if TYPE_CHECKING:
    from lakebed.core.files import NewFile

FIRST_MICROS = int(START.timestamp()) * 1_000_000


def replacement(table: LakeTable, old: Published, *files: NewFile, kept: tuple[int, ...] = (), kept_rows: int = 0) -> Replacement:
    partition = NewPartition(
        table=table.name,
        schema_hash=table.schema_hash,
        fingerprint=fingerprints.from_bytes(secrets.token_bytes(16)),
        files=files,
        insert_range=old.insert_range,
        event_range=(FIRST_MICROS, FIRST_MICROS + HOUR) if files else None,
    )
    return Replacement(partition=partition, retired_id=old.partition_id, kept=kept, kept_rows=kept_rows, kept_events=(1, 2))


def swap(registry: Registry, replacements: list[Replacement], own: Operation) -> Published:
    def call() -> Published:
        return registry.transact(
            lambda tx: publish_replacements(tx, replacements, own, reason="deleted"), tables=[ORDERS], op_id=own.op_id
        )  # fmt: skip

    return first_answer(registry, own, call)


def rows(registry: Registry, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in registry.query(sql)]


def three(registry: Registry) -> tuple[LakeTable, list[Published]]:
    table = make_table(registry)
    return table, [publish(registry, table, *(fake_file(n * 10 + i) for i in range(3))) for n in range(3)]


def plan(table: LakeTable, old: list[Published]) -> list[Replacement]:
    """The first keeps one of its files and gets another, the second is emptied, the third is left alone."""
    first = replacement(table, old[0], fake_file(90, rows=40), kept=(old[0].first_file_id,), kept_rows=100)
    return [first, replacement(table, old[1])]


def intent(registry: Registry) -> Operation:
    own = Operation(op_id=operation().op_id, kind="delete", has_intent=True, staging_path="/warehouse/x")
    open_operation(registry, ORDERS, own)
    return own


def test_slices_stay_files_move_and_counters_follow_in_one_group(registry: Registry) -> None:
    table, old = three(registry)

    done = swap(registry, plan(table, old), operation())

    found = rows(registry, "SELECT begin_insert_time, end_insert_time, num_rows, file_count FROM partitions ORDER BY begin_insert_time")
    ranges = [one.insert_range for one in old]
    assert found == [(r.begin, r.end, n, files) for r, n, files in zip(ranges, (140, 0, 300), (2, 0, 3), strict=True)]
    assert rows(registry, "SELECT id, added_group FROM table_files WHERE retired_seq IS NULL AND partition_id IN (SELECT id FROM partitions WHERE num_rows = 140) ORDER BY id") == [
        (old[0].first_file_id, None), (done.first_file_id, done.group),
    ]  # fmt: skip
    assert count(registry, "temporary_files", "reason = 'deleted'") == 5
    row = require_table(registry, ORDERS).row
    assert (row.row_count, row.file_count, row.last_group) == (440, 5, done.group)
    assert rows(registry, "SELECT sum(row_count), sum(file_count) FROM table_stats") == [(440, 5)]
    assert rows(registry, "SELECT min_event_time FROM partitions WHERE num_rows = 140") == [(1,)]  # kept rows count for its range too


def test_a_swap_that_is_interrupted_at_any_statement_leaves_everything_as_it_was(registry: Registry, url: str) -> None:
    table, old = three(registry)
    before = logical_dump(registry)

    def fail(_: str) -> None:
        message = "gone, as asked"
        raise RegistryUnavailableError(message)

    reached = 0
    for at in range(1, 100):
        steps = Steps(at=at, act=fail)
        shaky = Registry(SteppedBackend(open_backend(url), steps))
        try:
            swap(shaky, plan(table, old), operation())
        except RegistryUnavailableError:
            reached += 1
            assert logical_dump(registry) == before, steps.done[-1]
        else:
            break
        finally:
            shaky.close()

    assert reached > 8
    assert require_table(registry, ORDERS).row.row_count == 440


def test_an_operation_that_was_taken_back_replaces_nothing(registry: Registry) -> None:
    table, old = three(registry)
    own = intent(registry)
    with registry.write() as tx:
        tx.run("UPDATE operations SET state = 'rolling_back' WHERE op_id = :o", {"o": own.op_id})
    before = logical_dump(registry)

    with pytest.raises(OperationConflictError):
        swap(registry, plan(table, old), own)

    assert logical_dump(registry) == before


def test_a_double_of_the_same_operation_gets_the_first_answer(registry: Registry) -> None:
    table, old = three(registry)
    own = intent(registry)

    first = swap(registry, plan(table, old), own)

    assert swap(registry, plan(table, old), own) == first
    assert require_table(registry, ORDERS).row.row_count == 440
