"""Which view sets a rollback breaks: by the names in their queries, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import DAILY, ORDERS, SCHEMA, make_table
from lakebed.admin.rollback import list_broken_views
from lakebed.core.names import TableName
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.core.tables.view_sets import Definition
from lakebed.registry.tables.lake_tables import TableSpec, create_table

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry

PRICES = TableName("shop", "prices")
# `amount` is called `price` after the rollback, and `note` is there again
RESTORED = Schema(
    fields=(*SCHEMA.fields[:2], SCHEMA.fields[2].renamed("price"), Field(field_id=4, name="note", type=Primitive(name="string")))
)
BROKEN = (
    "SELECT amount FROM shop.orders",
    "SELECT id FROM shop.orders WHERE AMOUNT > 1",
    "SELECT * FROM shop.orders",
    "SELECT o.* FROM shop.orders AS o",
    "SELECT o.amount FROM shop.orders AS o JOIN shop.prices AS p ON o.id = p.id",
    "SELECT note FROM shop.orders AS o JOIN shop.prices AS p ON o.id = p.id",
)
WHOLE = (
    "SELECT id, ts FROM shop.orders",
    "SELECT id, count(*) AS n FROM shop.orders GROUP BY id",
    "SELECT o.id, p.amount FROM shop.orders AS o JOIN shop.prices AS p ON o.id = p.id",
    "SELECT p.note FROM shop.orders AS o JOIN shop.prices AS p ON o.id = p.id",
    "SELECT 'amount' AS what, id FROM shop.orders",
)


@pytest.mark.parametrize(("sql", "named"), [*((sql, (str(DAILY),)) for sql in BROKEN), *((sql, ()) for sql in WHOLE)])
def test_a_view_is_named_when_its_query_uses_what_is_gone_or_became_ambiguous(registry: Registry, sql: str, named: tuple[str, ...]) -> None:
    table = make_table(registry)
    reads = (PRICES,) if str(PRICES) in sql else ()
    definition = Definition(sql=sql, over=ORDERS, slice_us=3_600_000_000, reads=reads).to_json()
    create_table(registry, TableSpec(name=DAILY, schema=SCHEMA, kind="view_set", definition=definition))

    with registry.read() as reader:
        assert list_broken_views(reader, table, RESTORED) == named
        assert list_broken_views(reader, table, table.schema) == ()
