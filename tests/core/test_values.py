"""Fingerprints, operation ids, files and partitions: small values with rules of their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.core import fingerprints
from lakebed.core.errors import InvalidNameError, InvalidValueError
from lakebed.core.files import FileType, Footer, NewFile
from lakebed.core.ids import make_op_id, require_op_id
from lakebed.core.names import TableName
from lakebed.core.partitions import NewPartition, join_event_ranges
from lakebed.core.times import MAX_MICROS
from strategies import op_ids

fingerprint_lists = st.lists(op_ids, max_size=6)
HASH = "ab" * 32


def make_file(path: str = "/lake/a.parquet", *, rows: int = 3) -> NewFile:
    footer = Footer(tail=b"tail", num_rows=3, checksum=HASH)
    return NewFile(path=path, size_bytes=10, row_count=rows, checksum=HASH, footer=footer)


@given(fingerprint_lists, st.randoms(use_true_random=False))
def test_a_sum_of_fingerprints_does_not_depend_on_order_or_grouping(every: list[str], random: object) -> None:
    shuffled = list(every)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    left, right = shuffled[: len(every) // 2], shuffled[len(every) // 2 :]

    assert fingerprints.add([fingerprints.add(left), fingerprints.add(right)]) == fingerprints.add(every)


@given(fingerprint_lists)
def test_a_sum_is_a_fingerprint_and_zero_is_neutral(every: list[str]) -> None:
    total = fingerprints.add(every)

    assert len(total) == 32
    assert fingerprints.add([total, fingerprints.ZERO]) == total
    assert fingerprints.add([]) == fingerprints.ZERO


@given(fingerprint_lists, op_ids, op_ids)
def test_replacing_one_part_changes_the_sum(others: list[str], old: str, new: str) -> None:
    assert (fingerprints.add([*others, old]) == fingerprints.add([*others, new])) == (old == new)


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16))
def test_different_random_bytes_give_different_fingerprints(left: bytes, right: bytes) -> None:
    assert (fingerprints.from_bytes(left) == fingerprints.from_bytes(right)) == (left == right)


@given(st.integers(0, MAX_MICROS), st.integers(0, MAX_MICROS), st.binary(min_size=10, max_size=10), st.binary(min_size=10, max_size=10))
def test_operation_ids_sort_by_time(first: int, second: int, left: bytes, right: bytes) -> None:
    earlier, later = make_op_id(first, left), make_op_id(second, right)

    assert require_op_id(earlier) == earlier
    if first // 1000 < second // 1000:
        assert earlier < later
    elif first // 1000 == second // 1000:
        assert (earlier < later) == (left < right)


@pytest.mark.parametrize("op_id", ["", "0" * 31, "0" * 33, "A" * 32, "g" * 32, "0" * 32 + "\n", "../" + "0" * 29])
def test_an_invalid_operation_id_is_refused(op_id: str) -> None:
    with pytest.raises(InvalidValueError):
        require_op_id(op_id)


def test_a_file_knows_its_name() -> None:
    assert make_file("s3://bucket/x/part-00000.parquet").name == "part-00000.parquet"


@pytest.mark.parametrize(
    "wrong",
    [
        {"size_bytes": 0}, {"row_count": 0}, {"row_count": 4}, {"checksum": "ab"}, {"checksum": HASH.upper()}, {"footer": None},
        {"file_type": FileType.JSON}, {"path": "/lake/a\nb"}, {"partition_path": "a\nb"},
    ],
)  # fmt: skip
def test_a_file_that_contradicts_itself_is_refused(wrong: dict[str, object]) -> None:
    right = {"path": "/lake/a", "size_bytes": 10, "row_count": 3, "checksum": HASH, "footer": Footer(tail=b"t", num_rows=3, checksum=HASH)}

    with pytest.raises(InvalidValueError):
        NewFile(**{**right, **wrong})  # type: ignore[arg-type]


def test_a_partition_counts_the_rows_of_its_files() -> None:
    partition = NewPartition(table=TableName("a", "b"), schema_hash="h", fingerprint="f", files=(make_file("/a"), make_file("/b")))

    assert partition.num_rows == 6
    assert NewPartition(table=TableName("a", "b"), schema_hash="h", fingerprint="f").num_rows == 0


def test_a_partition_that_contradicts_itself_is_refused() -> None:
    table, files = TableName("a", "b"), (make_file(),)

    for event_range, given_files in (((2, 1), files), ((1, 2), ()), (None, files * 2)):
        with pytest.raises(InvalidValueError):
            NewPartition(table=table, schema_hash="h", fingerprint="f", files=given_files, event_range=event_range)
    with pytest.raises(InvalidNameError):
        NewPartition(table=table, schema_hash="h", fingerprint="f", instance="../x")


def test_event_ranges_join_from_the_first_time_to_the_last_and_unknown_ones_widen_nothing() -> None:
    assert join_event_ranges([(5, 9), None, (2, 6)]) == (2, 9)
    assert join_event_ranges([None]) is None
    assert join_event_ranges([]) is None


def test_only_rows_get_a_fingerprint_that_changes_views() -> None:
    first, second = fingerprints.make_fingerprint(has_rows=True), fingerprints.make_fingerprint(has_rows=True)

    assert len(first) == 32
    assert first != second
    assert fingerprints.make_fingerprint(has_rows=False) == fingerprints.ZERO
