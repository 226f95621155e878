"""lake.read: the right rows from the right files."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from builders import DAILY, ORDERS
from lakebed.core.errors import (
    InvalidNameError,
    InvalidRangeError,
    InvalidValueError,
    SchemaRefusedError,
    SparkRefusedError,
    TableNotFoundError,
)
from lakebed.core.names import TableName
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.core.tables.view_sets import Definition
from lakebed.pipeline.read.explain import explain
from lakebed.pipeline.read.read import read
from lakebed.pipeline.read.sql import sql
from lakebed.registry.tables.lake_tables import TableSpec, create_table, drop_table
from read_builders import EVENTS, START, Rows, day_rows, make_events, write_rows
from retiring import retire_by_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from lakebed.lake import Lake
    from lakebed.registry.registry import Registry

NAME = str(ORDERS)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


def file_names(frame: DataFrame) -> list[str]:
    return sorted(frame.inputFiles())


@pytest.fixture
def month(spark_lake: Lake) -> Lake:
    make_events(spark_lake, ORDERS)
    for day in range(30):
        write_rows(spark_lake, ORDERS, day_rows(day))
    return spark_lake


def test_a_one_day_query_over_thirty_days_reads_only_that_days_file(month: Lake) -> None:
    begin = START + timedelta(days=7)

    frame = read(month._context, NAME, begin=begin, end=begin + timedelta(days=1))

    assert len(file_names(frame)) == 1
    assert ids(frame) == [700, 701, 702, 703]
    assert frame.columns == ["id", "ts", "name"]
    month._context.lease.close()
    assert month.check().clean


def test_rows_outside_the_window_are_dropped_from_the_files_that_are_read(month: Lake) -> None:
    frame = read(month._context, NAME, begin=START + timedelta(hours=6), end=START + timedelta(days=1, hours=1))

    assert ids(frame) == [1, 2, 3, 100]
    assert len(file_names(frame)) == 2
    assert ids(read(month._context, NAME, end=START + timedelta(hours=6, microseconds=1))) == [0, 1]
    assert ids(read(month._context, NAME, begin=START + timedelta(days=29, hours=18))) == [2903]
    month._context.lease.close()


def test_where_prunes_by_statistics_and_filters_what_is_left(month: Lake) -> None:
    frame = read(month._context, NAME, where="id BETWEEN 701 AND 800 AND name LIKE '%-1'", columns=["name"])

    assert [row["name"] for row in frame.collect()] == ["n7-1"]
    assert frame.columns == ["name"]
    assert len(file_names(frame)) == 2
    month._context.lease.close()


def test_a_window_that_matches_nothing_is_empty_and_says_what_exists(month: Lake, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="lakebed"):
        frame = read(month._context, NAME, begin=START - timedelta(days=2), end=START - timedelta(days=1))

    assert (frame.columns, frame.count(), file_names(frame)) == (["id", "ts", "name"], 0, [])
    assert "existing event times: 2026-01-01T00:00:00Z to 2026-01-30T18:00:00Z" in caplog.text
    month._context.lease.close()


def test_an_earlier_number_and_an_earlier_time_are_read_as_they_were(spark_lake: Lake) -> None:
    make_events(spark_lake, ORDERS)
    first = write_rows(spark_lake, ORDERS, day_rows(0))
    then = spark_lake.registry.now()
    write_rows(spark_lake, ORDERS, day_rows(1), replacing=frozenset({first.partition_id}))

    at_number = read(spark_lake._context, NAME, as_of=first.journal_number)
    at_time = read(spark_lake._context, NAME, as_of=START.fromtimestamp(then / 1e6, tz=START.tzinfo))

    assert ids(read(spark_lake._context, NAME)) == [100, 101, 102, 103]
    assert ids(at_number) == ids(at_time) == [0, 1, 2, 3]
    spark_lake._context.lease.close()
    assert spark_lake.check().clean


def test_a_number_that_is_not_kept_is_refused_with_those_that_are(spark_lake: Lake) -> None:
    make_events(spark_lake, ORDERS)
    write_rows(spark_lake, ORDERS, day_rows(0))

    with pytest.raises(InvalidValueError, match="journal number 10000 cannot be read; kept are 0 to"):
        read(spark_lake._context, NAME, as_of=10_000)
    with pytest.raises(InvalidValueError, match="the table had no file yet at"):
        read(spark_lake._context, NAME, as_of=START - timedelta(days=3000))
    spark_lake._context.lease.close()


def test_one_instance_can_be_read_alone(spark_lake: Lake) -> None:
    make_events(spark_lake, ORDERS)
    write_rows(spark_lake, ORDERS, day_rows(0))
    write_rows(spark_lake, ORDERS, day_rows(1), instance="tenant-7")

    assert ids(read(spark_lake._context, NAME, instance="tenant-7")) == [100, 101, 102, 103]
    assert len(ids(read(spark_lake._context, NAME))) == 8
    assert read(spark_lake._context, NAME, instance="nobody").count() == 0
    with pytest.raises(InvalidValueError, match="leave out instance or as_of"):
        read(spark_lake._context, NAME, instance="tenant-7", as_of=1)
    spark_lake._context.lease.close()


BAD: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("shop.nothing", {}, TableNotFoundError, "shop.nothing"),
    ("nothing", {}, InvalidNameError, "database.name"),
    (NAME, {"columns": ["id", "nope"]}, SchemaRefusedError, "no column 'nope': the columns are id, ts, name"),
    (NAME, {"where": "nope > 1"}, SparkRefusedError, "nope"),
    (NAME, {"where": "id >"}, SparkRefusedError, "reading shop.orders"),
    (NAME, {"begin": datetime(2026, 1, 1)}, InvalidRangeError, "has no time zone"),  # noqa: DTZ001 - what is refused
    (NAME, {"begin": START, "end": START}, InvalidRangeError, "has no width"),
    (NAME, {"begin": START, "end": START - timedelta(days=1)}, InvalidRangeError, "ends before it begins"),
    (NAME, {"as_of": "yesterday"}, InvalidValueError, "invalid time 'yesterday'"),
    (NAME, {"as_of": True}, InvalidValueError, "is not a journal number"),
    (NAME, {"as_of": datetime(2026, 1, 1)}, InvalidRangeError, "has no time zone"),  # noqa: DTZ001
    (NAME, {"instance": "../x"}, InvalidNameError, "instance"),
    ("shop.timeless", {"begin": START}, InvalidValueError, "has no event time"),
]


def test_bad_requests_are_refused_with_a_sentence(spark_lake: Lake) -> None:
    make_events(spark_lake, ORDERS)
    make_events(spark_lake, TableName("shop", "timeless"), event_time=None)
    write_rows(spark_lake, ORDERS, day_rows(0))

    for name, arguments, error, message in BAD:
        with pytest.raises(error, match=message):
            read(spark_lake._context, name, **arguments)
    spark_lake._context.lease.close()


@pytest.mark.parametrize("kind_of_time", ["timestamp", "date"])
def test_event_times_of_other_types_are_windows_too(spark_lake: Lake, kind_of_time: str) -> None:
    fields = (Field(field_id=1, name="id", type=Primitive(name="long")), Field(field_id=2, name="ts", type=Primitive(name=kind_of_time)))
    make_events(spark_lake, ORDERS, schema=Schema(fields=fields), event_time="ts")
    days = [START + timedelta(days=day) for day in range(3)]
    values: list[Any] = [day.replace(tzinfo=None) if kind_of_time == "timestamp" else day.date() for day in days]
    for number, value in enumerate(values):
        write_rows(spark_lake, ORDERS, {"id": [number], "ts": [value]})

    inside = read(spark_lake._context, NAME, begin=START + timedelta(days=1), end=START + timedelta(days=2))
    later = read(spark_lake._context, NAME, begin=START + timedelta(hours=1))

    assert (ids(inside), len(file_names(inside))) == ([1], 1)
    assert (ids(later), len(file_names(later))) == ([1, 2], 2)
    spark_lake._context.lease.close()


def test_a_table_dropped_and_made_again_elsewhere_is_the_new_one(spark_lake: Lake, another: Callable[[], Registry]) -> None:
    make_events(spark_lake, ORDERS)
    write_rows(spark_lake, ORDERS, day_rows(0))
    assert read(spark_lake._context, NAME).count() == 4

    elsewhere = another()
    elsewhere.transact(lambda tx: drop_table(tx, ORDERS), tables=[ORDERS])
    create_table(elsewhere, TableSpec(name=ORDERS, schema=EVENTS))

    assert read(spark_lake._context, NAME).count() == 0
    spark_lake._context.lease.close()


def test_files_that_a_reader_planned_survive_a_clean_up(spark_lake: Lake) -> None:
    make_events(spark_lake, ORDERS)
    done = write_rows(spark_lake, ORDERS, day_rows(0))
    frame = read(spark_lake._context, NAME)
    spark_lake.registry.transact(lambda tx: retire_by_ids(tx, ORDERS, {done.partition_id}, grace_us=0), tables=[ORDERS])

    spark_lake.delete_expired_temporary_files()
    assert ids(frame) == [0, 1, 2, 3]

    spark_lake._context.lease.close()
    assert spark_lake.delete_expired_temporary_files().deleted == 1
    assert read(spark_lake._context, NAME).count() == 0
    spark_lake._context.lease.close()
    assert spark_lake.check().clean


def test_partial_results_of_a_view_are_combined_before_they_are_filtered(spark_lake: Lake) -> None:
    """Two slices hold parts of one day's sum: neither part alone is above 10, the sum is."""
    fields = (Field(field_id=1, name="day", type=Primitive(name="date")), Field(field_id=2, name="amount", type=Primitive(name="long")))
    combine = "SELECT day, CAST(sum(amount) AS BIGINT) AS amount FROM partials GROUP BY day"
    definition = Definition(sql="SELECT 1", over=ORDERS, slice_us=3_600_000_000, event_time="day", combine=combine).to_json()
    make_events(spark_lake, DAILY, schema=Schema(fields=fields), event_time="day", kind="view_set", definition=definition)
    days = [(START + timedelta(days=day)).date() for day in range(3)]
    for hour, amount in enumerate([6, 7]):
        parts: list[Rows] = [{"day": [day], "amount": [amount]} for day in days]
        write_rows(spark_lake, DAILY, *parts, hours=(hour, hour + 1))
    one_day: dict[str, Any] = {"begin": START, "end": START + timedelta(days=1)}

    assert sorted(map(tuple, read(spark_lake._context, str(DAILY), where="amount > 10").collect())) == [(day, 13) for day in days]
    assert [tuple(row) for row in read(spark_lake._context, str(DAILY), **one_day).collect()] == [(days[0], 13)]
    assert explain(spark_lake._context, "SELECT * FROM shop.daily WHERE amount > 10").scans[0].pruned == 0
    assert explain(spark_lake._context, f"SELECT * FROM shop.daily WHERE day = DATE '{days[0]}'").scans[0].files == 2
    assert len(sql(spark_lake._context, "SELECT * FROM shop.daily WHERE amount > 10").collect()) == 3
    spark_lake._context.lease.close()
    assert spark_lake.check().clean
