"""What it costs to open a Parquet file with pyarrow, by where its footer comes from."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from batches import read_footer, write_wide_file
from harness import Timings, emit, fresh, percentile, run_step

if TYPE_CHECKING:
    from collections.abc import Callable

PEER = "pyarrow"


def open_files(directory: Path, *, columns: int, row_groups: int, times: int = 200) -> None:
    place = fresh(directory, f"footers_{columns}_{row_groups}")
    path = place / "wide.parquet"
    write_wide_file(path, columns, row_groups)
    footer = read_footer(path)
    packed = zstandard.compress(footer, 3)
    with closing(sqlite3.connect(place / "footers.db")) as connection:
        connection.execute("CREATE TABLE footer(file_id INTEGER PRIMARY KEY, raw BLOB, packed BLOB)")
        connection.execute("INSERT INTO footer VALUES (1, ?, ?)", (footer, packed))
        connection.commit()
        parsed = pq.read_metadata(path)
        fetch = lambda column: connection.execute(f"SELECT {column} FROM footer WHERE file_id=1").fetchone()[0]  # noqa: E731
        ways: dict[str, Callable[[], object]] = {
            "from_file": lambda: pq.read_metadata(path),
            "from_blob": lambda: pq.read_metadata(pa.BufferReader(fetch("raw"))),
            "from_blob_zstd": lambda: pq.read_metadata(pa.BufferReader(zstandard.decompress(fetch("packed")))),
            "blob_fetch_only": lambda: fetch("raw"),
            "file_tail_only": lambda: read_footer(path),
            "open_plain": lambda: pq.ParquetFile(path).close(),
            "open_with_metadata": lambda: pq.ParquetFile(path, metadata=parsed).close(),
        }
        for name, way in ways.items():
            way()
            timings = Timings()
            for _ in range(times):
                timings.time(way)
            emit(PEER, "footer", name, percentile(timings.wall_ms, 10), "ms", cols=columns, rg=row_groups)
    emit(PEER, "footer", "size", len(footer), "B", cols=columns, rg=row_groups, zstd=len(packed), file=path.stat().st_size)


if __name__ == "__main__":
    run_step({"open": open_files})
