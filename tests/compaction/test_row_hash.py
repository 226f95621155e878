"""The sum over rows: blind to order, files and encodings, and to nothing else."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from row_strategies import tables

from lakebed.parquet.rewrite.row_hash import MODULUS, RowSummer, sum_rows

if TYPE_CHECKING:
    from lakebed.core.schema.schema import Schema

NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("share", pa.float64()),
        ("price", pa.decimal128(20, 2)),
        ("ok", pa.bool_()),
        ("key", pa.binary(3)),
        ("tags", pa.list_(pa.string())),
        ("points", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.float32())]))),
        ("attributes", pa.map_(pa.string(), pa.int64())),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
    ]
)
ROWS: list[tuple[object, ...]] = [
    (1, "tea", 0.5, Decimal("1.25"), True, b"abc", ["a", "b"], [{"x": 1, "y": 2.0}], [("k", 1)], {"city": "Bonn", "zip": 1}),
    (2, "", float("nan"), Decimal("-1.25"), False, b"abd", [], [], [], {"city": "", "zip": None}),
    (3, None, None, None, None, None, None, None, None, None),
    (4, "x" * 70_000, -0.0, Decimal("12345678901234567.89"), True, b"\0\0\0", [None, ""], [None], [("k", None)], {"city": None, "zip": 0}),
]
IDS = range(1, len(NESTED) + 1)


def table_of(rows: list[tuple[object, ...]]) -> pa.Table:
    return pa.table([pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), NESTED, strict=True)], schema=NESTED)


WHOLE = sum_rows(table_of(ROWS), IDS)


@given(st.permutations(ROWS))
def test_the_order_of_rows_does_not_matter(rows: list[tuple[object, ...]]) -> None:
    assert sum_rows(table_of(rows), IDS) == WHOLE


@pytest.mark.parametrize("cut", range(1, 4))
def test_the_sum_of_parts_is_the_sum_of_the_whole(cut: int) -> None:
    whole = table_of(ROWS)
    first, second = whole.slice(0, cut), whole.slice(cut)

    assert (sum_rows(first, IDS) + sum_rows(second, IDS)) % MODULUS == WHOLE
    assert sum_rows(pa.concat_tables([second, first]), IDS) == WHOLE
    assert sum_rows(pa.concat_tables([second, first]).combine_chunks(), IDS) == WHOLE


def test_the_order_of_columns_does_not_matter_and_their_ids_do() -> None:
    whole = table_of(ROWS)

    assert sum_rows(whole.select(list(reversed(whole.column_names))), list(reversed(IDS))) == WHOLE
    assert sum_rows(whole, [*IDS[:-2], IDS[-1], IDS[-2]]) != WHOLE


@pytest.mark.parametrize("column", range(len(NESTED)))
def test_a_change_of_any_one_value_changes_the_sum(column: int) -> None:
    for row in range(len(ROWS)):
        for other in range(len(ROWS)):
            changed = [list(values) for values in ROWS]
            changed[row][column] = ROWS[other][column]
            is_same = repr(changed[row][column]) == repr(ROWS[row][column])
            assert (sum_rows(table_of([tuple(values) for values in changed]), IDS) == WHOLE) == is_same


def test_values_that_move_to_another_row_change_the_sum() -> None:
    kinds = pa.schema([("a", pa.float64()), ("b", pa.float64())])
    straight = pa.table({"a": [1.0, 2.0, 4.0], "b": [1.0, 2.0, 4.0]}, schema=kinds)
    shifted = pa.table({"a": [1.0, 2.0, 4.0], "b": [2.0, 4.0, 1.0]}, schema=kinds)
    swapped = pa.table({"a": [1.0, 2.0], "b": [2.0, 4.0]}, schema=kinds)
    other = pa.table({"a": [2.0, 4.0], "b": [1.0, 2.0]}, schema=kinds)

    for one, two in ((straight, shifted), (swapped, other)):
        assert sum_rows(one, [1, 2]) % (1 << 64) != sum_rows(two, [1, 2]) % (1 << 64)


def test_round_numbers_do_not_collide() -> None:
    pairs = [(float(a), float(b)) for a in range(-40, 40) for b in range(-40, 40)]
    found = {sum_rows(pa.table({"a": [a], "b": [b]}), [1, 2]) for a, b in pairs}

    assert len(found) == len(pairs)


def test_what_reads_the_same_counts_the_same() -> None:
    odd = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_0001))[0]

    assert sum_rows(pa.table({"a": [odd]}), [1]) == sum_rows(pa.table({"a": [float("nan")]}), [1])
    assert sum_rows(pa.table({"a": pa.array([7], pa.int32())}), [1]) == sum_rows(pa.table({"a": pa.array([7], pa.int64())}), [1])
    assert sum_rows(pa.table({"a": pa.array(["x"], pa.large_string())}), [1]) == sum_rows(pa.table({"a": ["x"]}), [1])
    assert sum_rows(pa.table({"a": pa.array([["x"]], pa.large_list(pa.string()))}), [1]) == sum_rows(pa.table({"a": [["x"]]}), [1])
    narrow, wide = pa.array([Decimal("1.20")], pa.decimal128(5, 2)), pa.array([Decimal("1.20")], pa.decimal128(30, 2))
    assert sum_rows(pa.table({"a": narrow}), [1]) == sum_rows(pa.table({"a": wide}), [1])


def test_null_is_not_a_value() -> None:
    assert sum_rows(pa.table({"a": pa.array([None], pa.int64())}), [1]) != sum_rows(pa.table({"a": [0]}), [1])
    assert sum_rows(pa.table({"a": pa.array([None], pa.string())}), [1]) != sum_rows(pa.table({"a": [""]}), [1])
    assert sum_rows(pa.table({"a": pa.array([None], pa.list_(pa.int64()))}), [1]) != sum_rows(pa.table({"a": [[]]}), [1])
    assert sum_rows(pa.table({"a": pa.nulls(2)}), [1]) == sum_rows(pa.table({"a": pa.array([None, None], pa.int64())}), [1])


def test_nothing_sums_up_to_nothing() -> None:
    assert sum_rows(table_of(ROWS).slice(0, 0), IDS) == 0
    assert sum_rows(pa.table({}), []) == 0


def test_a_task_returns_rows_and_sum_in_one_row() -> None:
    (answer,) = RowSummer(IDS)(table_of(ROWS).to_batches())

    assert answer.to_pylist() == [{"rows": 4, "hash": str(WHOLE)}]


@given(tables(), st.integers(0, 8))
def test_any_table_sums_up_alike_in_any_split(drawn: tuple[Schema, pa.Table], cut: int) -> None:
    schema, whole = drawn
    ids = [field.field_id for field in schema.fields]

    parts = sum_rows(whole.slice(0, cut), ids) + sum_rows(whole.slice(cut), ids)

    assert parts % MODULUS == sum_rows(whole, ids)
    assert sum_rows(whole.take(pa.array(reversed(range(whole.num_rows)), pa.int64())), ids) == sum_rows(whole, ids)
