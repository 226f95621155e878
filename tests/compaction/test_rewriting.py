"""Files rewritten in this process: the same rows, ids, statistics and order, of about the size that was asked for."""

from __future__ import annotations

import random
import tempfile
import threading
from collections import Counter
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from row_strategies import tables

from lakebed.core.errors import FileChangedError, StorageFullError
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.parquet.inspect import StatisticsSpec
from lakebed.parquet.rewrite.encoding import choose_dictionaries
from lakebed.parquet.rewrite.reader import RowSum, Source, sum_file, sum_files
from lakebed.parquet.rewrite.rewriter import Rewritten, WriteOptions, rewrite_files
from lakebed.parquet.rewrite.row_hash import sum_rows
from lakebed.parquet.rewrite.target import TargetSchema
from lakebed.parquet.schema.arrow import from_arrow, to_arrow, to_arrow_nullable
from lakebed.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.storage.protocol import Storage

OPERATION = "shop/orders-1/data/" + "0" * 32
INPUTS = "shop/orders-1/data/" + "1" * 32
NUMBERS = from_arrow(pa.schema([("id", pa.int64()), ("share", pa.float64()), ("name", pa.string())]))


def never() -> bool:
    return False


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "warehouse"), create=True)


def write(storage: Storage, number: int, rows: pa.Table, **options: Any) -> Source:
    path = Path(storage.paths.root) / INPUTS / f"part-{number:05d}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, **options)
    return Source(path=str(path), size_bytes=path.stat().st_size)


def write_options(storage: Storage, schema: Schema, **options: Any) -> WriteOptions:
    numbers = iter(range(10_000))
    directory = f"{storage.paths.root}/{OPERATION}"
    given = {"target_bytes": 1 << 20, "spec": StatisticsSpec(), **options}
    return WriteOptions(target=TargetSchema(schema), new_path=lambda: storage.paths.new_file(directory, next(numbers), "parquet"), **given)


def rewrite(storage: Storage, sources: Sequence[Source], schema: Schema, **options: Any) -> Rewritten:
    done = rewrite_files(storage, sources, write_options(storage, schema, **options), cancelled=never)
    assert done is not None
    return done


def numbers(start: int, count: int) -> pa.Table:
    chosen = random.Random(start)
    values = [list(range(start, start + count)), [chosen.random() for _ in range(count)], [f"n{i % 7}" for i in range(count)]]
    return pa.table(values, schema=to_arrow(NUMBERS))


def read(done: Rewritten) -> pa.Table:
    return pa.concat_tables([pq.ParquetFile(c.file.path).read() for c in done.files])


