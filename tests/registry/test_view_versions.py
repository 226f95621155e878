"""The serving and the staged version of a view set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import DAILY, HOUR, ORDERS, SCHEMA, make_table, promote, stage
from lakebed.core.errors import DefinitionRefusedError, TableNotFoundError
from lakebed.core.tables.view_sets import Definition
from lakebed.registry.tables.lake_tables import TableSpec, create_table
from lakebed.registry.tables.view_sets import ViewSet, read_newest, read_view

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry

FIRST = Definition(sql="SELECT id FROM shop.orders", over=ORDERS, slice_us=HOUR)
NEXT = Definition(sql="SELECT ts FROM shop.orders", over=ORDERS, slice_us=HOUR)


@pytest.fixture
def view(registry: Registry) -> Registry:
    """A registry with a table and a view set over it."""
    make_table(registry)
    create_table(registry, TableSpec(name=DAILY, schema=SCHEMA, kind="view_set", definition=FIRST.to_json()))
    return registry


def versions(registry: Registry) -> tuple[ViewSet | None, ViewSet | None, ViewSet]:
    with registry.read() as reader:
        return read_view(reader, DAILY), read_view(reader, DAILY, staged=True), read_newest(reader, DAILY)


def test_the_only_version_serves_and_is_the_newest(view: Registry) -> None:
    serving, staged, newest = versions(view)

    assert serving == newest
    assert (newest.name, newest.definition, newest.is_staged) == (DAILY, FIRST, False)
    assert staged is None


def test_a_staged_version_is_the_newest_and_serves_once_promoted(view: Registry) -> None:
    schema_hash = stage(view, definition=NEXT.to_json())
    serving, staged, newest = versions(view)

    assert serving is not None
    assert serving.definition == FIRST
    assert staged == newest
    assert (newest.definition, newest.is_staged) == (NEXT, True)

    promote(view, schema_hash)
    assert versions(view)[2].definition == NEXT
    assert versions(view)[1] is None


def test_anything_but_a_view_set_is_refused(view: Registry) -> None:
    with view.read() as reader:
        with pytest.raises(DefinitionRefusedError, match=r"shop\.orders"):
            read_view(reader, ORDERS)
        with pytest.raises(TableNotFoundError):
            read_view(reader, type(ORDERS)("shop", "nothing"))
