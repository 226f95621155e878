"""Wrong input gets a typed error that says what to do, or what it obviously means."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T  # noqa: N812 - everybody's name for it

from builders import ORDERS, SCHEMA, arrow_rows, make_table, write_partition
from lakebed.core.errors import InvalidValueError, LakebedError, SchemaRefusedError
from lakebed.core.tables.view_sets import require_fitting
from lakebed.core.times import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.core.times import Time
    from lakebed.lake import Lake

NAME = str(ORDERS)


# -- schemas -----------------------------------------------------------------------------------


def test_a_table_is_created_from_ddl_text_or_a_struct_type_without_starting_spark(lake: Lake) -> None:
    text = "id BIGINT NOT NULL, at TIMESTAMP, lines ARRAY<STRUCT<sku STRING, n INT>>, price DECIMAL(9,2) COMMENT 'net'"
    line = T.StructType([T.StructField("sku", T.StringType()), T.StructField("n", T.IntegerType())])
    struct = T.StructType(
        [
            T.StructField("id", T.LongType(), nullable=False),
            T.StructField("at", T.TimestampType()),
            T.StructField("lines", T.ArrayType(line)),
            T.StructField("price", T.DecimalType(9, 2)),
        ]
    )

    by_text = lake.create_table("shop.a", text, event_time="at", partition_by=["day(at)"])
    by_struct = lake.create_table("shop.b", struct)

    assert by_text.schema == by_struct.schema
    assert "_context" not in lake.__dict__
    assert lake.check().clean


@pytest.mark.parametrize("given", [7, ["id"], {"id": "long"}, T.LongType(), pa.int64()])
def test_an_invalid_schema_is_named(lake: Lake, given: object) -> None:
    with pytest.raises(InvalidValueError, match="is not a schema: give DDL text"):
        lake.create_table(NAME, given)
    assert lake.tables.list() == []


@pytest.mark.parametrize("given", [pa.schema([("id", pa.int64()), ("ID", pa.int64())]), "id INT, Id INT"])
def test_columns_that_differ_in_case_alone_are_refused(lake: Lake, given: pa.Schema | str) -> None:
    with pytest.raises(SchemaRefusedError, match="occurs twice"):
        lake.create_table(NAME, given)


COLUMNS: dict[str, Callable[[Lake], object]] = {
    "event_time": lambda lake: lake.create_table("shop.x", SCHEMA, event_time="amont"),
    "partition_by": lambda lake: lake.create_table("shop.x", SCHEMA, partition_by=["bucket(4, amont)"]),
    "sort_by": lambda lake: lake.create_table("shop.x", SCHEMA, sort_by=["amont"]),
    "index": lambda lake: lake.create_table("shop.x", SCHEMA, index=["amont"]),
    "rename": lambda lake: lake.columns.rename(NAME, "amont", "price"),
    "drop": lambda lake: lake.columns.drop(NAME, "amont"),
    "widen": lambda lake: lake.columns.widen(NAME, "amont", "double"),
    "optional": lambda lake: lake.columns.make_optional(NAME, "amont"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_misspelled_column_gets_a_suggestion(lake: Lake, name: str) -> None:
    make_table(lake.registry)
    with pytest.raises(SchemaRefusedError, match=r"there is no column 'amont': did you mean amount\? the columns are id, ts, amount"):
        COLUMNS[name](lake)


def test_a_misspelled_nested_column_gets_its_path(lake: Lake) -> None:
    lake.create_table(NAME, "id INT, address STRUCT<street STRING, zip STRING>")
    with pytest.raises(SchemaRefusedError, match=r"did you mean address\.street"):
        lake.columns.drop(NAME, "address.stret")


def test_a_misspelled_type_gets_a_suggestion(lake: Lake) -> None:
    make_table(lake.registry)
    with pytest.raises(SchemaRefusedError, match="did you mean long"):
        lake.columns.add(NAME, "n", "BIGINT")
    with pytest.raises(SchemaRefusedError, match="did you mean timestamp"):
        lake.columns.add(NAME, "n", "timestmp")


# -- slices ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("7h", r"a slice of 7h does not fit the merge window of shop.orders \(24h\): .*such as 6h or 8h$"),
        ("36h", r"a slice of 36h .*\(24h\): .*such as 24h or 48h$"),
        ("5d", None),
        ("50m", r"a slice of 50m .*\(1440m\): .*such as 48m or 60m$"),
        ("110s", r"a slice of 110s .*\(86400s\): .*such as 108s or 120s$"),
        ("7us", r"a slice of 7us .*\(86400000000us\): .*such as 6us or 8us$"),
    ],
)
def test_a_slice_that_does_not_fit_is_answered_in_its_own_unit(given: str, said: str | None) -> None:
    if said is None:
        require_fitting(parse_duration(given), window_us=parse_duration("1d"), source=ORDERS)
        return
    with pytest.raises(InvalidValueError, match=said):
        require_fitting(parse_duration(given), window_us=parse_duration("1d"), source=ORDERS)


# -- the warehouse -----------------------------------------------------------------------------


def test_a_new_path_can_be_written_at_once(lake: Lake) -> None:
    make_table(lake.registry)
    with lake.writing(NAME) as writing:
        pq.write_table(arrow_rows(1), writing.new_path())
        pq.write_table(arrow_rows(2), writing.new_path())
        writing.publish()
    with lake.writing(NAME) as writing:
        Path(writing.new_path())
    assert lake.table(NAME).row.file_count == 2
    assert lake.check().clean


_READ_ONLY = """
import sys
sys.path.insert(0, sys.argv[3])
from lakebed.lake import connect
from lakebed.core.errors import LakebedError
with connect(sys.argv[1], warehouse=sys.argv[2], service="off") as lake:
    try:
        with lake.writing("shop.orders") as writing:
            print("opened", writing.new_path())
    except LakebedError as exc:
        print(exc.code, exc)
    print(lake.registry.query("SELECT count(*) FROM operations WHERE state <> 'registered'")[0][0])
