"""The journal's capture: every committed row change exactly once, typed, dense and in commit order."""

from __future__ import annotations

import json
from dataclasses import astuple, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from builders import (
    DAILY,
    ORDERS,
    count,
    fake_file,
    grow_schema,
    make_table,
    make_view,
    new_partition,
    operation,
    promote,
    publish,
    seal_pending,
    stage,
    within,
)
from lakebed.core.errors import JournalGapError, UndecodableChangeError
from lakebed.core.events import ROW_TYPES, ChangeKind, RegistryTable
from lakebed.core.names import TableName
from lakebed.core.rows import Row, list_columns
from lakebed.registry.backends.sqlite import SqliteConnection
from lakebed.registry.codec import decode_row
from lakebed.registry.files.deletion_queue import claim_expired, finalize_deleted
from lakebed.registry.journal.changes import last_journal_numbers, read_changes
from lakebed.registry.partitions.publish import update_table_files as publish_in
from lakebed.registry.snapshots.history import NewSnapshot, add_snapshot, expire_snapshots
from lakebed.registry.tables.groups import set_committed_group
from lakebed.registry.tables.versions import set_properties
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.core.events import Event
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Transaction

GOLDEN = Path(__file__).parent.parent / "golden" / "journal_images.json"
State = dict[tuple[RegistryTable, int], Row]


def read_state(registry: Registry, table_id: int) -> State:
    """The monitored rows as the tables hold them."""
    state: State = {}
    for table, row in ROW_TYPES.items():
        owner = "id" if table is RegistryTable.TABLES else "table_id"
        for values in registry.query(f"SELECT {', '.join(list_columns(row))} FROM {table} WHERE {owner} = :id", {"id": table_id}):
            found = decode_row(row, values)
            state[table, found.id] = found
    return state


def fold(events: list[Event[Row]]) -> State:
    """The monitored rows as the journal holds them; refuses an image that contradicts the one before."""
    state: State = {}
    for event in events:
        key = (event.table, event.data.id)
        assert event.before == state.get(key), event
        if event.operation is ChangeKind.DELETE:
            assert event.data == state.pop(key)
        else:
            state[key] = event.data
    return state


def changes(registry: Registry, table_id: int = 1) -> list[Event[Row]]:
    return read_changes(registry, table_id, after=0, limit=100_000)


def live_through_everything(registry: Registry) -> None:
    """INSERT, UPDATE and DELETE in each of the five monitored tables."""
    table = make_table(registry)
    first = publish(registry, table, fake_file(1, partition_path="a"), fake_file(2, partition_path="b"))
    seal_pending(registry)
    publish(registry, table, fake_file(3, partition_path="a"))
    grow_schema(registry)
    within(registry, lambda tx: set_properties(tx, ORDERS, {"x": "y\"'\n\u00e9"}))
    snapshot = NewSnapshot(
        snapshot_id=2**60, parent_id=None, sequence_number=1, group_no=1, timestamp_ms=1, manifest_list="m", metadata_location="l",
        summary="{}", schema_id=0, operation="append", trigger="insert",
    )  # fmt: skip
    within(registry, lambda tx: add_snapshot(tx, ORDERS, snapshot))
    within(registry, lambda tx: expire_snapshots(tx, ORDERS, [2**60]))
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {first.partition_id}, grace_us=0))
    within(registry, lambda tx: set_committed_group(tx, ORDERS, 2, snapshot_id=2**60))
    claim = claim_expired(registry)
    assert finalize_deleted(registry, claim, [f.path for f in claim.files]) == 2


def test_folding_the_journal_gives_the_tables(registry: Registry) -> None:
    live_through_everything(registry)

    assert fold(changes(registry)) == read_state(registry, 1)


def test_every_operation_on_every_monitored_table_is_captured_with_both_images(registry: Registry) -> None:
    live_through_everything(registry)
    with registry.write() as tx:
        for table in ("table_snapshots", "table_metadata", "tables"):
            tx.run(f"DELETE FROM {table}")

    seen = changes(registry)

    assert {(e.table, e.operation) for e in seen} == {(t, o) for t in RegistryTable for o in ChangeKind}
    assert fold(seen) == read_state(registry, 1)
    assert all((e.before is None) == (e.operation is ChangeKind.INSERT) for e in seen)


def test_an_update_reads_the_same_whether_its_file_is_there_or_deleted(registry: Registry) -> None:
    """The journal keeps only what changed; the rest comes from the row or from the image of its deletion."""
    table = make_table(registry)
    gone, kept = (publish(registry, table, fake_file(n, partition_path=f"{n}"), fake_file(n + 1)) for n in (1, 3))
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {gone.partition_id, kept.partition_id}, grace_us=0))
    before = changes(registry)
    claim = claim_expired(registry, limit=2)

    assert finalize_deleted(registry, claim, [file.path for file in claim.files]) == 2

    assert changes(registry)[: len(before)] == before
    assert fold(changes(registry)) == read_state(registry, 1)


