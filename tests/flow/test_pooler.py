"""Behind a transaction pooler nothing may live longer in a session than a transaction: no lock, no setting, no statement."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

import lakebed
from builders import DAILY, ORDERS, count, fake_file, make_table, publish
from lakebed.check import check
from lakebed.core.errors import InvalidValueError
from lakebed.registry.open import open_registry
from lakebed.registry.tables.lake_tables import require_table
from poolers import TransactionPooler, transaction_pooler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Databases
    from lakebed.core.names import TableName
    from lakebed.registry.registry import Registry

_LEFT = """SELECT (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'),
(SELECT count(*) FROM pg_prepared_statements), current_setting('lock_timeout'), (SELECT count(*) FROM pg_listening_channels())"""


@pytest.fixture
def url(databases: Databases) -> Iterator[str]:
    """Only PostgreSQL: SQLite has no pooler."""
    made = databases.new("postgresql")
    yield made
    databases.drop(made)


@pytest.fixture
def pooled(databases: Databases, url: str) -> Iterator[tuple[TransactionPooler, str]]:
    with transaction_pooler(databases.directory, url) as (pooler, pooled_url):
        yield pooler, f"{pooled_url}&prepared=off"


def publish_many(url: str, name: TableName, numbers: range) -> None:
    with closing(open_registry(url)) as registry:
        table = require_table(registry, name)  # once: the end of a read makes the driver forget what it prepared
        for number in numbers:
            publish(registry, table, fake_file(number))


@pytest.mark.parametrize("names", [(ORDERS, ORDERS), (ORDERS, DAILY)], ids=["one table", "two tables"])
def test_two_clients_publish_through_one_server_connection(
    registry: Registry, pooled: tuple[TransactionPooler, str], names: tuple[TableName, TableName]
) -> None:
    _, pooled_url = pooled
    for name in set(names):
        make_table(registry, name)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(publish_many, [pooled_url] * 2, names, [range(20), range(100, 120)]))

    assert count(registry, "partitions") == 40
    assert check(registry).clean


def test_every_transaction_may_meet_what_another_client_left(registry: Registry, pooled: tuple[TransactionPooler, str]) -> None:
    pooler, pooled_url = pooled
    table = make_table(registry)
    with closing(open_registry(pooled_url)) as first, closing(open_registry(pooled_url)) as second:
        for number in range(20):
            publish(first, table, fake_file(number))
            publish(second, table, fake_file(100 + number))

    assert count(registry, "partitions") == 40
    assert pooler.handed_over >= 40  # each of the forty came to the server right behind the other client's
    assert check(registry).clean


def test_a_failed_transaction_gives_the_connection_back_clean(registry: Registry, pooled: tuple[TransactionPooler, str]) -> None:
    _, pooled_url = pooled
    table = make_table(registry)
    with closing(open_registry(pooled_url)) as first, closing(open_registry(pooled_url)) as second:
        old = publish(second, table, fake_file(2)).partition_id
        with pytest.raises(InvalidValueError):
            publish(first, table, fake_file(1), replacing=frozenset({old}), grace_us=-1)
        publish(second, table, fake_file(3))
    assert count(registry, "partitions") == 2
    assert check(registry).clean


def test_nothing_is_left_in_the_session_that_the_next_client_gets(registry: Registry, pooled: tuple[TransactionPooler, str]) -> None:
    _, pooled_url = pooled
    make_table(registry)
    publish_many(pooled_url, ORDERS, range(5))

    with psycopg.connect(pooled_url.removesuffix("&prepared=off"), autocommit=True, prepare_threshold=None) as connection:
        assert connection.execute(_LEFT).fetchone() == (0, 0, "0", 0)


def test_no_source_takes_a_lock_that_outlives_its_transaction() -> None:
    sources = Path(lakebed.__file__).parent.rglob("*.py")

    found = {path.name: calls for path in sources if (calls := set(re.findall(r"pg_(?:try_)?advisory_\w+", path.read_text())))}

    assert found  # else the search itself is broken
    assert set.union(*found.values()) <= {"pg_advisory_xact_lock", "pg_try_advisory_xact_lock"}
