"""Files that cannot be read are named, recorded and left; everything else is compacted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from compaction_lakes import fill, insert_rows, live_paths, make_orders

from builders import ORDERS, arrow_rows, writing_path
from lakebed.compaction import CompactionOptions, compact, plan_compaction
from lakebed.components.compactor import Compactor, CompactorOptions
from lakebed.core.errors import FileDamagedError
from lakebed.core.tables.compaction import Reason
from lakebed.parquet.rewrite.reader import RowReader, Source
from lakebed.parquet.rewrite.target import TargetSchema
from lakebed.registry.tables.lake_tables import require_table

if TYPE_CHECKING:
    from lakebed.lake import Lake


def insert_damaged(lake: Lake, number: int, *, partition_path: str = "") -> str:
    """A file that is registered with rubbish in the first data page of its column `ts`: its checksum is that of the rubbish."""
    with lake.writing(str(ORDERS)) as work:
        path = writing_path(work.new_path(partition_path=partition_path))
        pq.write_table(arrow_rows(number), path)
        content = Path(path).read_bytes()
        place = pq.read_metadata(path).row_group(0).column(1).data_page_offset
        Path(path).write_bytes(content[:place] + b"\xff" * 12 + content[place + 12 :])
        work.publish()
    return str(path)


def test_a_damaged_file_is_named_and_the_others_are_compacted(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 2)
    bad = insert_damaged(lake, 50)
    fill(lake, 3, start=10)

    done = compact(lake.registry, lake.storage, str(ORDERS))

    (found,) = done.damaged
    assert (found.path, found.code, found.row_group, found.column) == (bad, "file_damaged", 0, "ts")
    assert "cannot be decoded: column 'ts', row group 0: " in found.reason
    assert "changed after it was written" not in found.reason
    assert [run.files_read for run in done.runs] == [5]
    assert bad in live_paths(lake)
    assert len(live_paths(lake)) == 2
    assert done.plan.count(Reason.DAMAGED) == 1
    assert lake.check(deep=True).clean


def test_other_partition_paths_are_compacted_too(lake: Lake) -> None:
    make_orders(lake)
    for number in range(3):
        insert_rows(lake, arrow_rows(number), arrow_rows(number + 10), paths=["a=1", "a=2"])
    bad = insert_damaged(lake, 50, partition_path="a=1")

    done = compact(lake.registry, lake.storage, str(ORDERS))

    assert [file.path for file in done.damaged] == [bad]
    found = sorted((file.partition_path, file.file_path == bad) for file in lake.files.list(str(ORDERS)))
    assert found == [("a=1", False), ("a=1", True), ("a=2", False)]
    assert lake.check().clean


def test_many_damaged_files_cost_one_more_try(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 4)
    bad = sorted(insert_damaged(lake, 50 + number) for number in range(4))

    done = compact(lake.registry, lake.storage, str(ORDERS))

    assert sorted(file.path for file in done.damaged) == bad
    assert [run.files_read for run in done.runs] == [4]
    assert len(live_paths(lake)) == 5


@pytest.mark.parametrize("fault", ["cut", "gone"])
def test_a_file_that_changed_or_is_gone_keeps_only_itself_out(lake: Lake, fault: str) -> None:
    make_orders(lake)
    fill(lake, 4)
    path = Path(min(live_paths(lake)))
    content = path.read_bytes()
    path.unlink() if fault == "gone" else path.write_bytes(content[: len(content) // 2])

    done = compact(lake.registry, lake.storage, str(ORDERS))

    assert [(file.path, file.code) for file in done.damaged] == [(str(path), "file_missing" if fault == "gone" else "file_changed")]
    path.write_bytes(content)
    assert len(live_paths(lake)) == 2
    assert lake.check().clean


def test_the_history_records_what_was_damaged(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 3)
    bad = insert_damaged(lake, 50)

    done = compact(lake.registry, lake.storage, str(ORDERS))

    ((state, result),) = lake.registry.query("SELECT state, result FROM runs WHERE id = :id", {"id": done.run_id})
    stored = result if isinstance(result, dict) else json.loads(result)
    assert state == "done"
    assert [(file["path"], file["code"]) for file in stored["damaged"]] == [(bad, "file_damaged")]


def test_a_service_does_not_try_a_damaged_file_at_every_look(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 3)
    bad = insert_damaged(lake, 50)
    compactor = Compactor(lake.registry, lake.storage, options=CompactorOptions(small_files=2, hot_s=0, pause_s=0))
    table_id = require_table(lake.registry, ORDERS).table_id
    compactor.on_refresh(table_id)
    first = compactor.run_once()
    fill(lake, 4, start=10)
    compactor.on_refresh(table_id)
    second = compactor.run_once()

    assert first is not None
    assert second is not None
    assert [file.path for file in first.damaged] == [bad]
    assert second.damaged == ()
    assert second.plan.count(Reason.DAMAGED) == 1
    assert second.runs != ()
    assert bad in live_paths(lake)


def test_a_plan_leaves_what_is_known_to_be_damaged(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 3)
    files = lake.files.list(str(ORDERS))

    plan = plan_compaction(lake.registry, str(ORDERS), CompactionOptions(leaving=frozenset({files[1].id})))

    assert [(len(run.rewriting), len(run.keeping)) for run in plan.runs] == [(2, 1)]
    assert [(group.reason, group.files) for group in plan.groups] == [("small", 2), ("damaged", 1)]


def test_a_large_file_is_named_with_row_group_and_column(lake: Lake) -> None:
    make_orders(lake)
    path = insert_damaged(lake, 1)
    source = Source(path=path, size_bytes=Path(path).stat().st_size)
    target = TargetSchema(require_table(lake.registry, ORDERS).schema)

    with (
        pytest.raises(FileDamagedError, match="column 'ts', row group 0: ") as found,
        RowReader(lake.storage, target, whole_bytes=1) as reader,
    ):
        next(iter(reader.read([source])))

    assert (found.value.row_group, found.value.column) == (0, "ts")


def test_a_check_that_decodes_pages_names_the_file_and_repair_offers_to_retire_it(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 2)
    bad = insert_damaged(lake, 50)

    shallow, deep = lake.check(deep=True), lake.check(pages=True)
    lake.repair(pages=True, retire_damaged=True, dry_run=False)

    assert shallow.clean
    assert [(f.rule, f.subject, f.table) for f in deep.findings] == [("file_pages", bad, str(ORDERS))]
    assert "column 'ts', row group 0: " in deep.findings[0].message
    assert bad not in live_paths(lake)
    assert len(live_paths(lake)) == 2
