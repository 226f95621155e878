"""`lakebed demo`: a day of telemetry through the whole lake, on real Spark, one line of output per step."""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Column, Table

from lakebed.cli.demo.service import running
from lakebed.components.compactor import CompactorOptions
from lakebed.core.errors import LakebedError
from lakebed.testing import FixedClock, temporary_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from rich.console import Console

    from lakebed.lake import Lake

_DAY = datetime(2026, 3, 1, tzinfo=UTC)
_HOURS = 24
_QUIET_HOUR = 3  # without errors: its slice is empty
_ENTRIES, _SAMPLES = 20_000, 10_000
_PATIENCE_S = 60.0
_BY_HAND = CompactorOptions(small_files=1_000_000)  # the demo compacts by a call
_SPARK = {
    "spark.master": "local[2]", "spark.sql.shuffle.partitions": "2", "spark.log.level": "OFF",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # the demo is too short for Java's second compiler to pay off
}  # fmt: skip
_PROCESSES, _LOGS, _METRICS = "ops.processes", "ops.log_entries", "ops.metrics"
_MINUTES, _BY_SERVICE = "ops.errors_by_minute", "ops.errors_by_service"

_MINUTES_SQL = f"""SELECT date_trunc('minute', e.ts) AS minute, p.service, count(*) AS errors
FROM {_LOGS} e JOIN {_PROCESSES} p ON p.process_id = e.process_id WHERE e.level = 'ERROR' GROUP BY 1, 2"""
_MINUTES_COMBINE = "SELECT minute, service, sum(errors) AS errors FROM partials GROUP BY 1, 2"
_SERVICE_SQL = f"SELECT service, sum(errors) AS errors, max(minute) AS last_seen FROM {_MINUTES} GROUP BY 1"
_SERVICE_COMBINE = "SELECT service, sum(errors) AS errors, max(last_seen) AS last_seen FROM partials GROUP BY 1"


def run_demo(out: Console) -> bool:
    """Run the steps and print them. Return whether the lake was clean at the end."""
    clock = FixedClock(_DAY)
    started = time.perf_counter()
    with temporary_lake(clock=clock, spark_options=_SPARK, service="off") as lake:
        clean = _Demo(out, lake, clock).run()
        lake.spark.stop()
    out.print(f"\n[bold]done in {time.perf_counter() - started:.1f} s[/]; the temporary lake was deleted")
    return clean


