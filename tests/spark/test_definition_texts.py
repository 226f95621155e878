"""What the text of a definition says, without a session: its tables, and whether a slice of rows is enough for it."""

from __future__ import annotations

import pytest

from lakebed.core.errors import DefinitionRefusedError
from lakebed.core.names import TableName
from lakebed.pipeline.read.combine import parse_combine
from lakebed.pipeline.sql.definitions import find_aggregates, list_grouping_columns, parse_definition, parse_sources

VIEW = TableName("shop", "view")
ROW_BY_ROW = [
    "SELECT * FROM shop.orders",
    "SELECT o.id, '{brace}' AS b FROM `shop`.`orders` AS o WHERE o.ts > current_timestamp()",
    "WITH c AS (SELECT * FROM shop.orders) SELECT c.id FROM c",
    "SELECT o.*, p.m FROM shop.orders o JOIN (SELECT k, max(v) AS m FROM shop.prices GROUP BY k) p USING (k)",
    "SELECT (SELECT max(v) FROM shop.prices p WHERE p.k = o.k) AS m FROM shop.orders o",
    "SELECT a FROM shop.orders UNION ALL SELECT b FROM shop.orders",
    "SELECT * FROM shop.orders o LEFT JOIN shop.prices p USING (k)",
    "SELECT * FROM shop.prices p RIGHT JOIN shop.orders o USING (k)",
    "SELECT * FROM shop.orders LEFT ANTI JOIN shop.prices USING (k)",
    "SELECT * FROM shop.orders WHERE k IN (SELECT k FROM shop.prices)",
    "SELECT explode(items) AS i FROM shop.orders",
    "SELECT x FROM shop.orders LATERAL VIEW explode(items) t AS x",
    "SELECT o.id FROM shop.prices p, shop.orders o WHERE p.k = o.k",
]
NOT_BY_ROW = [
    "SELECT day, sum(x) FROM shop.orders GROUP BY 1",
    "SELECT DISTINCT a FROM shop.orders",
    "WITH c AS (SELECT * FROM shop.orders), d AS (SELECT * FROM c) SELECT count(*) FROM d",
    "SELECT a FROM (SELECT a, count(*) FROM shop.orders GROUP BY a)",
    "SELECT size(collect_list(a)) FROM shop.orders",
    "SELECT row_number() OVER (ORDER BY a) FROM shop.orders",
    "SELECT a FROM shop.orders LIMIT 5",
    "SELECT a FROM shop.orders UNION ALL SELECT b FROM shop.prices LIMIT 5",
    "SELECT a FROM shop.orders UNION SELECT b FROM shop.prices",
    "SELECT a FROM shop.prices EXCEPT SELECT a FROM shop.orders",
    "SELECT a.x FROM shop.orders a JOIN shop.orders b ON a.i = b.i",
    "SELECT * FROM shop.prices p LEFT JOIN shop.orders o USING (k)",
    "SELECT * FROM shop.orders o RIGHT OUTER JOIN shop.prices p USING (k)",
    "SELECT * FROM shop.orders o FULL JOIN shop.prices p USING (k)",
    "SELECT * FROM shop.prices LEFT ANTI JOIN shop.orders USING (k)",
    "SELECT * FROM shop.prices p WHERE p.k IN (SELECT k FROM shop.orders)",
    "SELECT a FROM shop.orders WHERE x = (SELECT max(x) FROM shop.orders)",
]


@pytest.mark.parametrize("text", ROW_BY_ROW)
def test_a_query_that_looks_at_one_row_of_its_source_at_a_time_may_be_sliced(text: str) -> None:
    query, names = parse_sources(VIEW, text)

    assert TableName("shop", "orders") in names
    assert find_aggregates(query, "shop.orders") is None


@pytest.mark.parametrize("text", NOT_BY_ROW)
def test_a_query_whose_answer_depends_on_rows_of_other_slices_is_recognised(text: str) -> None:
    query, _ = parse_sources(VIEW, text)

    assert find_aggregates(query, "shop.orders") is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SELEC",
        "DROP TABLE a.b",
        "INSERT INTO a.b SELECT 1",
        "SELECT 1; SELECT 2",
        "SELECT * FROM orders",
        "SELECT * FROM a.b.c",
        "SELECT * FROM shop.orders TABLESAMPLE (10 ROWS)",
        "SELECT * FROM shop.orders VERSION AS OF 5",
        "SELECT '" + "(" * 5000,
    ],
)
def test_text_that_is_not_a_query_over_lake_tables_is_refused(text: str) -> None:
    with pytest.raises(DefinitionRefusedError, match=r"shop\.view cannot be defined: "):
        parse_sources(VIEW, text)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("SELECT day, sum(a) AS a FROM partials GROUP BY 1", {"day"}),
        ("SELECT day, k, sum(a) AS a FROM partials GROUP BY day, k", {"day", "k"}),
        ("SELECT max(day) AS day, k FROM partials GROUP BY k", {"k"}),
        ("SELECT day AS k, sum(a) AS a FROM partials GROUP BY day", set()),
        ("SELECT day, sum(a) AS a FROM partials GROUP BY ALL", set()),
        ("SELECT day + 1 AS day, sum(a) AS a FROM partials GROUP BY 1", set()),
        ("SELECT day FROM (SELECT day FROM partials LIMIT 3) GROUP BY day", set()),
        ("WITH p AS (SELECT * FROM partials LIMIT 3) SELECT day FROM p GROUP BY day", set()),
        ("SELECT day, sum(a) AS a FROM partials GROUP BY day GROUPING SETS ((day), ())", set()),
        ("SELECT day, sum(a) AS a FROM partials GROUP BY ROLLUP (day)", set()),
        ("SELECT day, sum(a) AS a FROM partials GROUP BY day LIMIT 3", set()),
    ],
)
def test_only_plain_grouping_keys_may_be_filtered_before_combining(text: str, keys: set[str]) -> None:
    assert list_grouping_columns(parse_combine("shop.view", text)) == frozenset(keys)


def test_a_combine_over_anything_but_partials_is_refused() -> None:
    for text in ("SELECT 1 AS x", "SELECT * FROM shop.orders", "SELECT * FROM partials JOIN shop.orders USING (k)"):
        with pytest.raises(DefinitionRefusedError, match="'partials' and nothing else"):
            parse_combine("shop.view", text)


def test_a_table_is_mentioned_once_however_often_the_text_names_it() -> None:
    assert parse_definition("v", "SELECT 1 FROM a.b, c.d, `a`.b x").names == ("a.b", "c.d")


def test_a_hint_names_no_table_of_its_own() -> None:
    _, names = parse_sources(VIEW, "SELECT /*+ BROADCAST(prices) */ * FROM shop.orders JOIN shop.prices USING (k)")

    assert names == (TableName("shop", "orders"), TableName("shop", "prices"))
