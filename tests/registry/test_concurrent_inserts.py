"""Sixteen writers at once on one table and on eight: no lost update, no deadlock, exact totals."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from builders import ORDERS, count, fake_file, fresh_name, make_table, publish, within
from lakebed.check import check
from lakebed.registry.journal.changes import last_journal_numbers
from lakebed.registry.tables.versions import set_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Transaction

WRITERS = 16


def insert_from_all(registries: list[Registry], tables: list[LakeTable], *, inserts: int, rows: int) -> list[BaseException]:
    """Sixteen threads over several registries; what they raised."""
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(inserts):
                table = tables[(number + i) % len(tables)]
                publish(registries[number % len(registries)], table, fake_file(number * 1000 + i, rows=rows, partition_path=f"p={i % 3}"))
        except BaseException as exc:  # noqa: BLE001 - whatever it is, the test shows it
            errors.append(exc)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.parametrize("inserts", [10, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("many", [1, 8])
def test_sixteen_writers_leave_exact_totals(registry: Registry, another: Callable[[], Registry], many: int, inserts: int) -> None:
    tables = [make_table(registry, fresh_name()) for _ in range(many)]

    assert insert_from_all([registry, another(), another()], tables, inserts=inserts, rows=7) == []

    total = WRITERS * inserts
    sums = registry.query("SELECT sum(row_count), sum(file_count), sum(total_size) FROM tables")[0]
    assert tuple(map(int, sums)) == (7 * total, total, 20_000 * total)
    assert count(registry, "partitions") == count(registry, "table_files") == total
    assert sum(row[0] for row in registry.query("SELECT count(DISTINCT begin_insert_time) FROM partitions GROUP BY table_id")) == total
    assert all(count(registry, "change_log", f"table_id = {t}") == last for t, last in last_journal_numbers(registry).items())


def test_transactions_over_several_tables_never_wait_for_each_other_in_a_circle(
    registry: Registry, another: Callable[[], Registry]
) -> None:
    names = [make_table(registry, fresh_name()).name for _ in range(3)]
    registries, errors = [registry, another()], []

    def touch(tx: Transaction, order: list[int], number: int) -> None:
        for i in order:
            set_properties(tx, names[i], {"seen": number})

    def work(number: int, own: Registry) -> None:
        order = [(number + i) % 3 for i in range(3)]
        try:
            for i in range(15):
                within(own, lambda tx, i=i: touch(tx, order, i), *[names[j] for j in order])  # type: ignore[misc]
        except BaseException as exc:  # noqa: BLE001 - whatever it is, the test shows it
            errors.append(exc)

    threads = [threading.Thread(target=work, args=(n, registries[n % 2])) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert check(registry).clean


def test_a_waiting_writer_sees_what_the_one_before_it_did(registry: Registry, another: Callable[[], Registry]) -> None:
    """The clock and the counters are read after the lock is granted, never before."""
    table, other = make_table(registry, ORDERS), another()
    with registry.write([ORDERS]) as tx:
        waiter = threading.Thread(target=publish, args=(other, table, fake_file(2)))
        waiter.start()
        waiter.join(0.2)
        set_properties(tx, ORDERS, {"first": True})
        ((first,),) = tx.query("SELECT last_modified FROM tables")
    waiter.join()

    ((last,),) = registry.query("SELECT last_modified FROM tables")
    assert last > first
    assert check(registry).clean
