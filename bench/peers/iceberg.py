"""PyIceberg with a SqlCatalog on SQLite: register (`add_files`) | concurrent | plan | retire."""

import functools
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, EqualTo, In
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from batches import ROWS, SCHEMA, write_files
from harness import Commit, best_ms, emit, file_name, fresh, part_of, run_step, run_writers, settle, timed_commits

PEER = "pyiceberg"
NAME = "ns.t"
ATTEMPTS = 10
FIELDS = range(1, 11)


def open_catalog(directory: Path) -> SqlCatalog:
    return SqlCatalog("bench", uri=f"sqlite:///{directory}/catalog.db", warehouse=f"file://{directory}/warehouse")


def create_table(directory: Path, *, partitioned: bool = False) -> Table:
    catalog = open_catalog(directory)
    catalog.create_namespace("ns")
    table = catalog.create_table(NAME, SCHEMA)
    if partitioned:
        with table.update_spec() as spec:
            spec.add_identity("part")
    return catalog.load_table(NAME)


def register(directory: Path, *, commits: int) -> None:
    place = fresh(directory, "iceberg_register")
    files = [str(path) for path in write_files(place / "in", range(commits + 1))]
    table = create_table(place)
    table.add_files([files[commits]])  # the first one also sets the name mapping
    timed_commits(PEER, "commit_only", commits, lambda number: table.add_files([files[number]], check_duplicate_files=False))
    metadata = sum(f.stat().st_size for f in (place / "warehouse").rglob("*") if f.is_file())
    emit(PEER, "commit_only", "metadata_bytes", metadata, "B", n=commits)


def concurrent(directory: Path, *, writers: int, each: int) -> None:
    place = fresh(directory, "iceberg_concurrent")
    files = [str(path) for path in write_files(place / "in", range(writers * each + 1))]
    table = create_table(place)
    table.add_files([files[-1]])
    outcome = run_writers(writers, each, functools.partial(prepare_writer, place, files))
    table.refresh()
    found = (int(Path(task.file.file_path).stem[1:]) for task in table.scan().plan_files())
    outcome.emit(PEER, (number for number in found if number != writers * each))


def prepare_writer(place: Path, files: Sequence[str], _writer: int) -> Commit:
    return functools.partial(commit_file, open_catalog(place).load_table(NAME), files)


def commit_file(table: Table, files: Sequence[str], number: int) -> None:
    """Retries on top of the library's own, as a real writer would."""
    for _ in range(ATTEMPTS - 1):
        with suppress(Exception):
            table.add_files([files[number]], check_duplicate_files=False)
            return
        table.refresh()
    table.add_files([files[number]], check_duplicate_files=False)


def plan(directory: Path, *, files: int, per_commit: int) -> None:
    place = fresh(directory, f"iceberg_plan_{files}")
    table = create_table(place, partitioned=True)
    start = time.perf_counter()
    for first in range(0, files, per_commit):
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for data_file in make_data_files(table, range(first, min(files, first + per_commit)), files):
                append.append_data_file(data_file)
    emit(PEER, "plan", "build", time.perf_counter() - start, "s", n=files)
    filters: dict[str, tuple[BooleanExpression, int]] = {
        "point": (EqualTo("id", files // 2 * ROWS + 5), 1),
        "partition": (EqualTo("part", 37), files // 100),
        "all": (AlwaysTrue(), files),
    }
    for name, (row_filter, wanted) in filters.items():
        cold = best_ms(functools.partial(list_cold, place, row_filter, wanted), 3)
        emit(PEER, "plan", f"{name}_cold", cold, "ms", n=files)
        handle = open_catalog(place).load_table(NAME)
        list_files(handle, row_filter, wanted)
        warm = best_ms(functools.partial(list_files, handle, row_filter, wanted), 3)
        emit(PEER, "plan", f"{name}_warm", warm, "ms", n=files)


def make_data_files(table: Table, numbers: range, spread: int) -> Iterator[DataFile]:
    """Data files with full column statistics and no bytes behind them: planning reads none."""
    doubles = range(4, 11)
    low, high = dict.fromkeys(doubles, struct.pack("<d", 0.001)), dict.fromkeys(doubles, struct.pack("<d", 0.999))
    for number in numbers:
        part = part_of(number, spread)
        first, last = number * ROWS, number * ROWS + ROWS - 1
        data_file = DataFile.from_args(
            _table_format_version=2,
            content=DataFileContent.DATA,
            file_path=f"file:///lake/t/part={part}/{file_name(number)}",
            file_format=FileFormat.PARQUET,
            partition=Record(part),
            record_count=ROWS,
            file_size_in_bytes=20_000,
            column_sizes=dict.fromkeys(FIELDS, 2_000),
            value_counts=dict.fromkeys(FIELDS, ROWS),
            null_value_counts=dict.fromkeys(FIELDS, 0),
            nan_value_counts={},
            lower_bounds={1: struct.pack("<q", first), 2: struct.pack("<i", part), 3: struct.pack("<q", first * 1000), **low},
            upper_bounds={1: struct.pack("<q", last), 2: struct.pack("<i", part), 3: struct.pack("<q", last * 1000), **high},
            key_metadata=None,
            split_offsets=[4],
            equality_ids=None,
            sort_order_id=None,
            spec_id=table.spec().spec_id,
        )
        data_file.spec_id = table.spec().spec_id
        yield data_file


def list_cold(place: Path, row_filter: BooleanExpression, wanted: int) -> None:
    list_files(open_catalog(place).load_table(NAME), row_filter, wanted)


def list_files(table: Table, row_filter: BooleanExpression, wanted: int) -> None:
    found = [task.file.file_path for task in table.scan(row_filter=row_filter).plan_files()]
    assert len(found) == wanted, (row_filter, len(found), wanted)


def retire(directory: Path, *, files: int) -> None:
    """Drop five of ten partitions, then expire snapshots; it removes no data file, so the caller unlinks them."""
    place = fresh(directory, "iceberg_retire")
    paths = write_files(place / "in", range(files))
    table = create_table(place, partitioned=True)
    table.add_files([str(path) for path in paths])
    settle()
    start = time.perf_counter()
    table.delete(In("part", {0, 1, 2, 3, 4}))
    emit(PEER, "retire", "metadata", files // 2 / (time.perf_counter() - start), "files/s", n=files)
    live = {task.file.file_path for task in table.scan().plan_files()}
    assert len(live) == files - files // 2, len(live)
    start = time.perf_counter()
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(seconds=1)).commit()
    for path in paths:
        if str(path) not in live and path.exists():
            path.unlink()
    emit(PEER, "retire", "physical", files // 2 / (time.perf_counter() - start), "files/s", n=files)


if __name__ == "__main__":
    run_step({"register": register, "concurrent": concurrent, "plan": plan, "retire": retire})
