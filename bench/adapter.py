"""The only module of the benchmark that knows Lakebed: ours.py and memory.py call these functions and nothing else.

Files are numbered. File `n` is `data_directory(registry) / harness.file_name(n)`, holds 1,000 rows of `batches.SCHEMA`,
lies in partition `harness.part_of(n, spread)`, and bounds id by [n * 1000, n * 1000 + 999].
"""

import hashlib
import os
import secrets
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq

from batches import ROWS, SCHEMA, write_files
from harness import file_name, part_of
from lakebed import admin
from lakebed.core import fingerprints
from lakebed.core.events import ChangeKind as Change
from lakebed.core.events import RegistryTable
from lakebed.core.files import ColumnStatistics, Footer, NewFile
from lakebed.core.names import TableName
from lakebed.core.partitions import NewPartition
from lakebed.core.rows import TableFiles
from lakebed.core.schema import bounds
from lakebed.core.schema.types import Primitive
from lakebed.lake import Lake, connect
from lakebed.parquet.cache import FooterCache
from lakebed.parquet.capture import CapturedFile, capture
from lakebed.parquet.inspect import StatisticsSpec
from lakebed.registry.files.footers import FooterIndex
from lakebed.registry.files.operations import Operation
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.partitions.retire import load_partitions_to_retire, retire_loaded
from lakebed.registry.queries import plans
from lakebed.registry.tables.lake_tables import LakeTable
from lakebed.registry.transaction import Transaction
from lakebed.staging.write import new_op_id
from lakebed.testing import Follower
from planning import plan_files

Registry = Lake
TABLE = "bench.events"
NAME = TableName.parse(TABLE)
CHUNK = 1000
LONG, TIMESTAMP, DOUBLE = Primitive(name="long"), Primitive(name="timestamp"), Primitive(name="double")
FAKE_TAIL = hashlib.sha256(b"footer").digest() * 64  # as long as the footer of a real file of the benchmark, and as hard to compress
FAKE_SUM = hashlib.sha256(FAKE_TAIL).hexdigest()


def open_registry(url: str, warehouse: Path) -> Registry:
    return connect(url, warehouse=str(warehouse), service="off")


def close_registry(registry: Registry) -> None:
    registry.close()


def create_table(registry: Registry) -> None:
    registry.create_table(TABLE, SCHEMA, event_time="ts", partition_by=["part"], index=["id"])


@cache
def table_of(registry: Registry) -> LakeTable:
    return registry.table(TABLE)


def data_directory(registry: Registry) -> Path:
    return Path(registry.storage.paths.root) / "bench"


def statistics_spec() -> StatisticsSpec:
    return StatisticsSpec(event_time=3, indexed=frozenset({1, 3}), require_ids=False)


def register_one(registry: Registry, file_number: int) -> None:
    """Capture one existing file, then register it."""
    publish_one(registry, capture_one(registry, file_number))


def capture_one(registry: Registry, file_number: int) -> CapturedFile:
    """Stat, footer, statistics and SHA-256 of one file."""
    path = str(data_directory(registry) / file_name(file_number))
    return capture(registry.storage, path, table_of(registry).schema, spec=statistics_spec(), partition_path=f"part={part_of(file_number)}")


def publish_one(registry: Registry, captured: CapturedFile) -> None:
    """One durable transaction: partition, file, footer, statistics of 10 columns, counters, journal."""
    publish(registry, [captured.file], captured.event_range)


def publish(registry: Registry, files: list[NewFile], event_range: tuple[int, int] | None) -> None:
    partition = NewPartition(
        table=NAME,
        schema_hash=table_of(registry).schema_hash,
        fingerprint=fingerprints.from_bytes(secrets.token_bytes(16)),
        files=tuple(files),
        event_range=event_range,
    )
    publish_partition(registry.registry, partition, Operation(op_id=new_op_id(registry.registry)))


def fill(registry: Registry, up_to: int, *, spread: int | None = None) -> None:
    """In bulk, a thousand files of one part at a time; they need not exist on disk."""
    by_part: dict[int, list[int]] = {}
    for number in range(up_to):
        by_part.setdefault(part_of(number, spread), []).append(number)
    for part, numbers in by_part.items():
        for start in range(0, len(numbers), CHUNK):
            chunk = numbers[start : start + CHUNK]
            files = [fake_file(registry, number, part) for number in chunk]
            publish(registry, files, (chunk[0] * ROWS * 1000, (chunk[-1] + 1) * ROWS * 1000))


def fake_file(registry: Registry, number: int, part: int) -> NewFile:
    low, high = number * ROWS, number * ROWS + ROWS - 1
    columns = [
        statistics(1, LONG, low, high, indexed=True),
        statistics(2, LONG, part, part),
        statistics(3, TIMESTAMP, low * 1000, high * 1000, indexed=True),
    ]
    columns += [statistics(4 + k, DOUBLE, 0.001, 0.999) for k in range(7)]
    return NewFile(
        path=str(data_directory(registry) / file_name(number)),
        size_bytes=20_000,
        row_count=ROWS,
        checksum=FAKE_SUM,
        partition_path=f"part={part}",
        footer=Footer(tail=FAKE_TAIL, num_rows=ROWS, checksum=FAKE_SUM),
        columns=tuple(columns),
    )


