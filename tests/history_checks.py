"""What must be equal, in a registry and in the model of it, after every move."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from history_model import (
    File,
    Scope,
    Table,
    sums_of,
)
from lakebed.core.errors import (
    InvalidValueError,
)
from lakebed.core.times import TimeRange, to_micros
from lakebed.registry.queries.listing import list_files, list_partitions
from lakebed.registry.queries.plans import read_plan
from lakebed.registry.tables.groups import list_files_at_group
from lakebed.registry.tables.lake_tables import require_table

if TYPE_CHECKING:
    from histories import History


def compare(history: History) -> None:
    for table in history.tables:
        _compare_rows(history, table)
        _compare_counters(history, table)
        _compare_groups(history, table)
        _compare_past(history, table)
    queued = {path: (q.table.table_id, q.expiration, q.attempts, q.claimed_until) for path, q in history.queue.items()}
    rows = history.registry.query("SELECT file_path, table_id, expiration, attempts, claimed_until FROM temporary_files")
    assert {row[0]: tuple(row[1:]) for row in rows} == queued


def _compare_rows(history: History, table: Table) -> None:
    assert {
        f.id: (f.file_path, f.partition_id, f.row_count, f.schema_hash, f.added_seq, f.retired_seq, f.added_group, f.removed_group)
        for f in list_files(history.registry, table.table_id, retired=True)
    } == {
        f.file_id: (f.path, f.partition_id, f.shape.rows, f.schema_hash, f.added_seq, f.retired_seq, f.added_group, f.removed_group)
        for f in table.files.values()
    }
    found = {
        p.partition_id: (
            Scope(p.view_instance_id, p.schema_hash),
            TimeRange(begin=to_micros(p.begin_insert_time), end=to_micros(p.end_insert_time)),
            None if p.min_event_time is None or p.max_event_time is None else (to_micros(p.min_event_time), to_micros(p.max_event_time)),
            (p.num_rows, p.file_count, p.file_size),
        )
        for p in list_partitions(history.registry, table.table_id)
    }
    assert found == {
        i: (p.scope, p.insert_range, p.event_range, sums_of(table.files_of([i]))[:2] + sums_of(table.files_of([i]))[3:])
        for i, p in table.partitions.items()
    }


def _compare_counters(history: History, table: Table) -> None:
    by_path: dict[str, list[File]] = defaultdict(list)
    for file in table.visible():
        by_path[file.shape.partition_path].append(file)
    row = require_table(history.registry, table.name).row
    rows, files, _, size = sums_of(table.visible())
    assert (row.row_count, row.file_count, row.total_size) == (rows, files, size)
    assert (row.last_group, row.committed_group) == (table.last_group, table.committed_group)
    sql = "SELECT partition_path, row_count, file_count, small_file_count, total_size FROM table_stats WHERE table_id = :id"
    assert {r[0]: r[1:] for r in history.registry.query(sql, {"id": table.table_id})} == {path: sums_of(f) for path, f in by_path.items()}


def _compare_groups(history: History, table: Table) -> None:
    for group, held in table.at_group.items():
        found = {f.id for f in list_files_at_group(history.registry, table.table_id, group)}
        assert found == held - table.finalized
        if group >= table.committed_group or group in table.snapshots.values():
            assert found == held, "a file was deleted that Iceberg still needs"


def _compare_past(history: History, table: Table) -> None:
    with history.registry.read() as reader:
        assert {f.path for f in table.visible()} == set(read_plan(reader, table.name).paths)
        for number, visible in table.visible_at.items():
            if number < table.horizon:
                with pytest.raises(InvalidValueError, match="cannot be read"):
                    read_plan(reader, table.name, as_of=number)
                continue
            expected = [table.files[i].path for i in visible]
            assert sorted(read_plan(reader, table.name, as_of=number).paths) == sorted(expected)
