"""Metrics of a service that runs, read as Prometheus reads them."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from builders import ORDERS, make_table, stepped_lake, write_partition
from lakebed.astha import AsthaStatus
from lakebed.components.compactor import CompactorOptions
from lakebed.core.errors import RegistryUnavailableError
from lakebed.core.tasks import OFF, Task
from lakebed.maintenance.reports import Report
from lakebed.monitoring.declarations import METRICS
from lakebed.monitoring.metrics import Metrics
from lakebed.registry.journal.leases import find_holder
from lakebed.service.service import Service, Upkeep
from lakebed.testing import Steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.lake import Lake

TABLE = str(ORDERS)
BY_HAND = CompactorOptions(small_files=1000)


def read(text: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    families = text_string_to_metric_families(text.decode())
    return {(s.name, tuple(s.labels.values())): s.value for family in families for s in family.samples}


@pytest.fixture
def service(lake: Lake) -> Iterator[Service]:
    make_table(lake.registry)
    upkeep = Upkeep(context=lambda: lake._context, schedule={**dict.fromkeys(Task, OFF), Task.CHECK: "* * * * * *"})
    made = Service(lake.registry, lake.storage, upkeep=upkeep, compactor_options=BY_HAND)
    made.start()
    yield made
    made.stop()


def test_every_declared_metric_is_exported_and_no_other(service: Service) -> None:
    families = {family.name for family in text_string_to_metric_families(service.to_metrics().decode())}
    declared = {metric.name.removesuffix("_total") for metric in METRICS}
    assert families - {"lakebed_commit_seconds_created"} == declared
    assert all(metric.help for metric in METRICS)
    assert len(declared) == len(METRICS)


def test_a_write_shows_in_events_commits_and_the_tables_own_figures(lake: Lake, service: Service) -> None:
    write_partition(lake, 1, files=3)
    assert service.drain(60)

    found = read(service.to_metrics())

    assert found["lakebed_active", ()] == 1
    assert found["lakebed_events_delivered_total", ("iceberg_updater",)] > 0
    assert found["lakebed_commit_seconds_count", ()] >= 1
    assert found["lakebed_component_behind", ("iceberg_updater",)] == 0
    assert found["lakebed_component_breaker", ("iceberg_updater", "closed")] == 1
    assert (found["lakebed_table_rows", (TABLE,)], found["lakebed_table_files", (TABLE,)]) == (150, 3)
    assert found["lakebed_table_small_file_share", (TABLE,)] == 1
    assert found["lakebed_table_lag_seconds", (TABLE,)] == 0
    assert lake.check().clean


def test_a_lake_without_a_publisher_shows_its_lag(lake: Lake) -> None:
    make_table(lake.registry)
    write_partition(lake, 1)
    time.sleep(0.01)  # the clock of the files is the database's: it has to move
    found = read(make_metrics(lake).to_text())
    assert found["lakebed_table_lag_seconds", (TABLE,)] > 0
    assert found["lakebed_active", ()] == 0


def test_the_scheduled_check_raises_its_alarm(lake: Lake, service: Service) -> None:
    published = write_partition(lake, 1)
    assert service.drain(60)
    (path,) = [row.file_path for row in lake.files.list(TABLE)]
    assert published.partition_id
    lake.storage.delete([path])
    deadline = time.monotonic() + 30
    while read(service.to_metrics()).get(("lakebed_check_clean", ())) != 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert read(service.to_metrics())["lakebed_check_findings", ("damage",)] >= 1


def test_reading_metrics_waits_for_no_writer(lake: Lake, service: Service) -> None:
    write_partition(lake, 1)
    assert service.drain(60)
    with lake.registry.write([lake.table(TABLE).table_id]) as tx:
        tx.query("SELECT 1")
        found = read(make_metrics(lake).to_text())
    assert found["lakebed_registry_up", ()] == 1  # whoever waited for this thread's own write would time out


def test_a_registry_that_does_not_answer_is_reported_beside_the_other_metrics(url: str, tmp_path: Path) -> None:
    def refuse(_: str) -> None:
        message = "gone"
        raise RegistryUnavailableError(message)

    steps = Steps()
    with stepped_lake(url, str(tmp_path / "warehouse"), steps) as lake:
        steps.at, steps.act = len(steps.done) + 1, refuse
        found = read(make_metrics(lake).to_text())
    assert found["lakebed_registry_up", ()] == 0
    assert found["lakebed_astha_restarts_total", ()] == 0
    assert not any(name == "lakebed_table_rows" for name, _ in found)


def test_what_tasks_report_is_added_up(lake: Lake) -> None:
    metrics = make_metrics(lake)
    for _ in range(2):
        metrics.note_report(Task.CLEAN, Report(result={"deleted": 3, "bytes_freed": 500, "failed": 1}), 0.1)
    metrics.note_report(Task.SWEEP, Report(result={"orphans": 4}), 0.1)
    metrics.note_report(Task.CHECK, Report(result={"findings": {"info": 2}}), 0.1)

    found = read(metrics.to_text())

    assert (found["lakebed_cleaned_files_total", ()], found["lakebed_cleaned_bytes_total", ()]) == (6, 1000)
    assert (found["lakebed_clean_failures_total", ()], found["lakebed_orphan_files", ()]) == (2, 4)
    assert (found["lakebed_check_clean", ()], found["lakebed_check_findings", ("info",)]) == (1, 2)


def make_metrics(lake: Lake) -> Metrics:
    """Of a process that runs nothing itself."""
    idle = AsthaStatus(active=False, incarnation=0, restarts=0, problem="", down=False, components=())
    return Metrics(lake.registry, status=lambda: idle, compactor=lambda: None, runner=lambda: None)


def test_health_and_readiness_follow_the_life_of_the_service(lake: Lake) -> None:
    before = set(threading.enumerate())
    made, other = (Service(lake.registry, lake.storage, compactor_options=BY_HAND) for _ in range(2))
    assert made.liveness_problem()
    made.start()
    other.owner = "elsewhere"
    other.start()
    assert (made.liveness_problem(), made.readiness_problem()) == ("", "")
    assert (other.liveness_problem(), other.readiness_problem()) == ("", "")  # it stands by
    assert made.to_status()["active"] is True
    assert other.to_status()["active"] is False
    for service in (other, made):
        assert service.stop()
        assert service.liveness_problem()
    assert find_holder(lake.registry, "astha") is None
    assert {thread.name for thread in set(threading.enumerate()) - before} == set()


def test_what_a_killed_commit_left_is_deleted_by_the_service_itself(lake: Lake) -> None:
    make_table(lake.registry)
    upkeep = Upkeep(context=lambda: lake._context, schedule={**dict.fromkeys(Task, OFF), Task.RECOVER: "* * * * * *"})
    made = Service(lake.registry, lake.storage, upkeep=upkeep, compactor_options=BY_HAND)
    made.start()
    write_partition(lake, 1)
    assert made.drain(60)
    metadata = next(Path(lake.storage.paths.root).rglob("metadata"))
    old, young = (metadata / f"{age}-m0.avro" for age in ("old", "young"))
    for leftover in (old, young):
        leftover.write_bytes(b"nothing names it")
    os.utime(old, (time.time() - 660,) * 2)
    deadline = time.monotonic() + 30
    while old.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert made.stop()
    assert young.exists()
    assert lake.check().clean