"""


def test_a_read_only_mount_is_named_and_leaves_no_open_operation(lake: Lake, url: str) -> None:
    unshare = ["unshare", "-m" if os.getuid() == 0 else "-rm"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody mount a file system of their own")
    make_table(lake.registry)
    write_partition(lake, 1)
    root = lake.storage.paths.root
    mounted = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" -c "$3" "$4" "$1" "$5"'
    words = [*unshare, "sh", "-c", mounted, "sh", root, sys.executable, _READ_ONLY, url, str(Path(__file__).parents[1])]

    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stderr
    first, count = done.stdout.splitlines()
    assert first.startswith(f"storage_unavailable the warehouse {root} cannot be written by this process"), first
    assert count == "0"


# -- ages and times ----------------------------------------------------------------------------


def test_ages_may_be_text_and_bare_numbers_are_refused(lake: Lake) -> None:
    make_table(lake.registry)
    write_partition(lake, 1)
    assert lake.partitions.retire_expired(retention="1d").non_empty == lake.partitions.retire_expired(retention=timedelta(days=1)).non_empty
    assert lake.snapshots.expire(NAME, older_than="7d").snapshots == []
    assert lake.files.sweep_orphans(older_than="2h").orphans == lake.files.sweep_orphans().orphans
    wrong: list[Any] = [30, "a month", 1.5, "-1d"]
    for given in wrong:
        for call in (
            lambda age: lake.partitions.retire_expired(retention=age),
            lambda age: lake.snapshots.expire(NAME, older_than=age),
            lambda age: lake.files.sweep_orphans(older_than=age),
        ):
            with pytest.raises(InvalidValueError, match=r"30d|write it as"):
                call(given)


TIMES = ("2026-02-28", "2026-02-28T12:00:00Z", "2026-02-28 13:00+01:00", date(2026, 2, 28), datetime(2026, 2, 28, tzinfo=UTC))


@pytest.mark.parametrize("given", TIMES)
def test_every_time_may_be_text_a_date_or_a_datetime(lake: Lake, given: Time) -> None:
    make_table(lake.registry)
    write_partition(lake, 1)
    later = "2100-01-01"
    calls: list[Callable[[], object]] = [
        lambda: lake.list_partitions(NAME, begin=given, end=later),
        lambda: lake.list_partitions(NAME, insert_begin=given),
        lambda: lake.retire_partitions(NAME, insert_begin=given, insert_end=later),
    ]
    for call in calls:
        call()


@pytest.mark.parametrize("given", ["yesterday", "2026-13-01", 7, datetime(2026, 1, 1)])  # noqa: DTZ001 - that is what is tested
def test_an_invalid_time_is_refused_with_an_example(lake: Lake, given: Any) -> None:
    make_table(lake.registry)
    with pytest.raises(LakebedError, match="2026-03-01"):
        lake.list_partitions(NAME, insert_begin=given, insert_end="2100-01-01")