def test_an_update_of_a_file_that_vanished_without_a_change_is_a_typed_error(registry: Registry) -> None:
    published = publish(registry, make_table(registry), fake_file(1))
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {published.partition_id}))
    with registry.write() as tx:
        tx.run("DELETE FROM partition_metadata")
        tx.run("DELETE FROM table_files")
        tx.run("DELETE FROM change_log WHERE operation = 'DELETE' AND registry_table = 'table_files'")

    with pytest.raises(UndecodableChangeError, match=r"is of table_files row .* gone without a recorded deletion: refresh"):
        read_changes(registry, 1, after=0, limit=8)


def test_numbers_are_dense_from_one(registry: Registry) -> None:
    live_through_everything(registry)

    assert [e.sequence for e in changes(registry)] == list(range(1, last_journal_numbers(registry)[1] + 1))
    assert read_changes(registry, 1, after=last_journal_numbers(registry)[1]) == []


def test_one_change_per_changed_row_and_no_other(registry: Registry) -> None:
    table = make_table(registry)
    start = last_journal_numbers(registry)[1]

    publish(registry, table, *[fake_file(n, partition_path=f"p={n % 2}") for n in range(7)])

    found = [(e.table.value, e.operation.value) for e in read_changes(registry, 1, after=start)]
    assert sorted(found) == [("table_files", "INSERT")] * 7 + [("table_stats", "INSERT")] * 2 + [("tables", "UPDATE")]


def test_every_lake_table_has_its_own_numbers(registry: Registry) -> None:
    one, two = make_table(registry), make_table(registry, TableName("shop", "returns"))
    for number in range(3):
        publish(registry, one, fake_file(number))
    publish(registry, two, fake_file(9))

    for table in (one, two):
        seen = changes(registry, table.table_id)
        assert [e.sequence for e in seen] == list(range(1, len(seen) + 1))
        assert {e.table_id for e in seen} == {table.table_id}
        assert fold(seen) == read_state(registry, table.table_id)


def test_one_statement_over_many_tables_is_numbered_in_each(registry: Registry) -> None:
    tables = [make_table(registry, TableName("shop", f"t{n}")) for n in range(3)]

    with registry.write([t.table_id for t in tables]) as tx:
        tx.run("UPDATE tables SET state = 'degraded'")

    for table in tables:
        *_, last = changes(registry, table.table_id)
        assert (last.table, last.operation, last.sequence) == (
            RegistryTable.TABLES,
            ChangeKind.UPDATE,
            last_journal_numbers(registry)[table.table_id],
        )
        assert fold(changes(registry, table.table_id)) == read_state(registry, table.table_id)


def test_a_rolled_back_transaction_leaves_no_change_and_no_hole(registry: Registry) -> None:
    table = make_table(registry)
    start = last_journal_numbers(registry)[1]

    def change_and_fail() -> None:
        with registry.write([ORDERS]) as tx:
            tx.run("UPDATE tables SET state = 'degraded'")
            raise InterruptedError

    with pytest.raises(InterruptedError):
        change_and_fail()
    publish(registry, table, fake_file(1))

    assert [e.sequence for e in read_changes(registry, 1, after=start)] == list(range(start + 1, last_journal_numbers(registry)[1] + 1))
    assert "degraded" not in {getattr(e.data, "state", "") for e in changes(registry)}


def test_a_change_carries_the_instant_of_the_database(registry: Registry) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)

    make_table(registry)

    assert all(before < e.timestamp < datetime.now(UTC) + timedelta(seconds=2) for e in changes(registry))


def test_values_at_the_edge_of_their_types_survive_the_images(registry: Registry) -> None:
    make_table(registry)
    with registry.write([ORDERS]) as tx:
        tx.run("UPDATE tables SET row_count = :most, total_size = :most", {"most": 2**63 - 1})
        tx.run("UPDATE table_metadata SET properties = :text", {"text": '{"q": "\'\\"\\\\\u2028\U0001f600"}'})

    assert fold(changes(registry)) == read_state(registry, 1)


def test_a_missing_number_is_a_gap_never_skipped(registry: Registry) -> None:
    publish(registry, make_table(registry), *[fake_file(n) for n in range(5)])
    with registry.write() as tx:
        tx.run("DELETE FROM change_log WHERE seq = 4")

    with pytest.raises(JournalGapError, match="goes from 3 to 5: refresh the component from the registry") as gap:
        changes(registry)

    assert (gap.value.expected, gap.value.found) == (4, 5)
    assert [e.sequence for e in read_changes(registry, 1, after=4, limit=2)] == [5, 6]


