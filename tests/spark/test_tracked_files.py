"""The registry's record of a file against independent measurements, field by field."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from insert_lakes import ORDERS, make_orders

if TYPE_CHECKING:
    from lakebed.lake import Lake

FILES = 100  # of each format
START = datetime(2026, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SIGN, ALL = 1 << 63, (1 << 64) - 1
CODECS = ("none", "snappy", "zstd", "gzip", "lz4")
Row = dict[str, Any]


def draw_rows(chosen: random.Random) -> list[Row]:
    return [
        {
            "id": chosen.randrange(-(1 << 40), 1 << 40),
            "ts": START + timedelta(microseconds=chosen.randrange(10**13)),
            "amount": None if chosen.random() < 0.2 else chosen.choice([chosen.uniform(-1e9, 1e9), 0.0, -2.5]),
        }
        for _ in range(chosen.randrange(1, 60))
    ]


def write_parquet(path: Path, rows: list[Row], chosen: random.Random) -> None:
    kinds = {"id": pa.int64(), "ts": pa.timestamp("us", tz="UTC"), "amount": pa.float64()}
    fields = [pa.field(name, kind, metadata={b"PARQUET:field_id": str(n).encode()}) for n, (name, kind) in enumerate(kinds.items(), 1)]
    table = pa.Table.from_pylist(rows, schema=pa.schema(fields))
    pq.write_table(table, path, compression=chosen.choice(CODECS), row_group_size=chosen.randrange(1, 70), store_schema=False)


def write_json(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(json.dumps(row | {"ts": row["ts"].isoformat()}) + "\n" for row in rows))


def measure_column(rows: list[Row], name: str) -> tuple[int, int, Any, Any]:
    """Doubles have no upper bound: NaN is above all numbers, and the statistics of a file do not include it."""
    values = [row[name] for row in rows if row[name] is not None]
    upper = None if name == "amount" else max(values, default=None)
    return len(rows) - len(values), len(rows), min(values, default=None), upper


def tracked_columns(lake: Lake, path: str) -> dict[str, tuple[int, int, Any, Any]]:
    sql = """SELECT field_id, null_count, value_count, lower, upper FROM file_columns
WHERE file_id = (SELECT id FROM table_files WHERE file_path = :path)"""
    names = {f.field_id: f.name for f in lake.table(ORDERS).schema.fields}
    return {
        names[field]: (nulls, values, decode(names[field], lower), decode(names[field], upper))
        for field, nulls, values, lower, upper in lake.registry.query(sql, {"path": path})
    }


def decode(name: str, bound: bytes | None) -> Any:
    """Bytes that sort as the values do: the sign turned over, and all bits of a negative double with it."""
    if bound is None:
        return None
    raw = int.from_bytes(bytes(bound), "big")
    if name == "amount":
        return struct.unpack(">d", (raw ^ (SIGN if raw & SIGN else ALL)).to_bytes(8, "big"))[0]
    return raw - SIGN if name == "id" else EPOCH + timedelta(microseconds=raw - SIGN)


def test_two_hundred_files_of_both_formats_are_recorded_as_others_measure_them(spark_lake: Lake) -> None:
    chosen = random.Random(45)
    make_orders(spark_lake)
    place = Path(spark_lake.storage.paths.root) / "incoming"
    place.mkdir()
    written: dict[str, list[Row]] = {}
    for number in range(FILES):
        for kind in ("parquet", "json"):
            target = place / f"{number:03d}.{kind}"
            written[str(target)] = rows = draw_rows(chosen)
            if kind == "parquet":
                write_parquet(target, rows, chosen)
            else:
                write_json(target, rows)

    spark_lake.files.register(ORDERS, [path for path in written if path.endswith("parquet")])
    spark_lake.files.register_json(ORDERS, [path for path in written if path.endswith("json")])

    files = {file.file_path: file for file in spark_lake.files.list(ORDERS)}
    assert set(files) == set(written)
    for path, rows in written.items():
        content, file = Path(path).read_bytes(), files[path]
        assert (file.file_name, file.file_type) == (Path(path).name, Path(path).suffix[1:])
        assert (file.file_size, file.row_count) == (len(content), len(rows))
        assert (file.checksum, file.checksum_kind) == (hashlib.sha256(content).hexdigest(), "sha256")
        names = ("id", "ts", "amount") if file.file_type == "parquet" else ()  # JSON is never pruned: it becomes Parquet first
        assert tracked_columns(spark_lake, path) == {name: measure_column(rows, name) for name in names}, path
    (sums,) = spark_lake.registry.query("SELECT file_count, row_count, total_size FROM tables")
    assert tuple(sums) == (2 * FILES, sum(map(len, written.values())), sum(Path(path).stat().st_size for path in written))
