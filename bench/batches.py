"""The data of every benchmark: deterministic batches of ten columns (id, part, ts, f0..f6) and Parquet files made of them."""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness import file_name, part_of

ROWS = 1_000
DOUBLES = tuple(f"f{k}" for k in range(7))
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int32()), ("ts", pa.timestamp("us")), *((name, pa.float64()) for name in DOUBLES)])


def make_batch(number: int, rows: int = ROWS, part: int | None = None) -> pa.Table:
    """Batch `number`: a dense range of ids, one part, timestamps in step with the ids, seven random doubles."""
    random = np.random.default_rng(number)
    ids = np.arange(number * rows, (number + 1) * rows, dtype=np.int64)
    columns = [
        pa.array(ids),
        pa.array(np.full(rows, part_of(number) if part is None else part, dtype=np.int32)),
        pa.array(ids * 1000, pa.timestamp("us")),
        *(pa.array(random.random(rows)) for _ in DOUBLES),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def write_files(directory: Path, numbers: Iterable[int], rows: int = ROWS) -> list[Path]:
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in numbers:
        path = directory / file_name(number)
        pq.write_table(make_batch(number, rows), path)
        paths.append(path)
    return paths


def write_tiny_files(directory: Path, numbers: Iterable[int]) -> None:
    """Real files of a few kilobytes with equal content: for clean-up, where only their number and their names count."""
    directory.mkdir(parents=True, exist_ok=True)
    sample = directory / "sample.parquet"
    pq.write_table(make_batch(0, rows=10), sample)
    content = sample.read_bytes()
    sample.unlink()
    for number in numbers:
        (directory / file_name(number)).write_bytes(content)


def read_footer(path: Path) -> bytes:
    """The Parquet tail: footer, its length, the magic. `pq.read_metadata` accepts it as a file."""
    with path.open("rb") as file:
        file.seek(-8, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(-8 - length, os.SEEK_END)
        return file.read()


def write_wide_file(path: Path, columns: int, row_groups: int) -> None:
    """Row groups of 100 rows; every third column holds strings, the others doubles."""
    rows = row_groups * 100
    random = np.random.default_rng(1)
    table = {
        f"column_name_{k:03d}": random.random(rows) if k % 3 else [f"value_{x:06d}" for x in random.integers(0, 10**6, rows)]
        for k in range(columns)
    }
    pq.write_table(pa.table(table), path, row_group_size=100)
