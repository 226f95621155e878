"""A thread of the service that meets an unexpected error goes on, is counted, and makes the service unready while it stays down."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from builders import ORDERS, make_table, within, write_partition
from lakebed.core.errors import RegistryUnavailableError
from lakebed.core.tasks import OFF, Task
from lakebed.lake import Lake
from lakebed.maintenance.threads import RepeatingThread
from lakebed.registry.connect import open_backend
from lakebed.registry.registry import Registry
from lakebed.registry.tables.versions import set_properties
from lakebed.service.service import Service, Upkeep
from lakebed.storage.open import open_storage
from serving import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from lakebed.registry.backends.protocol import RawRows
    from lakebed.registry.transaction import Reader


class DefectiveRegistry(Registry):
    """Raises what no caller expects in one thread, while `failing` names it."""

    failing = ""

    def now(self) -> int:
        self._fail()
        return super().now()

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> RawRows:
        self._fail()
        return super().query(sql, params)

    @contextmanager
    def read(self) -> Iterator[Reader]:
        self._fail()
        with super().read() as reader:
            yield reader

    def _fail(self) -> None:
        if threading.current_thread().name == self.failing:
            message = "a defect"
            raise ZeroDivisionError(message)


@contextmanager
def repeating(body: Callable[[], object]) -> Iterator[RepeatingThread]:
    stopping = threading.Event()
    thread = RepeatingThread("clock", body, pace_s=0.001, stopping=stopping)
    thread.start()
    try:
        yield thread
    finally:
        stopping.set()
        assert thread.join(30)


def test_an_unexpected_error_is_counted_and_the_thread_goes_on() -> None:
    calls: list[int] = []

    def body() -> None:
        calls.append(1)
        if len(calls) <= 4:
            raise KeyError(len(calls))

    with repeating(body) as thread:
        wait_until(lambda: len(calls) > 6)
        assert (thread.restarts, thread.problem) == (4, "")


def test_a_thread_that_fails_repeatedly_reports_it_and_an_answer_of_the_registry_is_not_a_defect() -> None:
    failing = [KeyError("x")]

    def body() -> None:
        if failing:
            raise failing[0]

    def refuse() -> None:
        message = "the registry is away"
        raise RegistryUnavailableError(message)

    with repeating(body) as thread, repeating(refuse) as waiting:
        wait_until(lambda: "the clock thread failed 3 consecutive times: KeyError: 'x'" in thread.problem)
        failing.clear()
        wait_until(lambda: not thread.problem)
        assert (waiting.restarts, waiting.problem) == (0, "")


@pytest.fixture
def registry(url: str) -> DefectiveRegistry:
    return DefectiveRegistry(open_backend(url))


@pytest.fixture
def lake(registry: DefectiveRegistry, tmp_path: Path) -> Iterator[Lake]:
    with Lake(registry, open_storage(str(tmp_path / "warehouse"), create=True)) as made:
        make_table(registry)
        yield made


@contextmanager
def serving(lake: Lake) -> Iterator[Service]:
    schedule = {**dict.fromkeys(Task, OFF), Task.CHECK: "* * * * * *"}
    service = Service(lake.registry, lake.storage, upkeep=Upkeep(context=lambda: lake._context, schedule=schedule))
    service.start()
    try:
        yield service
    finally:
        service.stop()


@pytest.mark.parametrize("thread", ["ticker", "upkeep", "views"])
def test_a_dead_thread_makes_the_service_unready_until_it_works_again(lake: Lake, registry: DefectiveRegistry, thread: str) -> None:
    within(lake.registry, lambda tx: set_properties(tx, ORDERS, {"snapshot": {"trigger": "time", "interval_s": 0.1}}))
    with serving(lake) as service:
        wait_until(lambda: not service.readiness_problem())
        registry.failing = f"lakebed-{thread}"
        write_partition(lake, 1)
        wait_until(lambda: f"the {thread} thread failed" in service.readiness_problem())
        assert f'lakebed_thread_down{{thread="{thread}"}} 1.0'.encode() in service.to_metrics()

        registry.failing = ""

        wait_until(lambda: not service.readiness_problem())
        wait_until(lambda: lake.table(str(ORDERS)).row.committed_group > 0)
        assert next(t.restarts for t in service.threads if t.name == thread) >= 3
    assert lake.check().clean
