from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from footer_samples import framed, meta_of, padded, people, pyarrow_view, tail_of, write
from footer_trees import FILE_ROWS, GROUP_ROWS, POINTERS, ROW_GROUPS, Tree, decode, drop, encode, everywhere, get, replace, with_chunks
from thrift.Thrift import TType

from lakebed.core.errors import FooterCorruptError, FooterRowsError
from lakebed.parquet.footer.framing import find_meta, normalize
from lakebed.parquet.footer.upgrade import RowCounts, count_rows, upgrade_v1
from lakebed.parquet.inspect import parse

if TYPE_CHECKING:
    from collections.abc import Callable

UNKNOWN: Tree = [
    (60, TType.I32, 7),
    (61, TType.STRUCT, [(1, TType.BOOL, True), (40, TType.LIST, (TType.BOOL, [True, False])), (41, TType.DOUBLE, 2.5)]),
    (62, TType.MAP, {"kinds": (TType.STRING, TType.STRUCT), "items": [(b"k", [(3, TType.I64, -9)]), (b"l", [])]}),
    (63, TType.LIST, (TType.LIST, [(TType.I64, [1, -(2**62)]), (TType.I64, [])])),
    (64, TType.MAP, {"kinds": (TType.I32, TType.BYTE), "items": []}),
    (300, TType.SET, (TType.STRING, [b"", b"x" * 200])),
    (32000, TType.BOOL, False),
]


def strip_index_pointers(meta: bytes) -> bytes:
    return find_meta(upgrade_v1(meta, registry_rows=None).tail)


@pytest.fixture(scope="module")
def meta() -> bytes:
    """Five rows in three row groups, with page indexes."""
    return meta_of(write(people(5), row_group_size=2, write_page_index=True))


@pytest.fixture(scope="module")
def wide() -> bytes:
    """10,000 columns in three row groups, with page indexes."""
    table = pa.table({f"c{n}": pa.array(range(6)) for n in range(10_000)})
    return meta_of(write(table, row_group_size=2, write_page_index=True, compression="none", use_dictionary=False))


def with_file_rows(meta: bytes, rows: int) -> bytes:
    return encode(replace(decode(meta), FILE_ROWS, rows))


def without_pointers(meta: bytes) -> bytes:
    """The independent answer: decoded, filtered and written again by Apache Thrift."""
    return encode(with_chunks(decode(meta), lambda chunk: drop(chunk, *POINTERS)))


def with_unknown_fields(meta: bytes) -> bytes:
    grown = everywhere(decode(meta), lambda struct: [*struct, *UNKNOWN])
    return encode(grown)


def test_the_independent_writer_agrees_with_pyarrow(meta: bytes) -> None:
    assert encode(decode(meta)) == meta


def test_a_zero_row_count_becomes_the_sum_of_the_row_groups(meta: bytes) -> None:
    footer = upgrade_v1(with_file_rows(meta, 0), registry_rows=5)

    assert footer.num_rows == 5
    assert parse(footer.tail).num_rows == 5
    assert footer.checksum == hashlib.sha256(footer.tail).hexdigest()


def test_an_absent_row_count_is_put_in(meta: bytes) -> None:
    footer = upgrade_v1(encode(drop(decode(meta), FILE_ROWS)), registry_rows=5)

    assert footer.tail == framed(strip_index_pointers(meta))


def test_a_row_count_is_put_in_even_where_nothing_follows(meta: bytes) -> None:
    lonely = encode([field for field in decode(meta) if field[0] < FILE_ROWS])

    footer = upgrade_v1(lonely, registry_rows=None)

    assert decode(footer.tail[:-8])[-1] == (FILE_ROWS, TType.I64, 0)


def test_a_true_row_count_is_kept(meta: bytes) -> None:
    assert upgrade_v1(meta, registry_rows=5).tail == framed(strip_index_pointers(meta))


def test_another_count_in_the_registry_is_an_error_and_not_used(meta: bytes) -> None:
    for blob in (meta, with_file_rows(meta, 0)):
        with pytest.raises(FooterRowsError, match="999") as caught:
            upgrade_v1(blob, registry_rows=999)
        assert (caught.value.footer_rows, caught.value.registry_rows) == (5, 999)


def test_a_file_level_that_contradicts_the_row_groups_is_an_error(meta: bytes) -> None:
    with pytest.raises(FooterRowsError, match="file level"):
        upgrade_v1(with_file_rows(meta, 6), registry_rows=6)


def test_a_retired_partition_needs_no_registry_count(meta: bytes) -> None:
    assert upgrade_v1(with_file_rows(meta, 0), registry_rows=None).num_rows == 5


def test_rows_are_counted_on_both_levels(meta: bytes) -> None:
    assert count_rows(with_file_rows(meta, 7)) == RowCounts(file_rows=7, row_group_rows=5)


def test_any_framing_upgrades_to_the_same_footer(meta: bytes) -> None:
    blobs = (meta, framed(meta), b"index" + framed(meta), b"PAR1data" + framed(meta))

    assert len({upgrade_v1(blob, registry_rows=5) for blob in blobs}) == 1


def test_upgrading_twice_changes_nothing_more(meta: bytes) -> None:
    once = upgrade_v1(with_file_rows(meta, 0), registry_rows=5)

    assert upgrade_v1(once.tail, registry_rows=5) == once


def test_stripping_removes_the_four_pointers_and_nothing_else(meta: bytes) -> None:
    stripped = strip_index_pointers(meta)

    assert stripped == without_pointers(meta)
    assert len(stripped) < len(meta)
    assert pyarrow_view(stripped) == pyarrow_view(meta)


