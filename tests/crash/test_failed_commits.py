"""A commit on SQLite whose write or flush fails: what its caller hears stays true when the process ends without closing anything."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text
from system_calls import FULL_ONCE, FULL_STAYS, IO_ONCE, IO_STAYS, Watch, require_watchable, watch_process

from builders import ORDERS, fake_file, make_table, publish
from lakebed.core.errors import LakebedError, OutcomeUnknownError
from lakebed.iceberg.catalog import open_catalog
from lakebed.lake import connect
from lakebed.registry.maintenance.runs import list_runs
from lakebed.registry.open import open_registry
from lakebed.registry.queries.listing import list_files
from lakebed.registry.tables.lake_tables import find_table
from lakebed.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from system_calls import Course, Fault, Reporter

    from conftest import Databases
    from lakebed.core.names import TableName
    from lakebed.registry.registry import Registry


@pytest.fixture(scope="module", autouse=True)
def watchable() -> None:
    require_watchable()


@contextmanager
def dying(report: Reporter) -> Iterator[None]:
    """Reports the error that ends the block, and ends the process with nothing closed."""
    try:
        yield
    except OutcomeUnknownError:
        report("unknown")
    except LakebedError as exc:
        report(exc.code)
    os._exit(0)


def write_and_die(report: Reporter, *, url: str, name: TableName, as_administrator: bool) -> None:
    """Beside a connection that stays open, so that no close ever checkpoints."""
    with dying(report):
        registry = open_registry(url)
        with registry.read() as reader:
            reader.query("SELECT 1")
            write(registry, name, as_administrator=as_administrator)
            report("done")
            os._exit(0)


def write(registry: Registry, name: TableName, *, as_administrator: bool) -> None:
    if as_administrator:
        administer(registry)
    else:
        table = find_table(registry, name)
        assert table is not None
        publish(registry, table, fake_file(2))


def administer(registry: Registry) -> None:
    with registry.write() as tx:
        tx.run("INSERT INTO runs (job, state, plan, result, actor, requested_at) VALUES ('x', 'done', '{}', '{}', 'ann', 1)")


def swap_and_die(report: Reporter, *, url: str, warehouse: str) -> None:
    with dying(report), closing(open_registry(url)) as registry:
        catalog = open_catalog(registry, open_storage(warehouse, create=False))
        with catalog.engine.connect() as beside:
            beside.execute(text("SELECT count(*) FROM lakebed_fence"))
            epoch = catalog.raise_fence(ORDERS)
            report("done" if catalog.swap(ORDERS, old=None, new="new.json", epoch=epoch) else "moved")
            os._exit(0)


@pytest.mark.parametrize("fault", [IO_ONCE, FULL_ONCE], ids=lambda fault: fault.name)
def test_a_refused_swap_of_the_iceberg_catalog_does_not_come_back(databases: Databases, tmp_path: Path, fault: Fault) -> None:
    heard: set[str] = set()
    for at in count(1):
        url = databases.new("sqlite")
        warehouse = str(tmp_path / str(at))
        with connect(url, warehouse=warehouse, service="off") as lake:
            open_catalog(lake.registry, lake.storage).close()

        root = url.removeprefix("sqlite:///").removesuffix(".db") + ".iceberg.db"
        course = watch_process(partial(swap_and_die, url=url, warehouse=warehouse), Watch(roots=(root,)), at=at, fault=fault)

        ((outcome,),) = course.reports
        with connect(url, warehouse=warehouse, service="off") as lake, closing(open_catalog(lake.registry, lake.storage)) as catalog:
            is_there = catalog.find_pointer(ORDERS) is not None
        assert outcome == "unknown" or is_there == (outcome == "done"), f"{outcome} at {course.struck}, and it is {is_there}"
        heard.add(outcome)
        if course.struck is None:
            break
    assert {"done", "storage_full" if fault is FULL_ONCE else "registry_unavailable"} <= heard


def strike(url: str, name: TableName, *, at: int, fault: Fault, as_administrator: bool) -> tuple[Course, str]:
    path = url.removeprefix("sqlite:///")
    body = partial(write_and_die, url=url, name=name, as_administrator=as_administrator)
    course = watch_process(body, Watch(roots=(path,)), at=at, fault=fault)
    ((outcome,),) = course.reports
    return course, outcome


@pytest.mark.parametrize("as_administrator", [False, True], ids=["operation", "no id"])
@pytest.mark.parametrize("fault", [IO_ONCE, FULL_ONCE, IO_STAYS, FULL_STAYS], ids=lambda fault: fault.name)
def test_a_refused_commit_does_not_come_back_with_the_next_process(databases: Databases, fault: Fault, as_administrator: bool) -> None:  # noqa: FBT001 - a parameter
    heard: set[str] = set()
    for at in count(1):
        url = databases.new("sqlite")
        registry = open_registry(url)
        table = make_table(registry)
        publish(registry, table, fake_file(1))
        registry.close()

        course, outcome = strike(url, table.name, at=at, fault=fault, as_administrator=as_administrator)

        again = open_registry(url)
        is_there = bool(list_runs(again)) if as_administrator else len(list_files(again, table.table_id)) == 2
        again.close()
        assert outcome == "unknown" or is_there == (outcome == "done"), f"{outcome} at {course.struck}, and it is {is_there}"
        heard.add(outcome)
        if course.struck is None:
            break
    assert {"done", "storage_full" if fault in (FULL_ONCE, FULL_STAYS) else "registry_unavailable"} <= heard
