"""`lakebed serve` as those meet it who start it, watch it, write beside it, and kill it."""

from __future__ import annotations

import random
import signal
import threading
import time
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from builders import ORDERS, SCHEMA, arrow_rows, make_table, write_partition, writing_path
from lakebed.core.errors import PartitionStraddlesError
from lakebed.core.names import TableName
from lakebed.lake import connect
from lakebed.registry.journal.leases import find_holder
from lakebed.registry.maintenance.runs import list_runs
from lakebed.registry.snapshots.history import list_snapshots
from serving import EVERY_SECOND, serving, start_service, wait_until, warm_up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakebed.lake import Lake

NO_SNAPSHOT_STAYS = {"all_s": 0, "all_most": 0, "hourly_s": 0, "daily_s": 0, "least_age_s": 0}


@pytest.fixture
def lake(url: str, tmp_path: Path) -> Iterator[Lake]:
    """Opened by a writer that leaves publishing to the service."""
    with connect(url, warehouse=str(tmp_path / "warehouse"), service="off") as opened:
        make_table(opened.registry)
        yield opened


def test_a_served_lake_publishes_maintains_answers_and_stops_in_time(lake: Lake, url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with serving(url, tmp_path / "warehouse", log, "--log-format", "json", LAKEBED_SCHEDULE_CHECK=EVERY_SECOND) as served:
        assert served.reported["state"] == "active"
        write_partition(lake, 1)
        assert lake.snapshot(str(ORDERS), timeout_s=60) is not None
        wait_until(lambda: served.status()["tasks"]["check"]["runs"] > 0)
        assert [served.ask(path)[0] for path in ("/health", "/ready", "/metrics")] == [200, 200, 200]
        assert 'lakebed_table_rows{table="shop.orders"} 50.0' in served.ask("/metrics")[1]

        code = served.stop()

    assert code == 0
    assert find_holder(lake.registry, "astha") is None
    assert list_runs(lake.registry, job="task/check")[0].state == "done"
    assert all(line.startswith("{") for line in log.read_text().splitlines())
    assert lake.check().clean


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_second_signal_does_not_wait(lake: Lake, url: str, tmp_path: Path) -> None:
    with serving(url, tmp_path / "warehouse", tmp_path / "log", "--no-http") as served:
        assert served.reported["listen"] is None
        served.process.send_signal(signal.SIGINT)
        code = served.stop(signal.SIGTERM)
    assert code in {0, 128 + signal.SIGTERM}
    assert lake.check().clean


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize(
    ("arguments", "variables", "reported"),
    [
        ((), {"LAKEBED_SCHEDULE_CLEAN": "now and then"}, "schedule.clean"),
        (("--log-format", "xml"), {}, "log_format"),
    ],
)
def test_a_bad_setting_is_reported_before_anything_starts(
    lake: Lake, url: str, tmp_path: Path, arguments: tuple[str, ...], variables: dict[str, str], reported: str
) -> None:
    log = tmp_path / "log"
    with pytest.raises(AssertionError, match=reported), serving(url, tmp_path / "warehouse", log, *arguments, **variables):
        pass
    assert "Traceback" not in log.read_text()
    assert find_holder(lake.registry, "astha") is None


def test_a_process_that_only_publishes_lets_a_whole_service_lead(url: str, tmp_path: Path) -> None:
    warehouse = str(tmp_path / "warehouse")
    with connect(url, warehouse=warehouse, service="auto") as notebook, connect(url, warehouse=warehouse, service="off") as server:
        make_table(notebook.registry)
        write_partition(notebook, 1)
        assert notebook.snapshot(str(ORDERS), timeout_s=60) is not None
        assert str(find_holder(server.registry, "astha")).endswith("/publishing")

        with server.service() as service:
            wait_until(lambda: service.astha.is_active)
            write_partition(notebook, 2)
            assert notebook.snapshot(str(ORDERS), timeout_s=60) is not None
            assert str(find_holder(server.registry, "astha")).endswith("/full")

        write_partition(notebook, 3)  # and takes over again once the service is gone
        assert notebook.snapshot(str(ORDERS), timeout_s=60) is not None
        assert notebook.check().clean


class Writer(threading.Thread):
    """Writes small files into a table of its own and now and then retires its oldest partition; knows what must be there."""

    def __init__(self, url: str, warehouse: Path, number: int) -> None:
        super().__init__(name=f"writer-{number}")
        self.table = TableName("shop", f"orders{number}")
        self._url, self._warehouse = url, warehouse
        self.done = threading.Event()
        self.ids: dict[int, list[int]] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with connect(self._url, warehouse=str(self._warehouse), service="off") as lake:
                self._write(lake)
        except BaseException as exc:  # noqa: BLE001 - told by the test
            self.error = exc

    def _write(self, lake: Lake) -> None:
        lake.create_table(str(self.table), SCHEMA, event_time="ts")
        lake.tables.configure(str(self.table), retention=NO_SNAPSHOT_STAYS)
        number = 0
        while not self.done.is_set():
            number += 1
            with lake.writing(str(self.table)) as writing:
                pq.write_table(arrow_rows(number, 5), writing_path(writing.new_path()))
                writing.publish()
            self.ids[number] = list(range(number * 1000, number * 1000 + 5))
            if number % 7 == 0:
                self._retire_oldest(lake)
            self.done.wait(0.02)

    def _retire_oldest(self, lake: Lake) -> None:
        """The oldest partition, even if the compactor has merged it meanwhile; its files show what it held."""
        oldest = lake.list_partitions(str(self.table), limit=1)[0]
        held = [row.file_path for row in lake.files.list(str(self.table)) if row.partition_id == oldest.partition_id]
        gone = {i for path in held for i in pq.read_table(path, columns=["id"])["id"].to_pylist()}
        try:
            done = lake.retire_partitions(
                str(self.table), insert_begin=oldest.begin_insert_time, insert_end=oldest.end_insert_time, dry_run=False, grace_s=0
            )
        except PartitionStraddlesError:  # merged into a longer one meanwhile: not retired this time
            return
        if done.partitions:
            self.ids = {number: ids for number, ids in self.ids.items() if not gone.issuperset(ids)}


def load_and_kill(url: str, warehouse: Path, *, seconds: float, seed: int) -> tuple[list[Writer], int]:
    """Writers write for so long, while the service is killed at random, as it starts and as it works, and started again."""
    rng = random.Random(seed)
    warm_up()
    writers = [Writer(url, warehouse, number) for number in range(2)]
    for writer in writers:
        writer.start()
    deadline, kills = time.monotonic() + seconds, 0
    while time.monotonic() < deadline or kills < 3:
        process = start_service(url, warehouse)
        process.join(rng.choice((rng.uniform(0.0, 1.0), rng.uniform(1.0, 4.0))))
        assert process.is_alive(), "the service ended by itself"
        process.kill()
        process.join(30)
        kills += 1
    for writer in writers:
        writer.done.set()
        writer.join(60)
    return writers, kills


def converge(lake: Lake) -> None:
    """One service without intervention: it needs no help."""
    with lake.service():
        assert lake.drain(120)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seconds", [8.0, pytest.param(300.0, marks=pytest.mark.long)])
def test_a_service_killed_at_random_under_load_loses_nothing(url: str, tmp_path: Path, seconds: float) -> None:
    warehouse = tmp_path / "warehouse"
    with connect(url, warehouse=str(warehouse), service="off") as lake:
        writers, kills = load_and_kill(url, warehouse, seconds=seconds, seed=int(seconds))
        assert kills >= 3
        assert [writer.error for writer in writers] == [None, None]
        converge(lake)

        for writer in writers:
            expected = sorted(i for ids in writer.ids.values() for i in ids)
            assert lake.table(str(writer.table)).row.row_count == len(expected)
            newest = list_snapshots(lake.registry, lake.table(str(writer.table)).table_id)[-1]
            assert sorted(StaticTable.from_metadata(newest.metadata_location).scan().to_arrow()["id"].to_pylist()) == expected
        assert lake.check().clean
