"""Defining view sets: what is refused and why, redefining beside what serves, views over views, instances."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from view_lakes import BY_PRODUCT, COMBINE, DAY, add_orders, at_hour, make_orders, make_prices, materialize_all, read_rows

from builders import logical_dump, within
from lakebed.core.errors import (
    DefinitionRefusedError,
    InvalidNameError,
    InvalidValueError,
    LakebedError,
    SchemaRefusedError,
    SparkRefusedError,
    TableExistsError,
    TableNotFoundError,
)
from lakebed.core.names import TableName
from lakebed.core.tables.view_sets import find_definition
from lakebed.pipeline.read.combine import find_keys
from lakebed.pipeline.views.build import materialize
from lakebed.pipeline.views.define import create_view_set, promote
from lakebed.pipeline.views.plan import plan_materialize
from lakebed.registry.tables.lake_tables import require_table
from lakebed.registry.tables.versions import set_properties
from lakebed.testing import FixedClock
from view_states import count_states

if TYPE_CHECKING:
    from lakebed.lake import Lake

IDS = "SELECT ts, id FROM shop.orders"


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(DAY)


@pytest.fixture
def shop(timed_spark_lake: Lake) -> Lake:
    make_orders(timed_spark_lake)
    return timed_spark_lake


def define(lake: Lake, name: str = "shop.ids", **changes: Any) -> Any:
    return create_view_set(lake._context, name, **{"sql": IDS, "over": "shop.orders", "event_time": "ts", **changes})


def fill_hours(lake: Lake, clock: FixedClock, *hours: int) -> None:
    for hour in hours:
        at_hour(clock, hour + 0.5)
        add_orders(lake, [(hour, "tea", hour, 1.0)])


BAD: list[tuple[dict[str, Any], type[LakebedError], str]] = [
    ({"sql": "SELECT ts FROM shop.orders JOIN shop.ids USING (id)"}, DefinitionRefusedError, "refers to itself"),
    ({"over": "shop.ids", "sql": "SELECT ts FROM shop.ids"}, DefinitionRefusedError, "refers to itself"),
    ({"sql": "SELECT o.ts FROM shop.orders o JOIN shop.later USING (id)"}, TableNotFoundError, r"shop\.later"),
    ({"over": "shop.nothing", "sql": "SELECT * FROM shop.nothing"}, TableNotFoundError, r"shop\.nothing"),
    ({"sql": "SELECT now() AS ts"}, DefinitionRefusedError, r"does not read shop\.orders"),
    ({"sql": BY_PRODUCT}, DefinitionRefusedError, "groups rows, so a slice would hold partial results. Give combine="),
    ({"sql": "SELECT DISTINCT ts FROM shop.orders"}, DefinitionRefusedError, "DISTINCT"),
    ({"sql": "SELECT max(ts) AS ts FROM shop.orders"}, DefinitionRefusedError, "MAX"),
    ({"sql": "SELECT ts, row_number() OVER (ORDER BY id) AS n FROM shop.orders"}, DefinitionRefusedError, "ROW_NUMBER"),
    ({"sql": "SELECT ts FROM shop.orders LIMIT 5"}, DefinitionRefusedError, "LIMIT"),
    ({"sql": "SELECT a.ts FROM shop.orders a JOIN shop.orders b ON a.id = b.id"}, DefinitionRefusedError, "with itself"),
    ({"sql": "SELECT try_sum(id) AS n FROM shop.orders", "event_time": None}, DefinitionRefusedError, "Spark plans it as an aggregate"),
    ({"sql": "DROP TABLE shop.orders"}, DefinitionRefusedError, "exactly one SELECT"),
    ({"sql": "INSERT INTO shop.orders SELECT * FROM shop.orders"}, DefinitionRefusedError, "exactly one SELECT"),
    ({"sql": f"{IDS}; {IDS}"}, DefinitionRefusedError, "exactly one SELECT"),
    ({"sql": "SELECT FROM WHERE"}, DefinitionRefusedError, "parsed|SELECT"),
    ({"sql": "SELECT ts FROM orders"}, DefinitionRefusedError, r"database\.name"),
    ({"sql": "SELECT nope FROM shop.orders"}, SparkRefusedError, "nope"),
    ({"sql": "SELECT id, ts - ts AS ts FROM shop.orders"}, SchemaRefusedError, "ts"),
    ({"sql": "SELECT ts, id, id FROM shop.orders"}, SchemaRefusedError, "twice"),
    ({"event_time": "nope"}, SchemaRefusedError, "nope"),
    ({"event_time": "product", "sql": "SELECT product FROM shop.orders"}, SchemaRefusedError, "product"),
    ({"slice": "0h"}, InvalidValueError, "positive whole number of microseconds"),
    ({"slice": "1.5us"}, InvalidValueError, "positive whole number of microseconds"),
    ({"slice": timedelta(0)}, InvalidValueError, "positive whole number of microseconds"),
    ({"slice": "7h"}, InvalidValueError, r"does not fit the merge window of shop\.orders"),
    ({"slice": "36h"}, InvalidValueError, r"does not fit the merge window of shop\.orders"),
    ({"partition_by": ["day(nope)"]}, SchemaRefusedError, "nope"),
    ({"sort_by": ["nope"]}, SchemaRefusedError, "nope"),
    ({"lookups": "maybe"}, InvalidValueError, "track"),
    ({"promote": "later"}, InvalidValueError, "auto"),
    ({"name": "ids"}, InvalidNameError, r"database\.name"),
    ({"sql": BY_PRODUCT, "combine": "SELECT * FROM shop.orders"}, DefinitionRefusedError, "'partials' and nothing else"),
    ({"sql": BY_PRODUCT, "combine": "SELECT product, sum(n) AS n FROM partials GROUP BY 1"}, DefinitionRefusedError, "must be the same"),
    ({"sql": BY_PRODUCT, "combine": COMBINE.replace("sum(n)", "string(sum(n))")}, DefinitionRefusedError, "combine gives n as string"),
]


def test_what_cannot_be_a_view_set_is_refused_and_nothing_changes(shop: Lake) -> None:
    make_prices(shop)
    before = logical_dump(shop.registry)

    for changes, error, message in BAD:
        with pytest.raises(error, match=message):
            define(shop, **{"name": "shop.ids", **changes})

    assert logical_dump(shop.registry) == before


def test_the_name_of_a_plain_table_is_taken(shop: Lake) -> None:
    make_prices(shop)

    with pytest.raises(TableExistsError):
        define(shop, "shop.prices")


def test_partial_results_may_be_asked_for(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 0, 1)
    define(shop, "shop.partial", sql=BY_PRODUCT, partial=True)

    assert materialize(shop._context, "shop.partial").raise_failed().built == 2
    assert read_rows(shop, "shop.partial", "product", "n") == [("tea", 1), ("tea", 1)]


def test_a_definition_may_qualify_its_columns_and_hint_at_its_tables(shop: Lake, clock: FixedClock) -> None:
    make_prices(shop)
    fill_hours(shop, clock, 0)
    define(
        shop, sql="SELECT /*+ BROADCAST(prices) */ shop.orders.ts, shop.orders.id FROM shop.orders LEFT JOIN shop.prices USING (product)"
    )

    materialize(shop._context, "shop.ids").raise_failed()

    assert read_rows(shop, "shop.ids", "id") == [(0,)]


def test_a_slice_fits_the_merge_window_that_the_source_has(shop: Lake) -> None:
    orders = TableName("shop", "orders")
    within(shop.registry, lambda tx: set_properties(tx, orders, {"merge_window_us": 7 * 3600 * 10**6}), orders)

    define(shop, slice="7h")
    with pytest.raises(InvalidValueError, match="does not fit"):
        define(shop, "shop.other", slice="1d")


def test_the_schema_of_the_result_is_known_before_anything_is_built(shop: Lake) -> None:
    view = define(shop, "shop.by_product", sql=BY_PRODUCT, combine=COMBINE, partition_by=["product"], sort_by=["n"])

    assert [(f.name, str(f.type), f.required) for f in view.table.schema.fields] == [
        ("product", "string", False), ("ts", "timestamptz", False), ("n", "long", False), ("amount", "double", False),
    ]  # fmt: skip
    assert find_keys(view.table) == frozenset({"product"})
    assert read_rows(shop, "shop.by_product") == []


def test_the_same_definition_again_changes_nothing(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 0)
    define(shop)
    materialize(shop._context, "shop.ids")
    before = logical_dump(shop.registry, without=frozenset({"leases", "lease_numbers"}))

    assert not define(shop).is_staged

    assert logical_dump(shop.registry, without=frozenset({"leases", "lease_numbers"})) == before


def test_a_new_definition_is_built_beside_the_serving_one_and_promoted_when_it_covers_it(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 0, 1)
    define(shop)
    materialize(shop._context, "shop.ids")
    serving = require_table(shop.registry, TableName("shop", "ids")).schema_hash

    staged = define(shop, sql="SELECT ts, id, product FROM shop.orders")
    first = materialize(shop._context, "shop.ids", insert_end=DAY + timedelta(hours=1))

    assert (staged.is_staged, first.built, first.promoted) == (True, 1, False)
    assert read_rows(shop, "shop.ids", "id") == [(0,), (1,)]
    assert require_table(shop.registry, TableName("shop", "ids")).schema_hash == serving
    second = materialize(shop._context, "shop.ids")
    assert (second.built, second.fresh, second.promoted) == (1, 1, True)
    assert read_rows(shop, "shop.ids", "id", "product") == [(0, "tea"), (1, "tea")]
    assert [f.field_id for f in require_table(shop.registry, TableName("shop", "ids")).schema.fields] == [1, 2, 3]
    assert shop.check().clean


def test_reverting_to_an_earlier_definition_never_revives_its_partitions(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 0)
    first = define(shop)
    materialize(shop._context, "shop.ids")
    define(shop, sql="SELECT ts, id + 1 AS id FROM shop.orders", promote="now")

    again = define(shop, promote="now")

    assert again.table.schema_hash != first.table.schema_hash
    assert read_rows(shop, "shop.ids") == []
    assert materialize(shop._context, "shop.ids").built == 1
    assert read_rows(shop, "shop.ids", "id") == [(0,)]
    assert shop.check().clean


def test_a_staged_definition_is_taken_back_by_the_serving_one(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 0)
    define(shop)
    materialize(shop._context, "shop.ids")
    assert define(shop, sql="SELECT ts, id + 1 AS id FROM shop.orders").is_staged

    assert not define(shop).is_staged

    assert materialize(shop._context, "shop.ids").fresh == 1
    with pytest.raises(InvalidValueError, match="no staged definition"):
        promote(shop._context, "shop.ids")


def test_promotion_by_hand_serves_what_is_built_so_far(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 0, 1)
    define(shop)
    materialize(shop._context, "shop.ids")
    define(shop, sql="SELECT ts, -id AS id FROM shop.orders")
    materialize(shop._context, "shop.ids", insert_begin=DAY + timedelta(hours=1))

    promote(shop._context, "shop.ids")

    assert read_rows(shop, "shop.ids", "id") == [(-1,)]
    assert shop.check().clean


def test_a_definition_that_was_never_built_is_replaced_at_once(shop: Lake) -> None:
    define(shop)

    assert not define(shop, sql="SELECT ts, product FROM shop.orders").is_staged


def test_what_a_table_is_for_life_cannot_be_redefined(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 0)
    define(shop)

    with pytest.raises(InvalidValueError, match="partition_by cannot be changed"):
        define(shop, sql="SELECT ts, id AS n FROM shop.orders", partition_by=["day(ts)"])
    with pytest.raises(DefinitionRefusedError, match="its event time is ts and cannot be changed"):
        define(shop, event_time=None)


def test_a_view_may_not_be_redefined_over_one_that_is_built_from_it(shop: Lake) -> None:
    define(shop, "shop.first")
    define(shop, "shop.second", sql="SELECT * FROM shop.first", over="shop.first")

    with pytest.raises(DefinitionRefusedError, match=r"shop\.second is built from shop\.first itself"):
        define(shop, "shop.first", sql="SELECT * FROM shop.second", over="shop.second")


def test_views_over_views_are_built_in_the_order_of_their_dependencies(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 0, 1, 25)
    define(shop, "shop.z_hourly", sql=BY_PRODUCT, combine=COMBINE)
    daily = BY_PRODUCT.replace("shop.orders", "shop.z_hourly").replace("count(*)", "sum(n)")
    define(shop, "shop.a_daily", sql=daily, over="shop.z_hourly", slice="1d", combine=COMBINE)

    done = {r.view: r for r in materialize_all(shop)}

    assert list(done) == ["shop.z_hourly", "shop.a_daily"]
    assert (done["shop.z_hourly"].built, done["shop.z_hourly"].empty, done["shop.a_daily"].built) == (3, 23, 2)
    assert read_rows(shop, "shop.a_daily", "product", "n", "amount") == [("tea", 3, 3.0)]
    fill_hours(shop, clock, 26)
    again = materialize(shop._context, "shop.a_daily", upstream=True)
    assert [s.outcome for s in again.slices] == ["fresh", "built"]
    assert read_rows(shop, "shop.a_daily", "product", "n") == [("tea", 4)]
    assert shop.check().clean


def test_one_view_that_cannot_be_built_leaves_the_others_alone(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 0, 1)
    define(shop, "shop.bad", sql="SELECT ts, id DIV (id - 1) AS id FROM shop.orders")
    define(shop, "shop.good")

    bad, good = materialize_all(shop)

    assert ([s.outcome for s in bad.slices], good.built) == (["built", "failed"], 2)
    with pytest.raises(LakebedError, match=r"DIVIDE_BY_ZERO"):
        bad.raise_failed()
    assert len(shop.list_partitions("shop.bad")) == 1
    assert materialize(shop._context, "shop.bad").fresh == 1
    assert shop.check().clean


def test_a_rebuild_that_fails_leaves_what_was_built_before_live_and_stale(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 0)
    define(shop, "shop.ids", sql="SELECT ts, id, id DIV (id - 99) AS part FROM shop.orders")
    materialize(shop._context, "shop.ids").raise_failed()
    before = shop.list_partitions("shop.ids"), read_rows(shop, "shop.ids", "id")

    at_hour(clock, 0.75)
    add_orders(shop, [(0, "tea", 99, 1.0)])
    for _ in range(2):  # it is tried each time, and fails each time
        (failed,) = materialize(shop._context, "shop.ids").slices
        assert (failed.outcome, [str(one.state) for one in plan_materialize(shop._context, "shop.ids").stale]) == ("failed", ["changed"])
        assert (shop.list_partitions("shop.ids"), read_rows(shop, "shop.ids", "id")) == before

    shop.delete("shop.orders", where="id = 99")
    materialize(shop._context, "shop.ids").raise_failed()
    assert read_rows(shop, "shop.ids", "id") == before[1]
    assert shop.check().clean


def test_a_range_of_event_or_insert_time_builds_only_its_slices(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 0, 1)
    at_hour(clock, 2.5)
    add_orders(shop, [(-48, "old", 7, 1.0)])
    define(shop)

    by_event = materialize(shop._context, "shop.ids", begin=DAY - timedelta(days=3), end=DAY)
    by_insert = materialize(shop._context, "shop.ids", insert_begin=DAY, insert_end=DAY + timedelta(hours=1))
    nothing = materialize(shop._context, "shop.ids", insert_begin=DAY + timedelta(days=9))

    assert [s.insert_range.begin for s in by_event.slices] == [int((DAY + timedelta(hours=2)).timestamp()) * 10**6]
    assert [s.insert_range.begin for s in by_insert.slices] == [int(DAY.timestamp()) * 10**6]
    assert (nothing.slices, "are in [2026-03-01T00:00:00Z, 2026-03-01T03:00:00Z)" in nothing.note) == ((), True)
    assert materialize(shop._context, "shop.ids", regenerate=True).built == 3
    assert shop.check().clean


def test_bad_requests_to_build_say_what_is_wrong(shop: Lake) -> None:
    make_prices(shop)
    define(shop)
    define(shop, "shop.priced", sql="SELECT * FROM shop.prices", over="shop.prices", event_time=None)

    with pytest.raises(TableNotFoundError):
        materialize(shop._context, "shop.nothing")
    with pytest.raises(DefinitionRefusedError, match="not a view set"):
        materialize(shop._context, "shop.orders")
    with pytest.raises(InvalidValueError, match="has no event time"):
        materialize(shop._context, "shop.priced", begin=DAY)
    with pytest.raises(InvalidValueError, match="parallel=0"):
        materialize(shop._context, "shop.ids", parallel=0)
    with pytest.raises(InvalidNameError):
        materialize(shop._context, "shop.ids", instance="../x")
    assert materialize(shop._context, "shop.ids").note == "shop.orders has no partitions yet: nothing to build"


def test_each_instance_is_built_from_the_same_instance_of_its_source(shop: Lake) -> None:
    add_orders(shop, [(0, "tea", 1, 1.0)], instance="berlin")
    add_orders(shop, [(0, "tea", 2, 1.0)], instance="paris")
    define(shop)

    one = materialize(shop._context, "shop.ids", instance="berlin")
    every = materialize(shop._context, "shop.ids", instance=None)

    assert [(s.instance, s.outcome) for s in one.slices] == [("berlin", "built")]
    assert [(s.instance, s.outcome) for s in every.slices] == [("berlin", "fresh"), ("paris", "built")]
    assert [(p.view_instance_id, p.num_rows) for p in shop.list_partitions("shop.ids")] == [("berlin", 1), ("paris", 1)]
    assert shop.check().clean


def test_view_sets_are_described_with_their_fresh_and_stale_windows(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 0, 1)
    define(shop)
    materialize(shop._context, "shop.ids", insert_end=DAY + timedelta(hours=1))
    define(shop, sql="SELECT ts, -id AS id FROM shop.orders")

    (row,) = shop.list_view_sets()

    definition = find_definition(require_table(shop.registry, TableName.parse("shop.ids")).metadata.properties)
    assert definition is not None
    assert (row.view_set_name, definition.sql, str(definition.over), definition.slice_us) == ("shop.ids", IDS, "shop.orders", 3600 * 10**6)
    assert (row.partition_count, row.row_count, *count_states(shop.registry, "shop.ids")) == (1, 1, 1, 1)
    assert row.staged_schema_hash is not None