def test_stripped_chunks_have_no_page_index_any_more(meta: bytes) -> None:
    before, after = parse(framed(meta)), parse(framed(strip_index_pointers(meta)))

    for group in range(3):
        assert before.row_group(group).column(0).has_column_index
        assert not after.row_group(group).column(0).has_column_index
        assert not after.row_group(group).column(1).has_offset_index


@pytest.mark.parametrize("kept", [{4, 5}, {6, 7}, {5}, {4, 7}, set()])
def test_chunks_with_only_some_pointers_lose_those(meta: bytes, kept: set[int]) -> None:
    some = encode(with_chunks(decode(meta), lambda chunk: drop(chunk, *(POINTERS - kept))))

    assert strip_index_pointers(some) == without_pointers(meta)


def test_a_footer_without_pointers_is_left_as_it_is() -> None:
    meta = meta_of(write(people()))

    assert strip_index_pointers(meta) == meta


def test_unknown_fields_at_every_depth_survive_byte_for_byte(meta: bytes) -> None:
    grown = with_unknown_fields(meta)

    stripped = strip_index_pointers(grown)

    assert stripped == without_pointers(grown)
    assert decode(stripped) == with_chunks(decode(grown), lambda chunk: drop(chunk, *POINTERS))
    assert normalize(grown) == framed(grown)


@pytest.mark.parametrize("following", [8, 9, 19, 20, 22, 23, 30000])
def test_the_header_after_a_cut_is_rewritten_however_far_its_id_is(meta: bytes, following: int) -> None:
    marked = encode(with_chunks(decode(meta), lambda chunk: [*drop(chunk, 8, 9), (following, TType.STRING, b"mark")]))

    assert strip_index_pointers(marked) == without_pointers(marked)


def test_a_header_that_names_its_id_in_full_stays_as_it_is() -> None:
    chunk = b"\x26\x00" + b"\x26\x02" + b"\x15\x04" + b"\x05\x10\x0e" + b"\x00"  # ids 2, 4, 5 by delta, 8 in full
    meta = b"\x39\x1c" + b"\x19\x1c" + chunk + b"\x26\x02" + b"\x00" + b"\x00"
    group_first = b"\x49" + meta[1:]  # row_groups is field 4

    stripped = strip_index_pointers(group_first)

    row_count = b"\x36\x02"  # field 3, so that field 4 comes one after it
    assert stripped == row_count + b"\x19" + meta[1:].replace(b"\x26\x02\x15\x04\x05\x10\x0e", b"\x05\x10\x0e")


@pytest.mark.parametrize("size", [1024, 8191, 8192, 8193, 1 << 20])
def test_footers_of_any_size_round_trip(size: int) -> None:
    meta = padded(meta_of(write(people(5), write_page_index=True, store_schema=False)), size)
    assert len(meta) == size

    upgraded = upgrade_v1(with_file_rows(meta, 0), registry_rows=5)

    assert normalize(meta) == framed(meta)
    assert upgraded.tail == framed(without_pointers(meta))
    assert parse(upgraded.tail).num_rows == 5


def test_ten_thousand_columns_upgrade_whole(wide: bytes) -> None:
    zeroed = wide.replace(b"\x16\x0c\x19\x3c", b"\x16\x00\x19\x3c")  # file-level rows 6, then a list of three structs
    assert (len(wide), wide.count(b"\x16\x0c\x19\x3c")) == (len(zeroed), 1)

    footer = upgrade_v1(zeroed, registry_rows=6)

    assert footer.num_rows == 6
    assert pyarrow_view(footer.tail[:-8]) == pyarrow_view(wide)
    assert not any(has_pointers(footer.tail, group=group) for group in range(3))


def has_pointers(tail: bytes, *, group: int) -> bool:
    chunks = parse(tail).row_group(group)
    return any(chunks.column(n).has_column_index or chunks.column(n).has_offset_index for n in range(chunks.num_columns))


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: [*tree, (ROW_GROUPS, TType.LIST, (TType.STRUCT, []))],
        lambda tree: [*tree, (FILE_ROWS, TType.I64, 5)],
        lambda tree: [*tree, (2, TType.LIST, get(tree, 2))],
        lambda tree: replace(tree, FILE_ROWS, -1),
        lambda tree: [(i, TType.I32 if i == FILE_ROWS else kind, value) for i, kind, value in tree],
        lambda tree: [*drop(tree, ROW_GROUPS), (ROW_GROUPS, TType.I64, 3)],
        lambda tree: replace(tree, ROW_GROUPS, (TType.I64, [1, 2])),
        lambda tree: replace(tree, ROW_GROUPS, (TType.STRUCT, [drop(group, GROUP_ROWS) for group in get(tree, ROW_GROUPS)[1]])),
        lambda tree: replace(
            tree, ROW_GROUPS, (TType.STRUCT, [[*group, (GROUP_ROWS, TType.I64, 1)] for group in get(tree, ROW_GROUPS)[1]])
        ),
    ],
    ids=[
        "groups twice",
        "rows twice",
        "schema twice",
        "negative",
        "rows of another type",
        "groups no list",
        "groups no structs",
        "no count",
        "count twice",
    ],
)
def test_metadata_that_readers_would_disagree_about_is_refused(meta: bytes, change: Callable[[Tree], Any]) -> None:
    with pytest.raises(FooterCorruptError):
        upgrade_v1(encode(change(decode(meta))), registry_rows=None)


def test_no_truncation_upgrades() -> None:
    meta = meta_of(write(people(5), store_schema=False))

    for length in range(len(meta)):
        with pytest.raises(FooterCorruptError):
            upgrade_v1(meta[:length], registry_rows=None)


def test_the_stored_tail_is_the_files_own(meta: bytes) -> None:
    file = write(people(5))

    assert normalize(file) == tail_of(file) == file[-len(tail_of(file)) :]
    assert meta != meta_of(file)
