"""The write door and the snapshots: one writer per table, all or nothing, and a registry that survives any interruption."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from builders import ORDERS, count, fake_file, logical_dump, make_table, publish, within
from lakebed.core.errors import InvalidValueError, RegistryLockedError, TableNotFoundError
from lakebed.core.names import TableName
from lakebed.registry.connect import open_backend, parse_url
from lakebed.registry.queries.listing import list_files
from lakebed.registry.registry import Registry
from lakebed.testing import SteppedBackend, Steps
from retiring import retire_by_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.registry.transaction import Transaction


def interrupt(what: str) -> None:
    if what != "committed":
        raise KeyboardInterrupt


def interrupted_at(url: str, step: int) -> Registry:
    return Registry(SteppedBackend(open_backend(url), Steps(at=step, act=interrupt)))


def test_a_block_that_raises_leaves_everything_as_it_was(registry: Registry) -> None:
    make_table(registry)
    before = logical_dump(registry)

    def fail(tx: Transaction) -> None:
        tx.run("UPDATE tables SET row_count = 9")
        tx.tables[1].allocate_id(50)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        within(registry, fail)

    assert logical_dump(registry) == before


def test_an_interruption_at_any_statement_changes_nothing_and_leaves_no_lock(registry: Registry, url: str) -> None:
    table = make_table(registry)
    old = publish(registry, table, fake_file(1), hours=(0, 1)).partition_id
    before = logical_dump(registry)

    for step in range(1, 60):
        with closing(interrupted_at(url, step)) as stepped:
            try:
                publish(stepped, table, fake_file(2), hours=(0, 1), replacing=frozenset({old}))
                break
            except KeyboardInterrupt:
                assert logical_dump(registry) == before
            stepped.backend.steps.at = 0  # type: ignore[attr-defined]
            with stepped.write([ORDERS]):
                pass  # the same process goes on

    assert step > 8
    assert [f.added_group for f in list_files(registry, table.table_id)] == [1]


def test_a_read_sees_one_snapshot_of_all_tables(registry: Registry, another: Callable[[], Registry]) -> None:
    table, other = make_table(registry), another()
    done = publish(registry, table, fake_file(1))
    with registry.read() as reader:
        before = [reader.query(f"SELECT count(*) FROM {t}") for t in ("partitions", "table_files", "change_log")]
        publish(other, table, fake_file(2))
        within(other, lambda tx: retire_by_ids(tx, ORDERS, {done.partition_id}))

        assert [reader.query(f"SELECT count(*) FROM {t}") for t in ("partitions", "table_files", "change_log")] == before

    assert count(registry, "table_files") == 2


def test_a_partition_is_never_seen_without_its_footer(registry: Registry, another: Callable[[], Registry]) -> None:
    table, writer, stop = make_table(registry), another(), threading.Event()
    broken = """SELECT count(*) FROM table_files f WHERE NOT EXISTS (SELECT 1 FROM partition_metadata m WHERE m.file_path = f.file_path)
OR NOT EXISTS (SELECT 1 FROM file_columns c WHERE c.file_id = f.id)"""
    counters = "SELECT (SELECT count(*) FROM table_files WHERE retired_seq IS NULL) - (SELECT file_count FROM tables)"
    seen: set[int] = set()

    def watch() -> None:
        while not stop.is_set():
            with registry.read() as reader:
                seen.update([reader.query(broken)[0][0], reader.query(counters)[0][0]])

    thread = threading.Thread(target=watch)
    thread.start()
    for number in range(40):
        done = publish(writer, table, *[fake_file(number * 3 + i) for i in range(3)])
        if number % 2:
            within(writer, lambda tx, gone=done.partition_id: retire_by_ids(tx, ORDERS, {gone}))  # type: ignore[misc]
    stop.set()
    thread.join()

    assert seen == {0}


def test_a_missing_table_is_refused_by_name_and_by_number(registry: Registry) -> None:
    with pytest.raises(TableNotFoundError, match=r"shop\.orders"), registry.write([ORDERS]):
        pass
    with pytest.raises(TableNotFoundError, match="with id 77"), registry.write([77]):
        pass
    with registry.write([]) as tx:  # no lock was left behind
        assert tx.tables == {}


def test_a_table_that_was_not_locked_cannot_be_written_to(registry: Registry) -> None:
    make_table(registry)
    make_table(registry, TableName("shop", "returns"))

    with registry.write([ORDERS]) as tx, pytest.raises(TableNotFoundError):
        tx.require(TableName("shop", "returns"))


def test_listeners_hear_of_every_commit_and_of_no_rollback(registry: Registry) -> None:
    heard: list[frozenset[int]] = []
    registry.add_listener(heard.append)
    with pytest.raises(ZeroDivisionError), registry.write():
        _ = 1 / 0
    assert heard == []

    table = make_table(registry)
    publish(registry, table, fake_file(1))
    with registry.write():
        pass

    assert heard == [{table.table_id}, {table.table_id}, frozenset()]
    registry.remove_listener(heard.append)


def test_writing_inside_writing_is_refused_not_hung(url: str, registry: Registry) -> None:
    table = make_table(registry)
    impatient = Registry(open_backend(url, timeout_s=0.2))
    with closing(impatient), impatient.write([ORDERS]), pytest.raises(RegistryLockedError), impatient.write([ORDERS]):
        pass

    publish(registry, table, fake_file(1))


@pytest.mark.parametrize("url", ["", "sqlite://", "sqlite:///", "sqlite:///:memory:", "mysql://x/y", "lake.db", "postgresql+psycopg://x/y"])
def test_a_url_that_names_no_registry_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(InvalidValueError, match=r"sqlite:///path/lake\.db or postgresql://user@host/database"):
        parse_url(url)


@pytest.mark.parametrize("call", ["run", "query", "send"])
def test_a_text_with_a_lone_surrogate_is_refused_by_every_statement(registry: Registry, call: str) -> None:
    with pytest.raises(InvalidValueError, match="lone surrogate at offset 1"), registry.write() as tx:
        getattr(tx, call)("INSERT INTO astha_state (key, value, updated_at) VALUES (:key, 'x', 1) RETURNING key", {"key": "a\udc80"})


def test_rows_with_a_lone_surrogate_are_refused(registry: Registry) -> None:
    for rows in ([("a\udc80", "x", 1)], [("a", "x", 1), ("b\udc80", "x", 1)]):
        with pytest.raises(InvalidValueError, match="lone surrogate"), registry.write() as tx:
            tx.insert("astha_state", ("key", "value", "updated_at"), rows)
    assert registry.query("SELECT count(*) FROM astha_state") == [(0,)]