def statistics(field_id: int, kind: Primitive, low: float, high: float, *, indexed: bool = False) -> ColumnStatistics:
    return ColumnStatistics(
        field_id=field_id,
        null_count=0,
        value_count=ROWS,
        lower=bounds.lower_bound(kind, low),
        upper=bounds.upper_bound(kind, high),
        lower_coordinate=bounds.coordinate(kind, low) if indexed else None,
        upper_coordinate=bounds.coordinate(kind, high) if indexed else None,
    )


def list_file_numbers(registry: Registry) -> list[int]:
    """The numbers of all live files; one that is registered twice is listed twice."""
    return [number_of(f.file_name) for f in registry.files.list(TABLE)]


def number_of(name: str) -> int:
    return int("".join(filter(str.isdigit, name.removesuffix(".parquet"))))


def plan_point(registry: Registry, key: int) -> list[str]:
    """Paths of the files that may hold `id = key`."""
    exact = bounds.encode(LONG, key)
    wanted_id = plans.ColumnRange(field_id=1, lower=exact, upper=exact, lower_coordinate=float(key), upper_coordinate=float(key))
    return plan_files(registry.registry, NAME, ranges=[wanted_id]).paths


def plan_partition(registry: Registry, part: int) -> list[str]:
    return plan_files(registry.registry, NAME, partition_paths=[f"part={part}"]).paths


def plan_all(registry: Registry) -> list[str]:
    return plan_files(registry.registry, NAME).paths


def retire_half(registry: Registry) -> int:
    """Retire the partitions that hold the parts 0 .. 4 of the ten, in one transaction."""
    rows = registry.registry.query(
        "SELECT DISTINCT partition_id FROM table_files WHERE table_id = :table_id AND partition_path IN (:paths*) AND retired_seq IS NULL",
        {"table_id": registry.registry.require_table_id(NAME), "paths": [f"part={part}" for part in range(5)]},
    )
    ids = {row[0] for row in rows}

    def retire(tx: Transaction) -> int:
        table = tx.require(NAME)
        return retire_loaded(tx, table, load_partitions_to_retire(tx, table, ids, exactly=True), reason="retired", grace_us=0).files

    return registry.registry.transact(retire, tables=[NAME])


def clean_up(registry: Registry) -> int:
    return admin.delete_expired_temporary_files(registry.registry, registry.storage).deleted


def drop_triggers(registry: Registry) -> None:
    """Stop journal capture, to measure what it costs."""
    with registry.registry.write() as tx:
        for table in RegistryTable:
            for change in Change:
                name = f"capture_{table}_{change.lower()}"
                tx.run(f"DROP TRIGGER {name}" + (f" ON {table}" if tx.dialect == "postgresql" else ""))


def follow(registry: Registry) -> Iterator[int]:
    follower = Follower(registry.registry)
    for event in follower.follow(threading.Event()):
        if isinstance(event.data, TableFiles) and event.operation is Change.INSERT:
            yield number_of(event.data.file_name)


def store_footer(registry: Registry, path: Path) -> None:
    """Register a wide file in a table of its own, so that its footer is in the registry and in the cache."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - a benchmark of memory must not carry it

    wide = registry.create_table("bench.wide", pq.read_schema(path))
    captured = capture(registry.storage, str(path), wide.schema, spec=StatisticsSpec(require_ids=False))
    partition = NewPartition(table=wide.name, schema_hash=wide.schema_hash, fingerprint=fingerprints.ZERO, files=(captured.file,))
    publish_partition(registry.registry, partition, Operation(op_id=new_op_id(registry.registry)))


def register_links(registry: Registry, files: int) -> list[str]:
    """One real file under many names, registered in bulk; the paths."""
    directory = data_directory(registry)
    write_files(directory, [0])
    first = capture_one(registry, 0).file
    captured = [replace(first, path=str(directory / f"link{number:06d}.parquet")) for number in range(files)]
    for file in captured:
        os.link(first.path, file.path)
    for start in range(0, files, CHUNK):
        publish(registry, captured[start : start + CHUNK], (0, ROWS * 1000))
    return [file.path for file in captured]


def footer_index(registry: Registry, *, enabled: bool) -> FooterIndex:
    return FooterIndex(registry.registry, registry.storage, cache=FooterCache(max_bytes=1 << 30), enabled=enabled)


def open_with_footer(registry: Registry, path: Path) -> object:
    """Open the file with its cached parsed footer."""
    return pq.ParquetFile(str(path), metadata=registry.files.footer(str(path)))
