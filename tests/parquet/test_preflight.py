"""The pre-flight check names everything that keeps a file out, and how to fix it; registering proves the partition path."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.core.errors import NotIcebergReadyError, RefusedError, SchemaRefusedError
from lakebed.core.files import ColumnStatistics
from lakebed.core.schema.bounds import encode, lower_bound, upper_bound
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.transforms import resolve_transforms
from lakebed.core.schema.types import Field, Primitive
from lakebed.parquet.foreign.partition_values import decode_bound, find_partition_path
from lakebed.parquet.foreign.preflight import FileVerdict, check_files
from lakebed.parquet.schema.arrow import to_arrow
from lakebed.staging.register import register_files
from lakebed.testing import temporary_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.lake import Lake

SCHEMA = Schema(
    fields=(
        Field(field_id=1, name="id", type=Primitive(name="long")),
        Field(field_id=2, name="ts", type=Primitive(name="timestamptz")),
        Field(field_id=3, name="country", type=Primitive(name="string")),
    )
)
BY_DAY = ["day(ts)", "country"]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def lake() -> Iterator[Lake]:
    with temporary_lake() as opened:
        opened.create_table("shop.events", SCHEMA, event_time="ts", partition_by=BY_DAY)
        yield opened


def rows(*, days: int = 1, countries: tuple[str | None, ...] = ("DE",)) -> pa.Table:
    moments = [NOON + timedelta(days=day) for day in range(days)]
    values = [(i, moment, country) for i, (moment, country) in enumerate((m, c) for m in moments for c in countries)]
    return pa.Table.from_arrays([pa.array(column) for column in zip(*values, strict=True)], names=SCHEMA_NAMES).cast(to_arrow(SCHEMA))


SCHEMA_NAMES = ["id", "ts", "country"]


def put(lake: Lake, table: pa.Table, name: str = "a.parquet", **options: Any) -> str:
    target = Path(lake.storage.paths.root) / "incoming" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, target, **options)
    return str(target)


def check(lake: Lake, *paths: str, adopt: bool = False) -> list[FileVerdict]:
    return check_files(lake.storage, paths, SCHEMA, BY_DAY, event_time=2, adopt=adopt)


def kinds(verdict: FileVerdict) -> list[str]:
    return [problem.kind for problem in verdict.problems]


def without_ids(table: pa.Table) -> pa.Table:
    return table.cast(pa.schema([field.remove_metadata() for field in table.schema]))


def test_a_good_file_has_its_partition_path_and_no_problem(lake: Lake) -> None:
    path = put(lake, rows())

    (verdict,) = check(lake, path)

    assert verdict.ok
    assert (verdict.path, verdict.row_count, verdict.size_bytes) == (path, 1, Path(path).stat().st_size)
    assert verdict.partition_path == "ts_day=2026-03-01/country=DE"
    assert verdict.warnings == ()


def test_int96_is_named_with_the_setting_that_avoids_it(lake: Lake) -> None:
    (verdict,) = check(lake, put(lake, rows(), use_deprecated_int96_timestamps=True))

    assert kinds(verdict) == ["int96"]
    assert "TIMESTAMP_MICROS" in verdict.problems[0].fix


SPARK = "org.apache.spark.version"
OLD = datetime(1899, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
SWITCH = datetime(1900, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("marks", "first", "options", "found"),
    [
        ({SPARK: "3.5.1", "org.apache.spark.legacyDateTime": ""}, OLD, {}, ["old_calendar"]),
        ({SPARK: "2.4.8"}, OLD, {}, ["old_calendar"]),
        ({"org.apache.spark.sql.parquet.row.metadata": "{}"}, OLD, {}, ["old_calendar"]),
        ({SPARK: "2.4.8"}, SWITCH, {}, []),
        ({SPARK: "2.4.8"}, NOON, {"write_statistics": ["id", "country"]}, ["old_calendar"]),
        ({SPARK: "3.0.0"}, OLD, {}, []),
        ({SPARK: "10.1.0"}, OLD, {}, []),
        ({SPARK: "2.4.8"}, OLD, {"use_deprecated_int96_timestamps": True}, ["int96"]),
        ({}, OLD, {}, []),
    ],
    ids=[
        "marked",
        "an old Spark",
        "an older one",
        "the same in both",
        "unmarked",
        "a newer Spark",
        "a much newer one",
        "INT96",
        "no Spark",
    ],
)
def test_times_of_the_old_calendar_are_named_where_they_matter(
    lake: Lake, marks: dict[str, str], first: datetime, options: dict[str, Any], found: list[str]
) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([first]), pa.array(["DE"])], names=SCHEMA_NAMES).cast(to_arrow(SCHEMA))
    path = put(lake, table.replace_schema_metadata(marks), **options)

    (verdict,) = check_files(lake.storage, [path], SCHEMA, ["country"])

    assert kinds(verdict) == found
    if "old_calendar" in found:
        assert verdict.problems[0].fix.endswith("datetimeRebaseModeInWrite=CORRECTED")


@pytest.mark.parametrize("column", ["day", "days"])
@pytest.mark.parametrize(("first", "found"), [(date(1582, 10, 14), ["old_calendar"]), (date(1582, 10, 15), [])])
def test_dates_have_a_switch_of_their_own_in_lists_too(lake: Lake, column: str, first: date, found: list[str]) -> None:
    table = pa.table({"day": [first], "days": [[first]]}).select([column]).replace_schema_metadata({SPARK: "2.4.8"})
    path = put(lake, table)

    (verdict,) = check_files(lake.storage, [path], lake.create_table("shop.days", table.schema).schema, adopt=True)

    assert kinds(verdict) == found


def test_missing_statistics_are_problems_where_they_decide_and_warnings_elsewhere(lake: Lake) -> None:
    (verdict,) = check(lake, put(lake, rows(), write_statistics=False))

    assert {(p.kind, p.column) for p in verdict.problems} == {("missing_statistics", "ts"), ("missing_statistics", "country")}
    assert [(w.kind, w.column) for w in verdict.warnings] == [("missing_statistics", "id")]


def test_a_column_that_stands_only_in_the_path_is_named(lake: Lake) -> None:
    path = put(lake, rows().drop_columns(["country"]), "country=DE/a.parquet")

    (verdict,) = check(lake, path)

    assert [(p.kind, p.column) for p in verdict.problems] == [("path_only_column", "country")]
    assert verdict.partition_path is None
    with pytest.raises(NotIcebergReadyError, match="stands only in the path"):
        lake.files.register("shop.events", [path])


@pytest.mark.parametrize("name", ["country=FR/a.parquet", "country=DE/a.parquet"])
def test_a_path_is_never_believed_the_rows_are(lake: Lake, name: str) -> None:
    path = put(lake, rows(), name)

    lake.files.register("shop.events", [path])

    assert [f.partition_path for f in lake.files.list("shop.events")] == ["ts_day=2026-03-01/country=DE"]
    assert lake.check().clean


@pytest.mark.parametrize(
    ("table", "column"), [(rows(days=2), "ts"), (rows(countries=("DE", "FR")), "country"), (rows(countries=("DE", None)), "country")]
)
def test_a_file_that_spans_partitions_is_named_and_refused(lake: Lake, table: pa.Table, column: str) -> None:
    path = put(lake, table)

    (verdict,) = check(lake, path)

    assert [(p.kind, p.column) for p in verdict.problems] == [("spans_partitions", column)]
    assert "one file per partition value" in verdict.problems[0].fix
    with pytest.raises(NotIcebergReadyError, match="span several partitions"):
        lake.files.register("shop.events", [path])
    assert lake.files.list("shop.events") == []


def test_a_file_of_nothing_but_null_is_in_the_partition_of_null(lake: Lake) -> None:
    (verdict,) = check(lake, put(lake, rows(countries=(None,))))

    assert verdict.partition_path == "ts_day=2026-03-01/country=__HIVE_DEFAULT_PARTITION__"


def test_missing_field_ids_are_named_and_adoption_reads_by_name(lake: Lake) -> None:
    path = put(lake, without_ids(rows()))

    (refused,), (adopted,) = check(lake, path), check(lake, path, adopt=True)

    assert set(kinds(refused)) == {"missing_field_id"}
    assert adopted.ok
    with pytest.raises(NotIcebergReadyError, match="no field id"):
        lake.files.register("shop.events", [path])


def test_an_adopted_file_is_registered_with_its_partition_path(lake: Lake) -> None:
    path = put(lake, without_ids(rows()))

    register_files(lake.registry, lake.storage, lake.table("shop.events"), [path], adopt=True)

    assert [f.partition_path for f in lake.files.list("shop.events")] == ["ts_day=2026-03-01/country=DE"]
    assert lake.check().clean


def test_schema_differences_are_named_with_both_types(lake: Lake) -> None:
    table = rows()
    wrong = table.set_column(0, table.schema.field(0).with_type(pa.string()), table.column(0).cast(pa.string()))

    (verdict,) = check(lake, put(lake, wrong))

    assert kinds(verdict) == ["schema"]
    assert "the table says long" in verdict.problems[0].message


def test_a_missing_file_other_formats_and_empty_files_get_verdicts_of_their_own(lake: Lake) -> None:
    good, torn = put(lake, rows()), put(lake, rows(), "torn.parquet")
    Path(torn).write_bytes(Path(torn).read_bytes()[:-5])
    empty = put(lake, rows()[:0], "empty.parquet")

    verdicts = check(lake, torn, good, f"{lake.storage.paths.root}/nothing.parquet", empty, "/etc/passwd")

    assert [kinds(v) for v in verdicts] == [["unreadable"], [], ["unreadable"], ["empty"], ["unreadable"]]


def test_a_transform_of_an_unknown_column_is_refused_before_any_file_is_opened(lake: Lake) -> None:
    with pytest.raises(SchemaRefusedError):
        check_files(lake.storage, ["/nowhere"], SCHEMA, ["day(nothing)"])


def test_one_bad_file_of_a_partitioned_table_keeps_all_out(lake: Lake) -> None:
    good, bad = put(lake, rows()), put(lake, rows(days=2), "b.parquet")

    with pytest.raises(RefusedError, match=r"b\.parquet"):
        lake.files.register("shop.events", [good, bad])

    assert lake.files.list("shop.events") == []
    assert lake.list_partitions("shop.events") == []


def test_a_file_whose_event_time_is_unknown_is_named(lake: Lake) -> None:
    path = put(lake, rows(), write_statistics=["id", "country"])

    with pytest.raises(NotIcebergReadyError, match="event time"):
        lake.files.register("shop.events", [path])


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "date": st.dates(),
    "timestamptz": st.datetimes(timezones=st.just(UTC)),
    "string": st.text(max_size=20),
    "binary": st.binary(max_size=20),
}


@pytest.mark.parametrize("name", sorted(VALUES))
@settings(max_examples=30)
@given(data=st.data())
def test_a_bound_comes_back_as_the_value_it_was_made_of(name: str, data: st.DataObject) -> None:
    kind, value = Primitive(name=name), data.draw(VALUES[name])
    encoded = encode(kind, value)
    assert encoded is not None
    found = decode_bound(kind, encoded)

    assert encode(kind, found) == encoded
    if name in {"boolean", "int", "long", "string", "binary"}:
        assert found == value


def test_a_decimal_bound_keeps_every_digit() -> None:
    kind = Primitive(name="decimal", precision=38, scale=3)
    value = Decimal("-12345678901234567890123456789012345.678")

    assert decode_bound(kind, encode(kind, value) or b"") == value


@settings(max_examples=60)
@given(
    text=st.sampled_from(["c", "truncate(2, c)", "bucket(4, c)"]),
    values=st.lists(st.none() | st.sampled_from(["a", "ab", "abc", "b" * 70, "b" * 71, "\U0010ffff" * 20]), min_size=1, max_size=4),
)
def test_a_proven_path_is_the_path_of_every_row(text: str, values: list[str | None]) -> None:
    """Bounds may be cut and may leave a file unplaced, but never place it wrongly."""
    kind = Primitive(name="string")
    transforms = resolve_transforms(Schema(fields=(Field(field_id=1, name="c", type=kind),)), [text])
    known = [v for v in values if v is not None]
    column = ColumnStatistics(
        field_id=1,
        null_count=len(values) - len(known),
        value_count=len(values),
        lower=lower_bound(kind, min(known)) if known else None,
        upper=upper_bound(kind, max(known)) if known else None,
    )

    path, problems = find_partition_path([column], transforms)

    expected = {transforms[0][0].apply(value, kind) for value in values}
    assert (path is None) == bool(problems)
    if path is not None:
        assert len(expected) == 1
    if len(expected) > 1:
        assert problems


def test_two_bounds_in_one_bucket_do_not_prove_that_the_values_between_them_are_there_too() -> None:
    kind = Primitive(name="long")
    transforms = resolve_transforms(SCHEMA, ["bucket(4, id)"])
    first = transforms[0][0].apply(0, kind)
    again = next(n for n in range(2, 1000) if transforms[0][0].apply(n, kind) == first)

    def statistics(high: int) -> ColumnStatistics:
        return ColumnStatistics(field_id=1, null_count=0, value_count=9, lower=lower_bound(kind, 0), upper=upper_bound(kind, high))

    assert find_partition_path([statistics(0)], transforms) == (f"id_bucket={first}", ())
    _, (problem,) = find_partition_path([statistics(again)], transforms)
    assert problem.kind == "spans_partitions"


def test_days_are_days_of_utc() -> None:
    kind = Primitive(name="timestamptz")
    late = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
    column = ColumnStatistics(field_id=2, null_count=0, value_count=1, lower=lower_bound(kind, late), upper=upper_bound(kind, late))

    assert find_partition_path([column], resolve_transforms(SCHEMA, ["day(ts)"])) == (f"ts_day={date(2026, 3, 1)}", ())
