"""Operations: the intent before the first byte, legal moves only, and recovery that takes before it touches."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builders import (
    ORDERS,
    SCHEMA,
    count,
    fake_file,
    logical_dump,
    make_table,
    op_id,
    publish,
    stepped_lake,
    within,
    write_partition,
    writing_path,
)
from lakebed.core.errors import (
    InvalidValueError,
    LakebedError,
    OperationConflictError,
    OperationNotFoundError,
    RefusedError,
    TableNotFoundError,
)
from lakebed.registry.files.operations import (
    Operation,
    find_operation,
    finish_rollback,
    list_expired_operations,
    open_operation,
    renew_operation,
    require_operation,
    start_rollback,
)
from lakebed.registry.tables.lake_tables import require_table
from lakebed.testing import Steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.lake import Lake
    from lakebed.registry.registry import Registry
    from lakebed.testing import FixedClock

LEASE_S = 600
STATES = ("writing", "registered", "rolling_back", "rolled_back")


def open_one(registry: Registry) -> Operation:
    work = Operation(op_id=op_id(), has_intent=True, staging_path="/warehouse/x")
    open_operation(registry, ORDERS, work)
    return work


def take(registry: Registry, work: Operation, *, abandoned: bool = False) -> None:
    within(registry, lambda tx: start_rollback(tx, work.op_id, error="test", abandoned=abandoned))


def close(registry: Registry, work: Operation) -> None:
    within(registry, lambda tx: finish_rollback(tx, work.op_id))


def state_of(registry: Registry, work: Operation) -> str:
    return require_operation(registry, work.op_id).state


MOVES: dict[str, Callable[[Registry, Operation], object]] = {
    "register": lambda registry, work: publish(registry, require_table(registry, ORDERS), fake_file(1), operation=work),
    "take": lambda registry, work: take(registry, work, abandoned=True),
    "close": close,
    "renew": lambda registry, work: renew_operation(registry, work.op_id),
}
LEGAL = {
    ("writing", "register"): "registered",
    ("writing", "take"): "rolling_back",
    ("writing", "renew"): "writing",
    ("registered", "register"): "registered",  # the same operation twice gets its first answer
    ("rolling_back", "take"): "rolling_back",
    ("rolling_back", "close"): "rolled_back",
    ("rolled_back", "close"): "rolled_back",
}


def bring_to(registry: Registry, state: str) -> Operation:
    work = open_one(registry)
    for move in {"writing": (), "registered": ("register",), "rolling_back": ("take",), "rolled_back": ("take", "close")}[state]:
        MOVES[move](registry, work)
    return work


@pytest.mark.parametrize(("state", "move"), [*product(STATES, MOVES)])
def test_only_legal_moves_are_made_and_the_others_change_nothing(registry: Registry, state: str, move: str) -> None:
    make_table(registry)
    work = bring_to(registry, state)
    before = logical_dump(registry)

    if (state, move) in LEGAL:
        MOVES[move](registry, work)
        assert state_of(registry, work) == LEGAL[state, move]
    else:
        with pytest.raises(OperationConflictError, match="look it up before you retry"):
            MOVES[move](registry, work)
        assert logical_dump(registry) == before


def test_an_intent_is_found_with_what_it_was_opened_for(timed_registry: Registry, clock: FixedClock) -> None:
    make_table(timed_registry)

    work = open_one(timed_registry)

    found = require_operation(timed_registry, work.op_id)
    assert (found.state, found.staging_path, found.kind, found.result) == ("writing", "/warehouse/x", "insert", None)
    assert found.lease_until == clock.micros + LEASE_S * 1_000_000


def test_recovery_takes_an_operation_only_after_its_lease(timed_registry: Registry, clock: FixedClock) -> None:
    make_table(timed_registry)
    work = open_one(timed_registry)
    clock.advance(seconds=LEASE_S)
    with pytest.raises(OperationConflictError, match="writing under a valid lease"):
        take(timed_registry, work)
    assert list_expired_operations(timed_registry) == []

    clock.advance(seconds=1)

    assert [o.op_id for o in list_expired_operations(timed_registry)] == [work.op_id]
    take(timed_registry, work)
    assert state_of(timed_registry, work) == "rolling_back"


def test_a_renewed_operation_is_left_alone(timed_registry: Registry, clock: FixedClock) -> None:
    make_table(timed_registry)
    work = open_one(timed_registry)
    clock.advance(seconds=LEASE_S - 1)
    renew_operation(timed_registry, work.op_id)
    clock.advance(seconds=LEASE_S - 1)

    assert list_expired_operations(timed_registry) == []


def test_a_writer_that_lost_its_operation_cannot_register(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    work = open_one(timed_registry)
    clock.advance(seconds=LEASE_S + 1)
    take(timed_registry, work)
    before = logical_dump(timed_registry)

    with pytest.raises(OperationConflictError, match="is rolling_back, not writing"):
        publish(timed_registry, table, fake_file(1), operation=work)

    assert logical_dump(timed_registry) == before


def test_a_slow_writer_may_still_register_while_its_operation_is_not_taken(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    work = open_one(timed_registry)
    clock.advance(seconds=LEASE_S * 9)

    publish(timed_registry, table, fake_file(1), operation=work)

    assert state_of(timed_registry, work) == "registered"
    assert list_expired_operations(timed_registry) == []


def test_an_operation_that_was_never_opened_is_refused(registry: Registry) -> None:
    table, work = make_table(registry), Operation(op_id=op_id(), has_intent=True)

    with pytest.raises(OperationNotFoundError, match="open it before writing a byte"):
        publish(registry, table, fake_file(1), operation=work)
    with pytest.raises(OperationNotFoundError):
        renew_operation(registry, work.op_id)
    assert find_operation(registry, work.op_id) is None


def test_an_operation_of_an_unknown_table_or_a_bad_id_is_refused(registry: Registry) -> None:
    with pytest.raises(TableNotFoundError):
        open_one(registry)
    with pytest.raises(InvalidValueError, match="32 hexadecimal digits"):
        Operation(op_id="../evil")
    with pytest.raises(InvalidValueError, match="app_id and batch_id go together"):
        Operation(op_id=op_id(), app_id="a")


def test_the_same_operation_is_opened_once(registry: Registry) -> None:
    make_table(registry)
    work = open_one(registry)
    before = logical_dump(registry)

    with pytest.raises(RefusedError):
        open_operation(registry, ORDERS, work)

    assert logical_dump(registry) == before


def test_recovery_removes_the_directory_of_a_dead_writer_and_nothing_else(timed_lake: Lake, clock: FixedClock) -> None:
    table = timed_lake.create_table(str(ORDERS), SCHEMA, event_time="ts")
    write_partition(timed_lake, 1)
    dead = abandon(timed_lake, table.table_id)
    clock.advance(seconds=LEASE_S + 1)

    assert timed_lake.files.recover() == [dead.op_id]

    assert not Path(dead.staging_path or "").exists()
    assert state_of(timed_lake.registry, dead) == "rolled_back"
    assert timed_lake.files.recover() == []
    assert timed_lake.check().clean


def test_recovery_skips_what_another_process_settled_meanwhile(timed_lake: Lake, url: str, clock: FixedClock) -> None:
    """Between listing and taking, a slow writer may register and another process may recover."""
    table = timed_lake.create_table(str(ORDERS), SCHEMA, event_time="ts")
    works = [abandon(timed_lake, table.table_id) for _ in range(3)]
    clock.advance(seconds=LEASE_S + 1)

    def settle_two(_: str) -> None:
        publish(timed_lake.registry, table, fake_file(1), operation=works[0])
        take(timed_lake.registry, works[1])
        close(timed_lake.registry, works[1])

    with stepped_lake(url, timed_lake.storage.paths.root, Steps(at=2, act=settle_two), clock=clock) as slow:
        assert slow.files.recover() == [works[2].op_id]

    assert [state_of(timed_lake.registry, w) for w in works] == ["registered", "rolled_back", "rolled_back"]


def test_recovery_undoes_any_number_of_operations(timed_lake: Lake, clock: FixedClock) -> None:
    table = timed_lake.create_table(str(ORDERS), SCHEMA, event_time="ts")
    works = [abandon(timed_lake, table.table_id) for _ in range(120)]
    clock.advance(seconds=LEASE_S + 1)

    assert sorted(timed_lake.files.recover()) == sorted(w.op_id for w in works)

    assert timed_lake.check().clean


def abandon(lake: Lake, table_id: int) -> Operation:
    """An operation whose writer died after its first file."""
    identity = op_id()
    directory = lake.storage.paths.operation_directory(table_id, ORDERS, identity)
    work = Operation(op_id=identity, has_intent=True, staging_path=directory)
    open_operation(lake.registry, ORDERS, work)
    Path(writing_path(f"{directory}/part-00000.parquet")).write_bytes(b"torn")
    return work


def test_a_block_that_raises_leaves_no_file_and_a_rolled_back_operation(lake: Lake) -> None:
    lake.create_table(str(ORDERS), SCHEMA, event_time="ts")

    def fail() -> None:
        with lake.writing(str(ORDERS)) as writing:
            Path(writing_path(writing.new_path())).write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert [f.path for f in lake.storage.list_files(lake.storage.paths.root)] == []
    assert lake.registry.query("SELECT state, error FROM operations") == [("rolled_back", "ZeroDivisionError: ")]
    assert lake.check().clean


def test_a_torn_file_is_refused_and_swept(lake: Lake) -> None:
    lake.create_table(str(ORDERS), SCHEMA, event_time="ts")

    def publish_torn() -> None:
        with lake.writing(str(ORDERS)) as writing:
            Path(writing_path(writing.new_path())).write_bytes(b"PAR1 torn")
            writing.publish()

    with pytest.raises(LakebedError):
        publish_torn()

    assert count(lake.registry, "partitions") == 0
    assert [f.path for f in lake.storage.list_files(lake.storage.paths.root)] == []


def test_a_block_that_publishes_nothing_leaves_nothing(lake: Lake) -> None:
    lake.create_table(str(ORDERS), SCHEMA, event_time="ts")

    with lake.writing(str(ORDERS)) as writing:
        Path(writing_path(writing.new_path())).write_bytes(b"never published")

    assert [f.path for f in lake.storage.list_files(lake.storage.paths.root)] == []
    assert lake.registry.query("SELECT state FROM operations") == [("rolled_back",)]
