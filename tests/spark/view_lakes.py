"""A shop whose orders arrive at chosen instants, for tests of view sets and merging."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from builders import writing_path
from lakebed.core.names import TableName
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.parquet.schema.arrow import to_arrow
from lakebed.pipeline.read.combine import combine_partials
from lakebed.pipeline.rows.scan import frame_of
from lakebed.pipeline.views.build import list_in_order, materialize
from lakebed.registry.tables.lake_tables import TableSpec, create_table, require_table
from planning import plan_files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.lake import Lake
    from lakebed.pipeline.views.plan import MaterializeResult
    from lakebed.registry.partitions.publish import Published
    from lakebed.testing import FixedClock

DAY = datetime(2026, 3, 1, tzinfo=UTC)
Order = tuple[int, str, int, float]  # hour of the event, product, id, amount
ORDERS = Schema(
    fields=(
        Field(field_id=1, name="ts", type=Primitive(name="timestamptz")),
        Field(field_id=2, name="product", type=Primitive(name="string")),
        Field(field_id=3, name="id", type=Primitive(name="long")),
        Field(field_id=4, name="amount", type=Primitive(name="double")),
    )
)
PRICES = Schema(
    fields=(
        Field(field_id=1, name="product", type=Primitive(name="string")),
        Field(field_id=2, name="price", type=Primitive(name="double")),
    )
)
BY_PRODUCT = "SELECT product, max(ts) AS ts, count(*) AS n, sum(amount) AS amount FROM shop.orders GROUP BY product"
COMBINE = "SELECT product, max(ts) AS ts, sum(n) AS n, sum(amount) AS amount FROM partials GROUP BY product"


def make_orders(lake: Lake, **options: Any) -> None:
    create_table(lake.registry, TableSpec(name=TableName("shop", "orders"), schema=ORDERS, event_time="ts", **options))


def make_prices(lake: Lake) -> None:
    create_table(lake.registry, TableSpec(name=TableName("shop", "prices"), schema=PRICES))


def at_hour(clock: FixedClock, hour: float) -> None:
    """Set the clock to this hour of the day."""
    clock.micros = int((DAY + timedelta(hours=hour)).timestamp()) * 1_000_000


def add_orders(lake: Lake, orders: Iterable[Order], *, replacing: frozenset[int] = frozenset(), instance: str = "global") -> Published:
    rows = [(DAY + timedelta(hours=hour), product, number, amount) for hour, product, number, amount in orders]
    return add_rows(lake, "shop.orders", rows, ORDERS, replacing=replacing, instance=instance)


def add_prices(lake: Lake, prices: dict[str, float]) -> Published:
    return add_rows(lake, "shop.prices", list(prices.items()), PRICES)


def add_rows(
    lake: Lake, name: str, rows: list[tuple[Any, ...]], schema: Schema, *, replacing: frozenset[int] = frozenset(), instance: str = "global"
) -> Published:
    """Without Spark: what is tested here begins where the rows have arrived."""
    with lake.writing(name) as writing:
        columns = [list(column) for column in zip(*rows, strict=True)]
        pq.write_table(pa.table(columns, schema=to_arrow(schema)), writing_path(writing.new_path()))
        return writing.publish(replacing=replacing, instance=instance)


def read_rows(lake: Lake, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """What a reader sees: combined, in the order of the values."""
    table = require_table(lake.registry, TableName.parse(name))
    frame = frame_of(lake._context, table.schema, plan_files(lake.registry, table.name).paths)
    combined = combine_partials(lake._context, table, frame)
    return sorted(tuple(row) for row in (combined.select(*columns) if columns else combined).collect())


def ask_everything(lake: Lake, sql: str) -> list[tuple[Any, ...]]:
    """One query over all orders, without any view set."""
    orders = require_table(lake.registry, TableName("shop", "orders"))
    frame = frame_of(lake._context, orders.schema, plan_files(lake.registry, orders.name).paths)
    return sorted(tuple(row) for row in lake.spark.sql(sql.replace("shop.orders", "{orders}"), orders=frame).collect())


def materialize_all(lake: Lake) -> list[MaterializeResult]:
    """Every view set, each after those it reads."""
    return [materialize(lake._context, str(view), instance=None) for view in list_in_order(lake._context)]
