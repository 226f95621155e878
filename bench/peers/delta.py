"""deltalake (delta-rs): register | concurrent | plan | retire."""

import functools
import json
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction

from batches import DOUBLES, ROWS, SCHEMA, write_files, write_tiny_files
from harness import Commit, best_ms, emit, file_name, fresh, part_of, run_step, run_writers, settle, timed_commits

PEER = "deltalake"


def add_action(path: str, number: int, part: int | None = None) -> AddAction:
    bounded = ("id", *DOUBLES)
    statistics = {
        "numRecords": ROWS,
        "minValues": {"id": number * ROWS, **dict.fromkeys(DOUBLES, 0.001)},
        "maxValues": {"id": number * ROWS + ROWS - 1, **dict.fromkeys(DOUBLES, 0.999)},
        "nullCount": dict.fromkeys(bounded, 0),
    }
    partition = {} if part is None else {"part": str(part)}
    return AddAction(path, 20_000, partition, 1_700_000_000_000, True, json.dumps(statistics))  # noqa: FBT003 - their signature


def register(directory: Path, *, commits: int) -> None:
    place = fresh(directory, "delta_register") / "t"
    files = write_files(place, range(commits))
    table = DeltaTable.create(str(place), schema=SCHEMA)
    timed_commits(PEER, "commit_only", commits, functools.partial(commit_file, table, table.schema(), files))
    log = place / "_delta_log"
    emit(PEER, "commit_only", "metadata_bytes", sum(f.stat().st_size for f in log.rglob("*") if f.is_file()), "B", n=commits)
    emit(PEER, "open_table", "cold", best_ms(lambda: DeltaTable(str(place)), 5), "ms", n=commits)


def commit_file(table: DeltaTable, schema: Schema, files: Sequence[Path], number: int) -> None:
    pq.read_metadata(files[number])  # the work of the others too: statistics come from the footer
    table.create_write_transaction([add_action(files[number].name, number)], "append", schema)
    table.update_incremental()  # the handle does not advance by itself; without this every commit is a conflict to rebase


def concurrent(directory: Path, *, writers: int, each: int) -> None:
    place = fresh(directory, "delta_concurrent") / "t"
    files = write_files(place, range(writers * each))
    DeltaTable.create(str(place), schema=SCHEMA)
    outcome = run_writers(writers, each, functools.partial(prepare_writer, place, files))
    outcome.emit(PEER, (int(Path(uri).stem[1:]) for uri in DeltaTable(str(place)).file_uris()))


def prepare_writer(place: Path, files: Sequence[Path], _writer: int) -> Commit:
    table = DeltaTable(str(place))
    return functools.partial(commit_file, table, table.schema(), files)


def plan(directory: Path, *, files: int, per_commit: int) -> None:
    place = fresh(directory, f"delta_plan_{files}") / "t"
    emit(PEER, "plan", "build", build_planned(place, files, per_commit), "s", n=files)
    predicates = {"point": (f"id = {files // 2 * ROWS + 5}", 1), "partition": ("part = 37", files // 100), "all": (None, files)}
    for name, (predicate, wanted) in predicates.items():
        cold = best_ms(functools.partial(list_cold, place, predicate, wanted), 5)
        emit(PEER, "plan", f"{name}_cold", cold, "ms", n=files)
        table = DeltaTable(str(place))
        list_files(table, predicate, wanted)
        emit(PEER, "plan", f"{name}_warm", best_ms(functools.partial(list_files, table, predicate, wanted), 5), "ms", n=files)


def build_planned(place: Path, files: int, per_commit: int) -> float:
    table = DeltaTable.create(str(place), schema=SCHEMA, partition_by=["part"])
    schema = table.schema()
    start = time.perf_counter()
    for first in range(0, files, per_commit):
        table.update_incremental()
        numbers = range(first, min(files, first + per_commit))
        actions: list[AddAction | RemoveAction] = [
            add_action(f"part={part_of(i, files)}/{file_name(i)}", i, part_of(i, files)) for i in numbers
        ]
        table.create_write_transaction(actions, "append", schema, partition_by=["part"])
    table.update_incremental()
    table.create_checkpoint()
    return time.perf_counter() - start


def list_cold(place: Path, predicate: str | None, wanted: int) -> None:
    list_files(DeltaTable(str(place)), predicate, wanted)


def list_files(table: DeltaTable, predicate: str | None, wanted: int) -> None:
    found = table.file_uris(file_pruning_predicate=predicate) if predicate else table.file_uris()
    assert len(found) == wanted, (predicate, len(found), wanted)


def retire(directory: Path, *, files: int, tiny: int = 0) -> None:
    """Drop five of ten partitions, then vacuum with no retention. With `tiny`, only those are on disk, and small."""
    place = fresh(directory, "delta_retire") / "t"
    paths = [place / file_name(number) for number in range(files)]
    if tiny:
        write_tiny_files(place, (number for number in range(files) if part_of(number) < 5))
    else:
        write_files(place, range(files))
    table = DeltaTable.create(str(place), schema=SCHEMA, partition_by=["part"])
    actions: list[AddAction | RemoveAction] = [add_action(path.name, number, part_of(number)) for number, path in enumerate(paths)]
    table.create_write_transaction(actions, "append", table.schema(), partition_by=["part"])
    table.update_incremental()
    settle()
    start = time.perf_counter()
    table.delete("part in (0,1,2,3,4)")
    emit(PEER, "retire", "metadata", files // 2 / (time.perf_counter() - start), "files/s", n=files)
    start = time.perf_counter()
    removed = table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    emit(PEER, "retire", "physical", len(removed) / (time.perf_counter() - start), "files/s", n=files, removed=len(removed))
    assert len(removed) == files // 2
    assert not any(path.exists() for number, path in enumerate(paths) if part_of(number) < 5)


if __name__ == "__main__":
    run_step({"register": register, "concurrent": concurrent, "plan": plan, "retire": retire})
