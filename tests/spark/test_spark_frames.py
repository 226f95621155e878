"""frame_of: exactly the given files, no others in their directories, under the current names."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from builders import ORDERS
from lakebed.core.errors import FileChangedError, PathRefusedError, StorageUnavailableError
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, List, Primitive, Struct
from lakebed.lake import connect
from lakebed.pipeline.read.read import read
from lakebed.pipeline.rows.scan import frame_of, spark_paths
from read_builders import EVENTS, START, Rows, day_rows, evolve, make_events, write_json, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from lakebed.lake import Lake

NAME = str(ORDERS)
INT, LONG, STRING = Primitive(name="int"), Primitive(name="long"), Primitive(name="string")


def ids(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.select("id").collect())


def rows(frame: DataFrame) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in frame.collect()}


@pytest.fixture
def events(spark_lake: Lake) -> Iterator[Lake]:
    make_events(spark_lake, ORDERS)
    yield spark_lake
    spark_lake._context.lease.close()
    assert spark_lake.check().clean


def live(lake: Lake) -> list[str]:
    return lake.files.plan(NAME).paths


def test_a_directory_stands_for_its_files_only_when_all_are_wanted(events: Lake) -> None:
    write_rows(events, ORDERS, day_rows(0), day_rows(1), day_rows(2))
    write_rows(events, ORDERS, day_rows(3))
    whole = sorted(path for path in live(events) if len({p for p in live(events) if Path(p).parent == Path(path).parent}) > 1)
    directory = str(Path(whole[0]).parent)

    assert spark_paths(events.storage, whole) == [directory]
    assert directory not in spark_paths(events.storage, whole[:2])
    assert ids(frame_of(events._context, EVENTS, whole)) == [day * 100 + i for day in range(3) for i in range(4)]
    assert ids(frame_of(events._context, EVENTS, whole[1:])) == [day * 100 + i for day in (1, 2) for i in range(4)]


def test_spark_connect_is_given_every_file_by_name_because_it_lists_again_for_each_action(events: Lake) -> None:
    write_rows(events, ORDERS, day_rows(0), day_rows(1))

    assert spark_paths(events.storage, live(events), is_remote=True) == live(events)


def test_many_files_of_many_inserts_go_as_few_patterns_that_name_each(events: Lake) -> None:
    for day in range(5):
        write_rows(events, ORDERS, day_rows(day))

    given = spark_paths(events.storage, live(events)[1:])

    assert len(given) == 2
    assert sorted(Path(path).parent.name for path in live(events)[1:]) == sorted(set(re.findall(r"[0-9a-f]{32}", "".join(given))))
    assert len(ids(frame_of(events._context, EVENTS, live(events)[1:]))) == 16


def test_an_unregistered_file_beside_registered_ones_is_not_read(events: Lake) -> None:
    write_rows(events, ORDERS, day_rows(0), day_rows(1))
    stray = Path(live(events)[0]).with_name("part-stray.parquet")
    stray.write_bytes(Path(live(events)[0]).read_bytes())

    assert ids(read(events._context, NAME)) == [0, 1, 2, 3, 100, 101, 102, 103]

    stray.unlink()


def test_markers_that_spark_leaves_do_not_prevent_listing_a_directory(events: Lake) -> None:
    write_rows(events, ORDERS, day_rows(0), day_rows(1))
    directory = Path(live(events)[0]).parent
    marks = [directory / "_SUCCESS", directory / ".part-00000.parquet.crc"]
    for mark in marks:
        mark.touch()

    assert spark_paths(events.storage, live(events)) == [str(directory)]

    for mark in marks:
        mark.unlink()


def test_directory_names_never_become_columns(events: Lake) -> None:
    write_rows(events, ORDERS, day_rows(0), day_rows(1))
    paths = live(events)
    moved = []
    for number, path in enumerate(paths):
        below = Path(path).parent / f"id={number}"
        below.mkdir()
        moved.append(str(Path(path).rename(below / "part.parquet")))

    frame = frame_of(events._context, EVENTS, moved)
    one = frame_of(events._context, EVENTS, moved[:1])

    assert frame.columns == one.columns == ["id", "ts", "name"]
    assert len(ids(frame)) == 8
    assert len(ids(one)) == 4
    for path, back in zip(moved, paths, strict=True):
        Path(path).rename(back)
        Path(path).parent.rmdir()


@pytest.mark.parametrize(
    "root", ["with space", "100%25", "a{b,c}d", "x[1]", "star*", "what?", "comma,", "hash#tag", "col:on", "naïve", "a+b&c=d"]
)
def test_a_warehouse_may_have_any_name(root: str, tmp_path: Path, spark: SparkSession) -> None:
    with connect(f"sqlite:///{tmp_path}/lake.db", warehouse=str(tmp_path / root), spark=spark) as lake:
        make_events(lake, ORDERS)
        write_rows(lake, ORDERS, day_rows(0), day_rows(1))
        for day in (2, 3):
            write_rows(lake, ORDERS, day_rows(day))

        everything, some = read(lake._context, NAME), read(lake._context, NAME, begin=START + timedelta(days=1))

        assert len(ids(everything)) == 16
        assert len(ids(some)) == 12
        lake._context.lease.close()


def test_a_colon_and_a_pattern_in_one_path_are_refused(tmp_path: Path, spark: SparkSession) -> None:
    with connect(f"sqlite:///{tmp_path}/lake.db", warehouse=str(tmp_path / "a:b[c]"), spark=spark) as lake:
        make_events(lake, ORDERS)
        write_rows(lake, ORDERS, day_rows(0))

        with pytest.raises(PathRefusedError, match="colon"):
            read(lake._context, NAME)
        lake._context.lease.close()


def test_a_lost_file_is_reported_and_not_ignored(spark_lake: Lake) -> None:
    make_events(spark_lake, ORDERS)
    for day in range(3):
        write_rows(spark_lake, ORDERS, day_rows(day))
    lost = live(spark_lake)[1]
    Path(lost).unlink()

    with pytest.raises(FileChangedError, match="registered but missing"):
        read(spark_lake._context, NAME)
    spark_lake._context.lease.close()


def test_a_warehouse_that_vanished_is_unavailable_not_empty(spark_lake: Lake) -> None:
    make_events(spark_lake, ORDERS)
    write_rows(spark_lake, ORDERS, day_rows(0), day_rows(1))
    root = Path(spark_lake.storage.paths.root)
    root.rename(root.with_name("elsewhere"))

    with pytest.raises(StorageUnavailableError, match="mount it"):
        read(spark_lake._context, NAME)
    spark_lake._context.lease.close()


def test_json_files_are_read_beside_parquet(events: Lake) -> None:
    write_rows(events, ORDERS, day_rows(0))
    write_json(events, ORDERS, [{"id": 7, "ts": "2026-01-05T00:00:00Z", "name": "seven"}, {"id": 8}])

    frame = read(events._context, NAME)

    assert ids(frame) == [0, 1, 2, 3, 7, 8]
    assert rows(frame.where("id >= 7")) == {(7, (START + timedelta(days=4)).replace(tzinfo=None), "seven"), (8, None, None)}


def test_an_empty_table_has_its_columns_and_types(events: Lake) -> None:
    frame = read(events._context, NAME)

    assert [(f.name, f.dataType.simpleString()) for f in frame.schema] == [("id", "bigint"), ("ts", "timestamp"), ("name", "string")]
    assert frame.count() == 0


OLD = (
    Field(field_id=1, name="id", type=INT),
    Field(field_id=2, name="a", type=LONG),
    Field(field_id=3, name="b", type=LONG),
    Field(field_id=4, name="f", type=Primitive(name="float")),
    Field(field_id=5, name="d", type=Primitive(name="decimal", precision=9, scale=2)),
    Field(field_id=6, name="s", type=Struct(fields=(Field(field_id=7, name="x", type=INT), Field(field_id=8, name="y", type=STRING)))),
    Field(field_id=9, name="gone", type=LONG),
    Field(field_id=10, name="l", type=List(element=Field(field_id=11, name="element", type=INT))),
)
# a and b swapped, `gone` dropped and added again, everything that may be wider is, nested fields renamed
NEW = (
    Field(field_id=1, name="id", type=LONG),
    Field(field_id=2, name="b", type=LONG, physical_name="a"),
    Field(field_id=3, name="a", type=LONG, physical_name="b"),
    Field(field_id=4, name="f", type=Primitive(name="double")),
    Field(field_id=5, name="d", type=Primitive(name="decimal", precision=20, scale=2)),
    Field(
        field_id=6,
        name="t",
        physical_name="s",
        type=Struct(
            fields=(Field(field_id=8, name="x", type=STRING, physical_name="y"), Field(field_id=7, name="y", type=LONG, physical_name="x"))
        ),
    ),
    Field(field_id=10, name="l", type=List(element=Field(field_id=11, name="element", type=LONG))),
    Field(field_id=12, name="gone", type=LONG, physical_name="gone_12"),
)


def old_rows(base: int) -> Rows:
    return {
        "id": [base, base + 1],
        "a": [1, 2],
        "b": [10, 20],
        "f": [0.5, 1.5],
        "d": [Decimal("1.25"), Decimal("-3.00")],
        "s": [{"x": 1, "y": "one"}, {"x": 2, "y": "two"}],
        "gone": [77, 78],
        "l": [[1], [2, 3]],
    }


def new_rows(base: int) -> Rows:
    return {
        "id": [base, 2**40],
        "a": [30, 40],
        "b": [3, 4],
        "f": [1e300, 2.5],
        "d": [Decimal("123456789012.25"), Decimal("1.25")],
        "t": [{"y": "three", "x": 2**40}, {"y": "four", "x": 4}],  # under physical names
        "l": [[2**40], []],
        "gone": [None, 5],
    }


@pytest.fixture
def evolved(spark_lake: Lake) -> Iterator[Lake]:
    make_events(spark_lake, ORDERS, schema=Schema(fields=OLD), event_time=None)
    write_rows(spark_lake, ORDERS, old_rows(1))
    evolve(spark_lake, ORDERS, *NEW)
    write_rows(spark_lake, ORDERS, new_rows(100))
    yield spark_lake
    spark_lake._context.lease.close()


def test_old_and_new_files_answer_under_the_current_names(evolved: Lake) -> None:
    frame = read(evolved._context, NAME).select("id", "b", "a", "f", "d", "t.x", "t.y", "l", "gone")

    got = sorted(tuple(row) for row in frame.collect())

    assert got == [
        (1, 1, 10, 0.5, Decimal("1.25"), "one", 1, [1], None),
        (2, 2, 20, 1.5, Decimal("-3.00"), "two", 2, [2, 3], None),
        (100, 3, 30, 1e300, Decimal("123456789012.25"), "three", 2**40, [2**40], None),
        (2**40, 4, 40, 2.5, Decimal("1.25"), "four", 4, [], 5),
    ]


ANSWERS = [
    ("a = 20", [2]),
    ("b = 2", [2]),
    ("a = 3", []),
    ("gone = 77", []),
    ("gone IS NULL", [1, 2, 100]),
    ("gone = 5", [2**40]),
    ("id >= 2 AND id < 1099511627776", [2, 100]),
    ("id = 1099511627776", [2**40]),
    ("f > 1.0", [2, 100, 2**40]),
    ("f = 0.5", [1]),
    ("d = 1.25", [1, 2**40]),
    ("d > 1000000000", [100]),
    ("t.x = 'two'", [2]),
    ("t.y = 2", [2]),
    ("t.y > 1000", [100]),
]


def test_pushed_filters_find_the_right_rows_of_every_version(evolved: Lake) -> None:
    for where, expected in ANSWERS:
        assert (where, ids(read(evolved._context, NAME, where=where))) == (where, expected)