class _Demo:
    def __init__(self, out: Console, lake: Lake, clock: FixedClock) -> None:
        self.out, self.lake, self.clock = out, lake, clock

    def run(self) -> bool:
        self.out.print(f"[bold]Lakebed[/]: a lake in a temporary directory, registry {self.lake.registry.dialect}\n")
        self.start()
        with self.lake.service(compactor_options=_BY_HAND, maintenance=False):
            self.create()
            self.insert_a_day()
            self.publish()
            self.fail_a_write()
            self.materialize()
            self.merge()
            self.query()
            self.evolve()
            self.compact()
            self.travel()
            self.redefine()
            self.clean_up()
        self.kill_a_service()
        return self.check()

    @contextmanager
    def step(self, name: str) -> Iterator[list[str]]:
        """One line when the step is done; a spinner meanwhile, on a terminal."""
        said: list[str] = []
        began = time.perf_counter()
        with self.out.status(f"{name} ..."):
            yield said
        self.out.print(f"  [cyan]{name:<9}[/] {' '.join(said)} [dim]({time.perf_counter() - began:.1f} s)[/]", soft_wrap=True)

    def start(self) -> None:
        with self.step("spark") as said:
            said.append(f"{self.lake.spark.version}, local, started when first needed")

    def create(self) -> None:
        with self.step("create") as said:
            spark = self.lake.spark
            hosts = spark.range(60).selectExpr(
                "id AS process_id", "concat('service-', id % 6) AS service", "concat('host-', id % 10) AS host"
            )
            self.lake.create_table(_PROCESSES, like=hosts)
            self.lake.create_table(_LOGS, like=self.log_entries(0), event_time="ts", partition_by=["level"])
            self.lake.create_table(_METRICS, like=self.metrics(0), event_time="ts")
            self.lake.insert(_PROCESSES, hosts)
            said.append(f"{_PROCESSES}, {_LOGS} (partitioned by level), {_METRICS}: schemas from DataFrames, field ids at every depth")

    def log_entries(self, hour: int) -> DataFrame:
        level = "'INFO'" if hour == _QUIET_HOUR else "CASE WHEN id % 50 = 7 THEN 'ERROR' WHEN id % 10 = 3 THEN 'WARN' ELSE 'INFO' END"
        return self.lake.spark.range(_ENTRIES).selectExpr(
            f"{_moment(hour, _ENTRIES)} AS ts", "id % 60 AS process_id", f"{level} AS level", "concat('message ', id % 997) AS message"
        )

    def metrics(self, hour: int) -> DataFrame:
        return self.lake.spark.range(_SAMPLES).selectExpr(
            f"{_moment(hour, _SAMPLES)} AS ts", "id % 60 AS process_id", "concat('cpu.', id % 4) AS name", "(id % 100) / 100D AS value"
        )

    def insert_a_day(self) -> None:
        with self.step("insert") as said:
            for hour in range(_HOURS):
                self.lake.insert(_LOGS, self.log_entries(hour))
                self.lake.insert(_METRICS, self.metrics(hour))
                self.clock.advance(seconds=3600)
            rows = {f"{t.database}.{t.name}": t for t in self.lake.tables.list()}
            total = sum(t.row_count for t in rows.values())
            files = sum(t.file_count for t in rows.values())
            said.append(f"{2 * _HOURS} hourly batches: {total:,} rows in {files} files, each batch one registry transaction")

    def publish(self) -> None:
        with self.step("publish") as said:
            self.lake.drain(_PATIENCE_S)
            snapshots = self.lake.snapshots(_LOGS)
            said.append(
                f"{_LOGS} has {len(snapshots)} Iceberg snapshots, the newest with {snapshots[-1].rows:,} rows: every engine reads it"
            )

    def compact(self) -> None:
        with self.step("compact") as said:
            plan = self.lake.compact(_METRICS, dry_run=True).plan
            done = self.lake.compact(_METRICS)
            again = self.lake.compact(_METRICS)
            said.append(
                f"{_METRICS}: {plan.files} small files into {done.files_after}, {done.rows:,} rows compared before the swap; "
                f"a second plan finds {again.files_before} to compact"
            )

    def travel(self) -> None:
        with self.step("travel") as said, self.lake.reading():
            self.lake.drain(_PATIENCE_S)
            first, *_, last = self.lake.snapshots(_METRICS)
            then = self.lake.read(_METRICS, as_of=first.snapshot_id).count()
            now = self.lake.read(_METRICS, as_of=last.snapshot_id).count()
            said.append(f"{_METRICS} at its first snapshot: {then:,} rows; at the newest ({last.operation}): {now:,}")

    def kill_a_service(self) -> None:
        with self.step("kill") as said:
            url, warehouse = f"sqlite:///{self.lake.registry.backend.shown_url.removeprefix('sqlite:///')}", self.lake.storage.paths.root
            with running(url, warehouse, self.clock) as service:
                self.lake.insert(_METRICS, self.metrics(1), evolve=True)
                service.kill()
                service.wait()
            self.lake.insert(_METRICS, self.metrics(2), evolve=True)
            with self.lake.service(compactor_options=_BY_HAND, maintenance=False):
                self.lake.drain(_PATIENCE_S)
            newest = self.lake.snapshots(_METRICS)[-1]
            total = self.lake.table(_METRICS).row.row_count
            said.append(
                f"the service was killed during inserts; the next one continued: {newest.rows:,} rows in Iceberg, {total:,} in the registry"
            )

    def fail_a_write(self) -> None:
        with self.step("refuse") as said:
            before = len(self.lake.files.list(_LOGS))
            try:
                self.lake.insert(_LOGS, self.log_entries(0).selectExpr("*", "raise_error('torn in the middle') AS extra").drop("message"))
            except LakebedError as error:
                said.append(f"a DataFrame that does not fit: [yellow]{error.code}[/].")
            try:
                self.lake.insert(
                    _LOGS, self.log_entries(0).selectExpr("ts", "process_id", "level", "string(raise_error('torn')) AS message")
                )
            except LakebedError as error:
                said.append(f"A job that dies: [yellow]{error.code}[/]; still {before} files, nothing left behind")

    def materialize(self) -> None:
        with self.step("views") as said:
            self.define(_MINUTES_SQL, _MINUTES_COMBINE)
            self.lake.create_view_set(_BY_SERVICE, over=_MINUTES, sql=_SERVICE_SQL, combine=_SERVICE_COMBINE, slice="1h")
            minutes = self.lake.materialize(_MINUTES).raise_failed()
            services = self.lake.materialize(_BY_SERVICE).raise_failed()
            said.append(
                f"{_MINUTES} over the log, {_BY_SERVICE} over that: {minutes.built + services.built} slices built, "
                f"{minutes.empty + services.empty} empty ones recorded as built"
            )

    def define(self, sql: str, combine: str) -> None:
        self.lake.create_view_set(_MINUTES, over=_LOGS, sql=sql, combine=combine, event_time="minute", slice="1h")

    def merge(self) -> None:
        with self.step("merge") as said:
            merged = self.lake.partitions.merge(_LOGS)
            again = self.lake.materialize(_MINUTES)
            said.append(
                f"{merged.partitions_before} hours into {len(merged.runs)}, {merged.files_before} files into {merged.files_after}; "
                f"the views stay fresh: {again.built} slices to build"
            )

    def query(self) -> None:
        text = (
            f"SELECT count(*) AS n FROM {_METRICS} WHERE ts >= TIMESTAMP '2026-03-01 06:00:00Z' AND ts < TIMESTAMP '2026-03-01 08:00:00Z'"
        )
        with self.step("query") as said, self.lake.reading():
            (scan,) = self.lake.explain(text).scans
            (row,) = self.lake.sql(text).collect()
            said.append(
                f"two hours of {_METRICS}: {row['n']:,} rows from {scan.files} of {scan.files_in_table} files, the others were not opened"
            )

    def evolve(self) -> None:
        with self.step("evolve") as said:
            wider = self.metrics(0).selectExpr("*", "concat('host-', process_id % 10) AS host")
            self.lake.insert(_METRICS, wider, evolve=True)
            with self.lake.reading():
                (row,) = self.lake.sql(f"SELECT count(*) AS n, count(host) AS hosts FROM {_METRICS}").collect()
            said.append(f"a column added to {_METRICS}: {row['n'] - row['hosts']:,} old rows read as NULL, none rewritten")

    def redefine(self) -> None:
        with self.step("redefine") as said:
            self.define(_MINUTES_SQL.replace("count(*) AS errors", "count(*) AS errors, min(e.message) AS sample"),
                        "SELECT minute, service, sum(errors) AS errors, min(sample) AS sample FROM partials GROUP BY 1, 2")  # fmt: skip
            built = self.lake.materialize(_MINUTES).raise_failed()
            said.append(
                f"{_MINUTES} with one more column: {built.built + built.empty} slices built beside the old ones, then promoted at once"
            )
        with self.step("retire") as said:
            listed = self.lake.list_incompatible_partitions()
            done = self.lake.retire_incompatible_partitions(dry_run=False)
            said.append(f"{len(listed)} partitions became incompatible; retired {done.non_empty} with rows and {done.empty} empty ones")

    def clean_up(self) -> None:
        with self.step("clean") as said:
            early = self.lake.delete_expired_temporary_files()
            self.clock.advance(seconds=25 * 3600)
            late = self.lake.delete_expired_temporary_files()
            said.append(
                f"{early.deleted} files deleted within the grace period of a day, {late.deleted} after it ({late.bytes_freed / 1e6:.1f} MB)"
            )

    def check(self) -> bool:
        with self.step("check") as said:
            report = self.lake.check(deep=True)
            said.append(f"{'[green]clean[/]' if report.clean else '[red]NOT clean[/]'}: {len(report.checked)} rules, every file read whole")
        for finding in report.findings:
            self.out.print(f"    {finding.rule}: {escape(finding.message)}")
        self.out.print(self.summary())
        return report.clean

    def summary(self) -> Table:
        shown = Table(
            Column("table", no_wrap=True),
            "kind",
            "partitions",
            "empty",
            "files",
            "rows",
            "size",
            title="the lake at the end",
            title_justify="left",
        )
        for t in self.lake.tables.list():
            name = f"{t.database}.{t.name}"
            partitions = self.lake.list_partitions(name)
            empty = sum(p.num_rows == 0 for p in partitions)
            size = f"{t.total_size / 1e3:,.0f} kB"
            shown.add_row(name, t.kind, str(len(partitions)), str(empty), str(t.file_count), f"{t.row_count:,}", size)
        return shown


def _moment(hour: int, rows: int) -> str:
    """The events of one hour, evenly spread."""
    begin = int((_DAY + timedelta(hours=hour)).timestamp()) * 1_000_000
    return f"timestamp_micros({begin} + id * {3_600_000_000 // rows})"