def test_changes_are_read_in_pages(registry: Registry) -> None:
    publish(registry, make_table(registry), *[fake_file(n) for n in range(9)])
    paged: list[Event[Row]] = []

    while page := read_changes(registry, 1, after=len(paged), limit=4):
        assert len(page) <= 4
        paged += page

    assert paged == changes(registry)


@pytest.mark.parametrize(
    ("column", "value"), [("operation", "'TRUNCATE'"), ("registry_table", "'partitions'"), ("after", "'[1, 2]'"), ("after", "'no json'")]
)
def test_a_change_that_does_not_fit_its_row_type_is_a_typed_error(registry: Registry, column: str, value: str) -> None:
    make_table(registry)
    with registry.write() as tx:
        tx.run(f"UPDATE change_log SET {column} = {value} WHERE seq = 2")

    with pytest.raises(UndecodableChangeError, match="change 2 of table 1"):
        changes(registry)


def test_every_stored_image_of_earlier_versions_still_decodes(registry: Registry) -> None:
    """Images stay in journals for as long as a component is away: what was written once must be read for ever."""
    make_table(registry)
    golden: list[dict[str, Any]] = json.loads(GOLDEN.read_text())
    with registry.write() as tx:
        tx.run("DELETE FROM change_log")
        for seq, stored in enumerate(golden, 1):
            tx.run(
                "INSERT INTO change_log (id, registry_table, operation, row_id, before, after, at) VALUES (:id, :t, :o, :row, :b, :a, 5)",
                {
                    "id": (1 << 40) + seq,
                    "row": int(stored["data"][0]),
                    "t": stored["table"],
                    "o": stored["operation"],
                    "b": stored["before"],
                    "a": stored["after"],
                },
            )

    seen = changes(registry)

    assert {(e.table.value, e.operation.value) for e in seen} == {(t.value, o.value) for t in RegistryTable for o in ChangeKind}
    for event, stored in zip(seen, golden, strict=True):
        assert list(map(str, astuple(event.data))) == stored["data"], stored
        assert [f.name for f in fields(event.data)] == list(list_columns(ROW_TYPES[event.table]))


def test_files_of_a_promoted_version_arrive_as_updates(registry: Registry) -> None:
    view = make_view(registry)
    staged = stage(registry)
    publish(registry, view, *[fake_file(n) for n in range(3)], hours=(0, 1), schema_hash=staged)
    start = last_journal_numbers(registry)[1]

    promote(registry, staged, DAILY)

    moved = [e for e in read_changes(registry, 1, after=start) if e.table is RegistryTable.TABLE_FILES]
    assert [e.operation for e in moved] == [ChangeKind.UPDATE] * 3
    assert fold(changes(registry)) == read_state(registry, 1)


class WorkMeter:
    """The database's own count of work in one transaction: SQLite's machine steps, or PostgreSQL's updates of the locked row."""

    def __init__(self, tx: Transaction) -> None:
        self._tx, self.steps = tx, 0
        if isinstance(tx.connection, SqliteConnection):
            tx.connection.raw.set_progress_handler(self._step, 1_000)
        else:
            self.steps = self._count_updates()  # of earlier transactions of the session, which the server has not taken in yet

    def _step(self) -> int:
        self.steps += 1
        return 0

    def read(self) -> int:
        if not isinstance(self._tx.connection, SqliteConnection):
            return self._count_updates() - self.steps
        self._tx.connection.raw.set_progress_handler(None, 0)
        return self.steps

    def _count_updates(self) -> int:
        ((updates,),) = self._tx.query("SELECT n_tup_upd FROM pg_stat_xact_user_tables WHERE relname = 'table_seq'")
        return int(updates)


def measure_publishing(registry: Registry, table: LakeTable, many: int) -> int:
    partition = new_partition(table, *[fake_file(n) for n in range(many)])

    def body(tx: Transaction) -> int:
        meter = WorkMeter(tx)
        publish_in(tx, partition, operation())
        return meter.read()

    return within(registry, body)


def test_forty_thousand_files_in_one_transaction_stay_linear(registry: Registry, kind: str) -> None:
    """PostgreSQL would become quadratic by updating one row once per file: there the number of updates must not grow at all."""
    table = make_table(registry)

    few, many = measure_publishing(registry, table, 4_000), measure_publishing(registry, table, 40_000)

    assert 0 < many <= (few * 11 if kind == "sqlite" else few)
    assert count(registry, "change_log", "registry_table = 'table_files'") == 44_000
