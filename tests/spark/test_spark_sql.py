"""lake.sql: the user's text, lake tables in place of their names, one snapshot, only the files that matter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from builders import ORDERS
from lakebed.core.errors import InvalidRangeError, InvalidValueError, QueryRefusedError, SparkRefusedError, TableNotFoundError
from lakebed.core.names import TableName
from lakebed.pipeline.read.explain import explain
from lakebed.pipeline.read.sql import sql
from read_builders import START, day_rows, make_events, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from lakebed.lake import Lake

OTHER = TableName("shop", "people")


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


@pytest.fixture
def shop(spark_lake: Lake) -> Iterator[Lake]:
    """Six days of orders, a file each; people with the ids 0 and 100."""
    make_events(spark_lake, ORDERS)
    make_events(spark_lake, OTHER, event_time=None)
    for day in range(6):
        write_rows(spark_lake, ORDERS, day_rows(day))
    write_rows(spark_lake, OTHER, {"id": [0, 100], "ts": [START, START], "name": ["Ada", "Bo"]})
    yield spark_lake
    spark_lake._context.lease.close()
    assert not spark_lake.spark.catalog.listTables()
    assert spark_lake.check().clean


ANSWERS: list[tuple[str, list[tuple[Any, ...]]]] = [
    ("SELECT count(*) FROM shop.orders", [(24,)]),
    ("SELECT id FROM `shop`.`orders` WHERE id = 203", [(203,)]),
    ("SELECT orders.id FROM shop.orders WHERE orders.id = 203", [(203,)]),
    ("SELECT shop.orders.id FROM shop.orders WHERE shop.orders.id = 203", [(203,)]),
    ("SELECT o.id FROM shop . /* not shop.people */ orders AS o WHERE o.id = 1 -- FROM shop.nothing", [(1,)]),
    ("SELECT 'FROM shop.nothing', \"shop.orders\" FROM shop.people WHERE id = 0", [("FROM shop.nothing", "shop.orders")]),
    ("SELECT '{x}', '{{y}}', name FROM shop.people WHERE name = 'Bo'", [("{x}", "{{y}}", "Bo")]),
    ("SELECT p.name, o.name FROM shop.people p JOIN shop.orders o ON p.id = o.id", [("Ada", "n0-0"), ("Bo", "n1-0")]),
    ("WITH orders AS (SELECT id FROM shop.orders WHERE id < 2) SELECT * FROM orders", [(0,), (1,)]),
    (
        "WITH x AS (SELECT max(id) AS m FROM shop.orders) SELECT m FROM x UNION ALL SELECT id FROM shop.people WHERE id = 100",
        [(100,), (503,)],
    ),
    ("SELECT name FROM shop.people WHERE id IN (SELECT id FROM shop.orders WHERE ts >= '2026-01-02')", [("Bo",)]),
    ("SELECT p.name FROM shop.people p LEFT JOIN shop.orders o ON p.id = o.id AND o.id > 50 WHERE o.id IS NULL", [("Ada",)]),
    ("SELECT p.name FROM shop.people p LEFT ANTI JOIN shop.orders o ON p.id = o.id WHERE p.id = 100", []),
    ("SELECT /*+ BROADCAST(orders) */ count(*) FROM shop.orders JOIN shop.people USING (id)", [(2,)]),
    ("SELECT count(*) FROM (SELECT * FROM shop.orders LIMIT 5) t", [(5,)]),
    ("SELECT a.id FROM shop.orders a, shop.orders b WHERE a.id = b.id + 1 AND a.id < 2 AND b.id >= 0", [(1,)]),
    ("FROM shop.orders |> WHERE id < 2 |> SELECT id", [(0,), (1,)]),
    ("SELECT x.y FROM VALUES (1) AS x(y)", [(1,)]),
    ("SELECT id FROM range(2)", [(0,), (1,)]),
    ("SELECT count(*) FROM shop.orders TABLESAMPLE (3 ROWS) WHERE id >= 0", [(3,)]),
]


def test_queries_mean_what_they_say(shop: Lake) -> None:
    for text, expected in ANSWERS:
        assert (text, rows(sql(shop._context, text))) == (text, expected)


SCANS: list[tuple[str, list[int]]] = [
    ("SELECT * FROM shop.orders", [6]),
    ("SELECT * FROM shop.orders WHERE id BETWEEN 100 AND 103", [1]),
    ("SELECT * FROM shop.orders WHERE 103 >= id AND 100 <= id", [1]),
    ("SELECT * FROM shop.orders WHERE ts >= DATE '2026-01-06'", [1]),
    ("SELECT * FROM shop.orders WHERE ts >= '2026-01-02' AND ts < TIMESTAMP '2026-01-03 00:00:00'", [1]),
    ("SELECT * FROM shop.orders WHERE id IN (0, 501)", [6]),
    ("SELECT * FROM shop.orders WHERE id = 1 OR id = 2", [6]),
    ("SELECT * FROM shop.orders WHERE NOT id = 1", [6]),
    ("SELECT * FROM shop.orders WHERE id IS NULL", [0]),
    ("SELECT * FROM shop.orders o JOIN shop.people p ON o.id = p.id WHERE o.id < 100", [1, 1]),
    ("SELECT * FROM shop.orders o JOIN shop.people p ON o.id = p.id WHERE id < 100", [6, 1]),
    ("SELECT * FROM shop.people p LEFT JOIN shop.orders o ON o.id = p.id WHERE o.id > 300", [1, 3]),
    ("SELECT * FROM shop.people p LEFT JOIN shop.orders o ON o.id = p.id WHERE o.id IS NULL", [1, 6]),
    ("SELECT * FROM shop.people p LEFT JOIN shop.orders o ON o.id = p.id AND o.id > 300", [1, 6]),
    ("SELECT * FROM (SELECT * FROM shop.orders WHERE id > 300) t WHERE id < 200", [3]),
    ("SELECT id + 1 AS id FROM shop.orders HAVING id > 1000", [6]),
    ("SELECT count(*) FROM shop.orders WHERE upper(name) = 'N'", [6]),
    ("SELECT * FROM shop.orders TABLESAMPLE (3 ROWS) WHERE id > 300", [6]),
    ("SELECT * FROM shop.orders PIVOT (max(name) FOR id IN (0, 501)) WHERE ts > '2026-01-05'", [6]),
    ("FROM shop.orders |> EXTEND id + 1 AS n |> WHERE id > 300", [6]),
    ('SELECT * FROM shop.orders WHERE name = "n5-1"', [6]),
    ("SELECT * FROM shop.orders WHERE name = 'n5-1'", [1]),
    ("SELECT * FROM shop.orders LATERAL VIEW explode(array(1)) t AS x WHERE id > 300", [6]),
]


def test_only_filters_that_surely_hold_prune(shop: Lake) -> None:
    for text, expected in SCANS:
        assert (text, sorted(scan.files for scan in explain(shop._context, text).scans)) == (text, sorted(expected))


def test_pruned_queries_read_what_explain_says(shop: Lake) -> None:
    frame = sql(shop._context, "SELECT id FROM shop.orders WHERE id >= 400 AND ts < '2026-01-06'")

    assert len(frame.inputFiles()) == 1
    assert rows(frame) == [(400,), (401,), (402,), (403,)]


def test_explain_counts_each_file_under_one_reason(shop: Lake) -> None:
    (scan,) = explain(shop._context, "SELECT * FROM shop.orders WHERE ts >= '2026-01-03' AND id < 400 AND name = 'n2-1'").scans

    assert (scan.files_in_table, scan.pruned_by_event_time, scan.pruned_by_partition, scan.pruned_by_statistics, scan.files) == (
        6,
        2,
        0,
        3,
        1,
    )
    assert (scan.rows, scan.first_event, scan.last_event) == (4, START, START + timedelta(days=5, hours=18))
    assert scan.conditions == ("ts in [2026-01-03T00:00:00Z, ...]", "id in [..., 399]", "name in ['n2-1', 'n2-1']")
    assert str(scan).startswith("shop.orders: 1 of 6 files, 4 rows, ")
    assert scan.reasons[0] == "ts in [2026-01-03T00:00:00Z, ...] prunes 2 of 6 files"
    (one_day,) = explain(shop._context, "SELECT * FROM shop.orders WHERE ts >= '2026-01-01' AND ts < '2026-01-02' AND id < 400").scans
    assert (one_day.files, one_day.pruned_by_event_time) == (1, 5)


def test_explain_names_no_reason_that_left_out_nothing(shop: Lake) -> None:
    (idle,) = explain(shop._context, "SELECT * FROM shop.orders WHERE id >= 0 AND length(name) > 1").scans
    (bare,) = explain(shop._context, "SELECT * FROM shop.orders").scans

    assert (idle.files, idle.reasons) == (6, ("id in [0, ...] prunes 0 of 6 files",))
    assert bare.reasons == ("no condition of the query can prune a file",)


def test_a_join_sees_both_tables_at_one_instant(shop: Lake) -> None:
    """The orders are replaced and the people deleted after the query was made and before it is run."""
    frame = sql(shop._context, "SELECT p.name, o.name FROM shop.people p JOIN shop.orders o ON p.id = o.id")
    for partition in shop.list_partitions("shop.orders"):
        write_rows(shop, ORDERS, {"id": [0], "ts": [START], "name": ["new"]}, replacing=frozenset({partition.partition_id}))
    write_rows(shop, OTHER, {"id": [0], "ts": [START], "name": ["Zoe"]})

    assert rows(frame) == [("Ada", "n0-0"), ("Bo", "n1-0")]
    assert rows(frame.groupBy().count()) == [(2,)]


def test_all_tables_are_read_as_of_one_time(shop: Lake) -> None:
    then = datetime.fromtimestamp(shop.registry.now() / 1e6, tz=UTC)
    write_rows(shop, ORDERS, day_rows(7))
    write_rows(shop, OTHER, {"id": [700], "ts": [START], "name": ["New"]})
    text = "SELECT count(*) FROM shop.orders UNION ALL SELECT count(*) FROM shop.people"

    assert rows(sql(shop._context, text)) == [(3,), (28,)]
    assert rows(sql(shop._context, text, as_of=then)) == [(2,), (24,)]


def test_functions_of_the_lake_are_answered_and_joined(shop: Lake) -> None:
    text = "SELECT count(*) FROM list_partitions('shop.orders') l WHERE l.num_rows = (SELECT count(*) + 2 FROM shop.people)"

    assert rows(sql(shop._context, text)) == [(6,)]


def test_names_of_sparks_catalog_come_after_the_lakes(shop: Lake) -> None:
    shop.spark.sql("SELECT 7 AS n").createGlobalTempView("numbers")
    try:
        assert rows(sql(shop._context, "SELECT n, count(*) FROM global_temp.numbers, shop.people GROUP BY n")) == [(7, 2)]
    finally:
        shop.spark.catalog.dropGlobalTempView("numbers")


REFUSED: list[tuple[str, type[Exception], str]] = [
    ("INSERT INTO shop.orders VALUES (1)", QueryRefusedError, "only queries are allowed"),
    ("CREATE TABLE shop.x AS SELECT 1", QueryRefusedError, "only queries"),
    ("DROP TABLE shop.orders", QueryRefusedError, "only queries"),
    ("DELETE FROM shop.orders", QueryRefusedError, "only queries"),
    ("WITH x AS (SELECT 1) INSERT INTO shop.orders SELECT * FROM x", QueryRefusedError, "only queries"),
    ("MERGE INTO shop.orders USING shop.people ON true WHEN MATCHED THEN DELETE", QueryRefusedError, "only queries"),
    ("TRUNCATE TABLE shop.orders", QueryRefusedError, "only queries"),
    ("SET spark.x = 1", QueryRefusedError, "only queries"),
    ("SELECT 1; DROP TABLE shop.orders", QueryRefusedError, "several statements"),
    ("", QueryRefusedError, "no statement"),
    ("SELECT ((1", QueryRefusedError, "cannot be parsed"),
    ("SELECT * FROM shop.order", TableNotFoundError, r"did you mean shop\.orders"),
    ("SELECT * FROM shop.zzzzzz", TableNotFoundError, "create it first"),
    ("SELECT nope FROM shop.orders", SparkRefusedError, "nope"),
    ("SELECT * FROM nothing_here", SparkRefusedError, "nothing_here"),
]


def test_what_cannot_be_run_is_refused_with_a_sentence(shop: Lake) -> None:
    for text, error, message in REFUSED:
        with pytest.raises(error, match=message):
            sql(shop._context, text)
    with pytest.raises(InvalidValueError, match="can only read as of a time"):
        sql(shop._context, "SELECT * FROM shop.orders", as_of=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidRangeError, match="no time zone"):
        sql(shop._context, "SELECT * FROM shop.orders", as_of=datetime(2026, 1, 1))  # noqa: DTZ001 - what is refused
