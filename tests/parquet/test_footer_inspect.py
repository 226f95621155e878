from __future__ import annotations

import hashlib
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from footer_samples import LONG, framed, meta_of, one_column, people, people_schema, tail_of, with_ids, write
from footer_trees import FILE_ROWS, decode, encode, get, replace, with_chunks
from hostile_footers import corpus

from lakebed.core.errors import FooterCorruptError, FooterRowsError
from lakebed.core.schema.bounds import lower_bound
from lakebed.core.schema.types import Primitive
from lakebed.core.times import to_micros
from lakebed.parquet.inspect import ParseLimits, StatisticsSpec, inspect, is_in_old_calendar, parse

if TYPE_CHECKING:
    from lakebed.core.schema.schema import Schema


def test_an_inspection_holds_all_that_the_registry_keeps() -> None:
    tail = tail_of(write(people(), row_group_size=60))

    found = inspect(tail, people_schema())

    assert (found.footer.tail, found.footer.num_rows, found.row_groups) == (tail, 100, 2)
    assert found.footer.checksum == hashlib.sha256(tail).hexdigest()
    assert [column.field_id for column in found.columns] == [1, 2]
    assert found.problems == ()
    assert found.created_by.startswith("parquet-cpp-arrow")
    assert found.event_range is None


def test_the_old_calendar_is_known_by_its_mark_and_not_by_a_value() -> None:
    rows = pa.table({"x": ["org.apache.spark.legacyDateTime"]})

    assert not is_in_old_calendar(tail_of(write(rows)))
    assert is_in_old_calendar(tail_of(write(rows.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}))))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)]), "timestamptz"),
        (pa.array([datetime(2026, 1, 2), datetime(2026, 1, 3)]), "timestamp"),  # noqa: DTZ001 - a column without zone
        (pa.array([date(2026, 1, 2), date(2026, 1, 3)]), "date"),
    ],
    ids=["timestamptz", "timestamp", "date"],
)
def test_the_event_range_is_in_microseconds(values: pa.Array, kind: str) -> None:
    tail = tail_of(write(with_ids(pa.table({"x": values}))))

    found = inspect(tail, one_column(Primitive(name=kind)), spec=StatisticsSpec(event_time=1, first=0))

    assert found.event_range == (to_micros(datetime(2026, 1, 2, tzinfo=UTC)), to_micros(datetime(2026, 1, 3, tzinfo=UTC)))
    assert [column.field_id for column in found.columns] == [1]


@pytest.mark.parametrize(
    ("values", "schema"),
    [
        (pa.array([None], pa.timestamp("us")), one_column(Primitive(name="timestamp"))),
        (pa.array([2**62], pa.timestamp("ms")), one_column(Primitive(name="timestamp"))),
        (pa.array([1]), one_column(LONG)),
    ],
    ids=["only nulls", "beyond 64 bits", "no time"],
)
def test_an_unknown_event_range_is_none(values: pa.Array, schema: Schema) -> None:
    tail = tail_of(write(with_ids(pa.table({"x": values}))))

    assert inspect(tail, schema, spec=StatisticsSpec(event_time=1)).event_range is None


def test_a_file_without_rows_is_inspected() -> None:
    found = inspect(tail_of(write(people(0))), people_schema())

    assert (found.footer.num_rows, found.columns[0].lower) == (0, None)


def test_a_file_level_that_contradicts_the_row_groups_is_refused() -> None:
    meta = encode(replace(decode(meta_of(write(people(5)))), FILE_ROWS, 6))

    with pytest.raises(FooterRowsError, match="file level"):
        inspect(framed(meta), people_schema())


@pytest.mark.parametrize("tail", [b"", b"PAR1", b"\0\0\0\0PAR1", b"x" * 100, framed(b"\0"), framed(b"\x15\x04\x00")])
def test_bytes_that_are_not_a_footer_are_refused(tail: bytes) -> None:
    with pytest.raises(FooterCorruptError, match="cannot be parsed"):
        parse(tail)


def test_a_name_that_is_not_utf_8_is_refused() -> None:
    meta = meta_of(write(pa.table({"name": [1]}), store_schema=False)).replace(b"name", b"\xff\xfe\xfd\xfc")

    with pytest.raises(FooterCorruptError):
        inspect(framed(meta), one_column(LONG))


def test_limits_are_handed_to_thrift() -> None:
    tail = tail_of(write(pa.table({f"c{n}": [n] for n in range(50)})))

    assert parse(tail).num_columns == 50
    with pytest.raises(FooterCorruptError):
        parse(tail, limits=ParseLimits(container_items=49))
    with pytest.raises(FooterCorruptError):
        parse(tail, limits=ParseLimits(string_bytes=100))


def test_the_default_limits_let_ten_thousand_columns_pass() -> None:
    tail = tail_of(write(pa.table({f"c{n}": [n] for n in range(10_000)}), store_schema=False))

    assert parse(tail, limits=ParseLimits()).num_columns == 10_000


@pytest.mark.parametrize("first", [0, 32])
def test_nulls_in_a_required_column_are_a_problem(first: int) -> None:
    tail = tail_of(write(with_ids(pa.table({"x": [1, None, None]}))))
    spec = StatisticsSpec(first=first)

    assert inspect(tail, one_column(LONG), spec=spec).problems == ()
    (problem,) = inspect(tail, one_column(LONG, required=True), spec=spec).problems
    assert str(problem).startswith("column 'x' is required and holds 2 nulls")


def test_a_column_with_other_values_than_rows_is_refused() -> None:
    meta = with_value_count(meta_of(write(people(5))), 4)

    with pytest.raises(FooterCorruptError, match="column 'id', row group 0: it counts 4 values, its row group 5 rows"):
        inspect(framed(meta), people_schema())


def test_a_row_group_without_all_the_columns_is_refused() -> None:
    with pytest.raises(FooterCorruptError, match="without all the columns"):
        inspect(corpus()["columns missing in a row group"], people_schema())


def with_value_count(meta: bytes, count: int) -> bytes:
    return encode(with_chunks(decode(meta), lambda chunk: replace(chunk, 3, replace(get(chunk, 3), 5, count))))


def test_files_of_one_layout_differ_by_their_values() -> None:
    first, second = (tail_of(write(with_ids(pa.table({"x": [n]})))) for n in (3, 4))
    schema = one_column(LONG)

    lowest = [inspect(tail, schema).columns[0].lower for tail in (first, second, first)]

    assert lowest == [lower_bound(LONG, n) for n in (3, 4, 3)]


def test_schemas_that_print_alike_are_not_confused() -> None:
    table = with_ids(pa.table({"x": pa.array(["a"])}))
    forged = with_ids(pa.table({"x (String)": pa.array([b"a"])}))
    schema = one_column(Primitive(name="string"))

    assert inspect(tail_of(write(table)), schema).problems == ()
    assert "byte array" in inspect(tail_of(write(forged)), schema).problems[0].message
