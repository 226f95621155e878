"""Files whose footer points nowhere, or whose pages cannot be decoded, are refused with the place of the damage; valid ones never."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damaged_parquet import DATA, DICTIONARY, FOOTERS, SIZE, sample, with_chunk, with_footer, with_group_size, with_page
from footer_samples import tail_of
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import ORDERS, SCHEMA, arrow_rows, make_table
from lakebed.core.errors import AdoptionRefusedError, InvalidValueError, LimitExceededError, UnreadableFileError
from lakebed.core.files import Verify
from lakebed.parquet.capture import CapturedFile, capture, capture_foreign
from lakebed.parquet.footer.framing import find_meta
from lakebed.parquet.footer.upgrade import list_pointers
from lakebed.parquet.foreign.infer import read_columns
from lakebed.parquet.foreign.preflight import check_files
from lakebed.parquet.foreign.sandbox import ForeignFile, Inspector, WorkerLimits
from lakebed.parquet.inspect import Inspection, StatisticsSpec, inspect
from lakebed.parquet.pages import find_damage
from lakebed.parquet.schema.tree import decode_schema
from lakebed.testing import temporary_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.lake import Lake

SPEC = StatisticsSpec(event_time=2)
PAGES = [
    pytest.param(page, part, compression, crc, id=f"{compression} {page} {part}{' with checksums' if crc else ''}")
    for page in ("data", "dictionary")
    for part in ("header", "body")
    for compression in ("none", "snappy", "zstd")
    for crc in (False, True)
    if crc or (compression, page, part) != ("none", "dictionary", "body")  # any eight bytes are a number
]


@pytest.fixture
def own_lake() -> Iterator[Lake]:
    with temporary_lake() as lake:
        make_table(lake.registry)
        yield lake


def put(lake: Lake, content: bytes, name: str = "a.parquet") -> str:
    target = Path(lake.storage.paths.root) / "incoming" / name
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(content)
    return str(target)


def rows() -> pa.Table:
    return arrow_rows(1, rows=400)


# -- what the footer shows --------------------------------------------------------------------


@pytest.mark.parametrize("name", FOOTERS)
def test_a_footer_that_points_nowhere_is_refused_with_row_group_and_column(own_lake: Lake, name: str) -> None:
    path = put(own_lake, with_footer(sample(rows()), name))
    column = rows().schema.names[1]

    with pytest.raises(UnreadableFileError, match=FOOTERS[name][1]) as refused:
        own_lake.files.register(str(ORDERS), [path])

    assert (refused.value.path, refused.value.row_group, refused.value.column) == (path, 1, column)
    assert f"column '{column}', row group 1: " in str(refused.value)
    assert own_lake.files.list(str(ORDERS)) == []


@pytest.mark.parametrize("name", [name for name in FOOTERS if not any(word in name for word in ("index", "Bloom"))])
def test_a_file_of_ours_is_refused_for_the_same(own_lake: Lake, name: str) -> None:
    path = put(own_lake, with_footer(sample(rows()), name))

    with pytest.raises(UnreadableFileError, match=FOOTERS[name][1]) as refused:
        capture(own_lake.storage, path, SCHEMA, spec=SPEC)

    assert (refused.value.row_group, refused.value.column) == (1, rows().schema.names[1])


@pytest.mark.parametrize("size", [-1, 10**12])
def test_a_row_group_that_claims_more_than_its_file_is_refused(own_lake: Lake, size: int) -> None:
    with pytest.raises(UnreadableFileError, match=f"row group 1: it claims {size} bytes"):
        own_lake.files.register(str(ORDERS), [put(own_lake, with_group_size(sample(rows()), size))])


def test_the_other_files_of_a_call_are_captured(own_lake: Lake) -> None:
    good, bad = put(own_lake, sample(rows())), put(own_lake, with_footer(sample(rows()), "no size"), "b.parquet")

    found = capture_foreign(own_lake.storage, [bad, good, bad], SCHEMA, spec=SPEC)

    assert [type(answer) for answer in found] == [UnreadableFileError, CapturedFile, UnreadableFileError]


# -- what only the pages show -----------------------------------------------------------------


@pytest.mark.parametrize(("page", "part", "compression", "crc"), PAGES)
def test_pages_that_cannot_be_decoded_are_found_where_they_are(page: str, part: str, compression: str, crc: bool) -> None:  # noqa: FBT001
    content = with_page(sample(rows(), compression=compression, write_page_checksum=crc), page=page, part=part)

    damage = find_damage(pa.BufferReader(content), tail_of(content))

    assert damage is not None
    assert (damage.row_group, damage.column) == (1, rows().schema.names[1])


@pytest.mark.parametrize(("page", "part", "compression", "crc"), PAGES[::5])
def test_verified_pages_keep_a_damaged_file_out_of_every_door(
    lake: Lake,
    tmp_path: Path,
    page: str,
    part: str,
    compression: str,
    crc: bool,  # noqa: FBT001
) -> None:  # fmt: skip
    make_table(lake.registry)
    content = with_page(sample(rows(), compression=compression, write_page_checksum=crc), page=page, part=part)
    good, bad = put(lake, sample(rows())), put(lake, content, "bad.parquet")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "bad.parquet").write_bytes(content)
    (outside / "good.parquet").write_bytes(sample(rows()))

    with pytest.raises(UnreadableFileError, match=r"bad\.parquet' cannot be registered: it cannot be decoded") as refused:
        lake.files.register(str(ORDERS), [good, bad], verify="pages")
    verdicts = check_files(lake.storage, [bad, good], SCHEMA, event_time=2, verify=Verify.PAGES)
    with pytest.raises(AdoptionRefusedError, match="cannot be decoded"):
        lake.tables.adopt(str(ORDERS), str(outside), verify="pages")
    adopted = lake.tables.adopt(str(ORDERS), str(outside), verify="pages", skip_refused=True)

    assert (refused.value.row_group, refused.value.column) == (1, rows().schema.names[1])
    assert [(verdict.ok, [p.column for p in verdict.problems]) for verdict in verdicts] == [(False, [rows().schema.names[1]]), (True, [])]
    assert [Path(file.path).name for file in adopted.refused] == ["bad.parquet"]
    assert sum(file.row_count for file in lake.files.list(str(ORDERS))) == 400
    for path in (good, bad):
        Path(path).unlink()
    assert lake.check(deep=True).clean


def test_rows_that_the_pages_do_not_hold_are_missed() -> None:
    table = rows()
    content = sample(table)
    short = with_chunk(content, {5: 200})  # as many as before: nothing changes
    assert find_damage(pa.BufferReader(short), tail_of(short)) is None
    one = pq.read_metadata(pa.BufferReader(content)).row_group(1).column(1)
    cut = with_chunk(content, {SIZE: one.data_page_offset - (one.dictionary_page_offset or 0) + 1, DATA: one.data_page_offset})

    damage = find_damage(pa.BufferReader(cut), tail_of(cut))

    assert damage is not None
    assert damage.column == table.schema.names[1]


def test_an_unknown_way_of_verifying_is_refused_before_any_file_is_opened(own_lake: Lake) -> None:
    for call in (own_lake.files.register, lambda name, paths, **options: own_lake.tables.adopt(name, paths[0], **options)):
        with pytest.raises(InvalidValueError, match="invalid verify 'everything': expected 'footer' or 'pages'"):
            call(str(ORDERS), ["/nowhere"], verify="everything")


def test_pages_that_take_too_long_are_refused_with_the_limit(own_lake: Lake) -> None:
    path = put(own_lake, sample(pa.concat_tables([rows()] * 100)))
    limits = WorkerLimits(page_seconds=-0.5)

    (found,) = capture_foreign(own_lake.storage, [path], SCHEMA, spec=SPEC, limits=limits, verify=Verify.PAGES)

    assert isinstance(found, LimitExceededError)
    assert "s of decoding" in str(found)


def test_a_page_that_claims_gigabytes_costs_only_its_own_answer(own_lake: Lake) -> None:
    zeros = pa.table({"id": pa.array([b"\0" * (1 << 20)] * 300)})
    sink = io.BytesIO()
    pq.write_table(zeros, sink, compression="zstd", use_dictionary=False, data_page_size=1 << 30)
    bomb = put(own_lake, sink.getvalue(), "bomb.parquet")
    good = put(own_lake, sample(rows()))
    limits = WorkerLimits(page_memory_bytes=64 << 20)

    found = capture_foreign(own_lake.storage, [bomb, good], SCHEMA, spec=SPEC, limits=limits, verify=Verify.PAGES)

    assert isinstance(found[0], LimitExceededError)
    assert "of memory" in str(found[0])
    assert isinstance(found[1], CapturedFile)


# -- valid files ------------------------------------------------------------------------------


def require_valid(content: bytes) -> None:
    """By the footer as the worker sees it, and by the pages."""
    tail = tail_of(content)
    schema, _ = read_columns(decode_schema(find_meta(tail)))
    inspect(
        tail, schema, spec=StatisticsSpec(require_ids=False), file_bytes=len(content), pointers=list_pointers(find_meta(tail))
    )  # raises what would be refused
    assert find_damage(pa.BufferReader(content), tail) is None


CELLS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-5, 5)),
    "double": (pa.float64(), st.floats()),
    "string": (pa.string(), st.text(max_size=5)),
    "flag": (pa.bool_(), st.booleans()),
    "list": (pa.list_(pa.int32()), st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=3)),
    "map": (pa.map_(pa.string(), pa.int64()), st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=2).map(lambda d: [*d.items()])),
    "struct": (pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]), st.fixed_dictionaries({"x": st.integers(0, 9), "y": st.lists(st.text(max_size=2), max_size=2)})),
}  # fmt: skip


@st.composite
def any_tables(draw: st.DrawFn) -> pa.Table:
    names = draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=5, unique=True))
    count = draw(st.integers(0, 40))
    columns = {}
    for name in names:
        kind, cell = CELLS[name]
        columns[name] = pa.array(draw(st.lists(st.one_of(st.none(), cell), min_size=count, max_size=count)), kind)
    return pa.table(columns)


@settings(max_examples=150)
@given(
    table=any_tables(),
    options=st.fixed_dictionaries(
        {
            "compression": st.sampled_from(["none", "snappy", "gzip", "zstd", "lz4"]),
            "use_dictionary": st.booleans(),
            "version": st.sampled_from(["1.0", "2.4", "2.6"]),
            "data_page_version": st.sampled_from(["1.0", "2.0"]),
            "write_page_index": st.booleans(),
            "write_page_checksum": st.booleans(),
            "write_statistics": st.booleans(),
            "data_page_size": st.sampled_from([100, 1 << 20]),  # with less pyarrow writes pages of no values, and cannot read them
            "row_group_size": st.integers(1, 50),
        }
    ),
)
def test_no_valid_file_of_pyarrow_is_refused(table: pa.Table, options: dict[str, Any]) -> None:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)

    require_valid(sink.getvalue())


@settings(max_examples=30)
@given(table=any_tables(), codec=st.sampled_from(["uncompressed", "snappy", "zstd"]), rows_per_group=st.integers(1, 50))
def test_no_valid_file_of_polars_or_duckdb_is_refused(
    tmp_path_factory: pytest.TempPathFactory, table: pa.Table, codec: Literal["uncompressed", "snappy", "zstd"], rows_per_group: int
) -> None:
    place = tmp_path_factory.mktemp("others")
    frame = pl.DataFrame(table.drop_columns([name for name in table.column_names if name == "map"]))  # polars has no maps
    if frame.width:
        frame.write_parquet(place / "polars.parquet", compression=codec, row_group_size=rows_per_group)
    with duckdb.connect() as connection:
        connection.register("given", table)
        connection.sql(f"COPY given TO '{place}/duckdb.parquet' (FORMAT parquet, CODEC '{codec}', ROW_GROUP_SIZE {rows_per_group})")

    for file in place.iterdir():
        require_valid(file.read_bytes())


def test_what_old_writers_write_is_valid() -> None:
    """A dictionary at offset zero or less is none; parquet-mr up to 1.2.8 leaves the dictionary's header out of the size."""
    content = sample(rows(), use_dictionary=False)
    chunk = pq.read_metadata(pa.BufferReader(sample(rows()))).row_group(1).column(1)
    for valid in (with_chunk(content, {DICTIONARY: 0}), with_chunk(content, {DICTIONARY: -1})):
        require_valid(valid)
    short = with_chunk(sample(rows()), {SIZE: chunk.total_compressed_size - 15})

    assert inspect(tail_of(short), SCHEMA, spec=SPEC, file_bytes=len(short)).footer.num_rows == 400


def test_an_empty_row_group_among_others_is_valid() -> None:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, rows().schema) as writer:
        for table in (rows()[:0], rows(), rows()[:0]):
            writer.write_table(table)

    require_valid(sink.getvalue())


def test_a_valid_file_has_the_same_answer_however_much_is_verified(own_lake: Lake) -> None:
    content = sample(rows())
    path = put(own_lake, content)
    file = ForeignFile(path=path, tail=tail_of(content), size_bytes=len(content))

    with Inspector(SCHEMA, spec=SPEC) as shallow, Inspector(SCHEMA, spec=SPEC, verify=Verify.PAGES) as deep:
        answers = [shallow.inspect(file), deep.inspect(file, read=lambda offset, length: content[offset : offset + length])]

    assert isinstance(answers[0], Inspection)
    assert answers[0] == answers[1]