def test_many_files_become_few_of_the_target_size_with_the_same_rows(storage: Storage) -> None:
    sources = [write(storage, n, numbers(n * 1000, 1000)) for n in range(60)]
    target = sum(s.size_bytes for s in sources) // 6

    done = rewrite(storage, sources, NUMBERS, target_bytes=target, compression="snappy")

    sizes = [c.file.size_bytes for c in done.files]
    assert len(sizes) == -(-sum(sizes) // target)
    assert all(0.75 * target <= size <= 1.8 * target for size in sizes)
    assert done.before == done.after == RowSum(rows=60_000, hash=done.before.hash)
    assert sorted(read(done).column("id").to_pylist()) == list(range(60_000))
    assert read(done).sort_by("id").column("share").to_pylist() == [
        v for n in range(60) for v in numbers(n * 1000, 1000)["share"].to_pylist()
    ]


@pytest.mark.parametrize("sources", [9, 11, 40, 200])
def test_files_come_out_evenly_however_coarse_the_old_ones_are(storage: Storage, sources: int) -> None:
    """Of eleven old files of not quite half the target each, shares of whole ones would leave an output half empty."""
    rows = 140_000 // sources
    inputs = [write(storage, n, numbers(n * rows, rows), compression="none", use_dictionary=False) for n in range(sources)]
    whole = sum(source.size_bytes for source in inputs)

    target = whole * 3 // 16
    done = rewrite(storage, inputs, NUMBERS, target_bytes=target, compression="uncompressed", whole_bytes=1 << 16)

    sizes = [c.file.size_bytes for c in done.files]
    assert len(sizes) >= 4
    assert all(0.75 * target <= size <= 1.8 * target for size in sizes)
    assert done.before == done.after == RowSum(rows=rows * sources, hash=done.before.hash)
    assert sorted(read(done).column("id").to_pylist()) == list(range(rows * sources))


def test_field_ids_statistics_and_codec_are_kept(storage: Storage) -> None:
    sources = [write(storage, n, numbers(n * 100, 100)) for n in range(3)]

    (captured,) = rewrite(storage, sources, NUMBERS, compression="zstd").files

    file = pq.ParquetFile(captured.file.path)
    assert [int(f.metadata[b"PARQUET:field_id"]) for f in file.schema_arrow] == [1, 2, 3]
    group = file.metadata.row_group(0)
    assert {group.column(n).compression for n in (0, 2)} == {"ZSTD"}
    assert (group.column(0).statistics.min, group.column(0).statistics.max, group.column(0).statistics.null_count) == (0, 299, 0)
    assert group.column(0).has_column_index
    assert [c.field_id for c in captured.file.columns] == [1, 2, 3]


def test_a_column_that_its_codec_makes_no_smaller_is_stored_without(storage: Storage) -> None:
    sources = [write(storage, n, numbers(n * 1000, 1000)) for n in range(3)]

    (captured,) = rewrite(storage, sources, NUMBERS, compression="snappy").files

    group = pq.ParquetFile(captured.file.path).metadata.row_group(0)
    assert [group.column(n).compression for n in range(3)] == ["SNAPPY", "UNCOMPRESSED", "SNAPPY"]


def test_columns_whose_values_repeat_get_a_dictionary_and_others_do_not() -> None:
    assert choose_dictionaries(numbers(0, 5000)) == ["name"]


def test_nested_columns_are_named_as_parquet_names_them() -> None:
    kind = pa.schema(
        [
            ("a", pa.list_(pa.struct([("b", pa.int64())]))),
            ("m", pa.map_(pa.string(), pa.list_(pa.int32()))),
            ("s", pa.struct([("x.y", pa.int64())])),
        ]
    )
    assert choose_dictionaries(pa.table([[], [], []], schema=kind)) == [
        "a.list.element.b", "m.key_value.key", "m.key_value.value.list.element", "s.x.y",
    ]  # fmt: skip


@given(tables())
@settings(max_examples=60)
def test_rows_of_any_type_survive(drawn: tuple[Schema, pa.Table]) -> None:
    schema, rows = drawn
    with tempfile.TemporaryDirectory() as directory:
        storage = open_storage(f"{directory}/warehouse", create=True)
        sources = [write(storage, n, rows) for n in range(2) if rows.num_rows]

        done = rewrite(storage, sources, schema) if sources else None

        if done is not None:
            assert Counter(map(repr, read(done).to_pylist())) == Counter(map(repr, pa.concat_tables([rows, rows]).to_pylist()))
            assert done.before == done.after
            assert done.after.hash == 2 * sum_rows(rows, [f.field_id for f in schema.fields]) % (1 << 128)


def test_files_of_other_writers_are_brought_into_one_shape(storage: Storage) -> None:
    """Without ids, with columns in another order, with one missing, and with narrower, coarser and otherwise named types."""
    wanted = Schema(
        fields=(
            Field(field_id=1, name="id", type=Primitive(name="long")),
            Field(field_id=2, name="ts", type=Primitive(name="timestamptz"), physical_name="at"),
            Field(field_id=3, name="note", type=Primitive(name="string")),
        )
    )
    ours = pa.table([[1], [1000], ["x"]], schema=to_arrow_nullable(wanted))
    unnamed = pa.table({"note": ["y"], "at": pa.array([2], pa.timestamp("ms", "UTC")), "id": pa.array([2], pa.int32())})
    lacking = pa.table({"id": pa.array([3], pa.int64())})
    sources = [write(storage, n, rows) for n, rows in enumerate([ours, unnamed, lacking])]

    done = rewrite(storage, sources, wanted)

    rows = read(done).sort_by("id")
    assert rows.schema.equals(to_arrow_nullable(wanted), check_metadata=False)
    assert rows.column("at").cast(pa.int64()).to_pylist() == [1000, 2000, None]
    assert rows.column("note").to_pylist() == ["x", "y", None]
    assert done.before == done.after


def test_the_order_of_the_table_is_kept_with_null_first_and_nan_last(storage: Storage) -> None:
    shuffled = numbers(0, 1000).take(random.Random(1).sample(range(1000), 1000))
    odd = pa.table([[2, 1, 0], [None, float("nan"), 0.5], ["n1", "n1", None]], schema=to_arrow_nullable(NUMBERS))
    sources = [write(storage, 0, shuffled), write(storage, 1, odd)]

    done = rewrite(storage, sources, NUMBERS, sort_by=("name", "share"))

    (captured,) = done.files
    rows = pq.ParquetFile(captured.file.path).read().to_pylist()
    assert [r["name"] for r in rows] == [None, *sorted(r["name"] for r in rows[1:])]
    ones = [r["share"] for r in rows if r["name"] == "n1"]
    assert ones[0] is None
    assert ones[-1] != ones[-1]
    assert ones[1:-1] == sorted(ones[1:-1])
    assert done.before == done.after


def test_too_much_to_sort_at_once_is_sorted_file_by_file(storage: Storage) -> None:
    sources = [write(storage, n, numbers(-n * 1000, 1000)) for n in range(20)]

    done = rewrite(storage, sources, NUMBERS, sort_by=("id",), sort_bytes=1000, target_bytes=sum(s.size_bytes for s in sources) // 4)

    assert len(done.files) > 2
    for captured in done.files:
        ids = pq.ParquetFile(captured.file.path).read().column("id").to_pylist()
        assert ids == sorted(ids)
    assert done.before == done.after


def test_a_large_file_is_read_in_batches(storage: Storage) -> None:
    sources = [write(storage, 0, numbers(0, 3000)), write(storage, 1, numbers(3000, 10)), write(storage, 2, numbers(3010, 3000))]

    done = rewrite(storage, sources, NUMBERS, whole_bytes=1000)

    assert read(done).column("id").to_pylist() == list(range(6010))
    assert sum_files(storage, sources, TargetSchema(NUMBERS)) == done.before == done.after


def test_a_file_summed_by_columns_is_the_same_as_summed_by_rows(storage: Storage) -> None:
    source = write(storage, 0, numbers(0, 5000), row_group_size=700)

    assert sum_file(storage, source.path, TargetSchema(NUMBERS)) == sum_files(storage, [source], TargetSchema(NUMBERS))


def test_a_cancelled_rewrite_gives_nothing_and_leaves_no_thread(storage: Storage) -> None:
    sources = [write(storage, n, numbers(n * 100, 100)) for n in range(100)]
    asked = chain([False], repeat(object=True))

    assert rewrite_files(storage, sources, write_options(storage, NUMBERS, target_bytes=2000), cancelled=lambda: next(asked)) is None


def test_a_lane_that_fails_takes_the_others_along(storage: Storage) -> None:
    sources = [write(storage, n, numbers(n * 1000, 1000)) for n in range(60)]
    target = sum(s.size_bytes for s in sources) // 8
    Path(sources[-1].path).write_bytes(b"PAR1")
    before = threading.active_count()

    with pytest.raises(FileChangedError, match="part-00059"):
        rewrite(storage, sources, NUMBERS, target_bytes=target, compression="snappy")

    assert threading.active_count() == before


@pytest.mark.parametrize("damage", ["cut", "longer", "garbled", "another"])
def test_a_file_that_differs_from_its_registration_is_reported(storage: Storage, damage: str) -> None:
    source = write(storage, 0, numbers(0, 100))
    content, another = Path(source.path).read_bytes(), Path(write(storage, 1, numbers(0, 10)).path).read_bytes()
    garbled = content[:-8] + b"\xff\xff\xff\xffPAR1"
    Path(source.path).write_bytes({"cut": content[:-1], "longer": content + b"x", "garbled": garbled, "another": another}[damage])

    with pytest.raises(FileChangedError, match="changed after it was written"):
        rewrite(storage, [source], NUMBERS)


def test_a_full_disk_is_reported_as_such(storage: Storage) -> None:
    sources = [write(storage, n, numbers(n * 1000, 1000)) for n in range(3)]

    with pytest.raises(StorageFullError, match="no space is left"):
        rewrite_files(storage, sources, replace(write_options(storage, NUMBERS), new_path=lambda: "/dev/full"), cancelled=never)


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "none", "uncompressed", "lz4_raw"])
def test_every_codec_of_a_table_can_be_written(storage: Storage, codec: str) -> None:
    done = rewrite(storage, [write(storage, 0, numbers(0, 10))], NUMBERS, compression=codec)

    assert replace(done.before, hash=0) == RowSum(rows=10)
