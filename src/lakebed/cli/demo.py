"""`lakebed demo`: the whole of what is there, on real files, one readable line per step."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from lakebed.core import bounds
from lakebed.core.errors import LakebedError
from lakebed.core.types import Primitive
from lakebed.parquet.arrow_schema import to_arrow
from lakebed.registry.plans import ColumnRange
from lakebed.registry.wakeup import Follower
from lakebed.testing import FixedClock, temporary_lake

if TYPE_CHECKING:
    from rich.console import Console

    from lakebed.core.times import TimeRange
    from lakebed.lake import Lake
    from lakebed.registry.publish import Published

_DAY = datetime(2026, 3, 1, tzinfo=UTC)
_TABLE = "shop.orders"
_ROWS = 20_000
_SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("customer", pa.string()), ("amount", pa.float64())])


def run_demo(out: Console) -> bool:
    """Print the story; whether the lake was clean at its end."""
    clock = FixedClock(_DAY)
    started = time.perf_counter()
    with temporary_lake(clock=clock) as lake:
        teller = _Teller(out, lake, clock)
        clean = teller.tell()
    out.print(f"\n[bold]done in {time.perf_counter() - started:.1f} s[/]; the lake was temporary and is gone")
    return clean


class _Teller:
    def __init__(self, out: Console, lake: Lake, clock: FixedClock) -> None:
        self.out, self.lake, self.clock = out, lake, clock
        self.hours: list[Published] = []

    def tell(self) -> bool:
        self.out.print(f"[bold]Lakebed[/]: a lake in a temporary directory, registry {self.lake.registry.dialect}\n")
        self.lake.create_table(_TABLE, _SCHEMA, event_time="ts", index=["id"])
        self.say("create", f"table {_TABLE}, event time ts, 4 columns with field ids")
        self.insert_hours()
        self.fail_a_write()
        self.show_journal()
        self.plan_a_query()
        self.replace_and_retire()
        self.clean_up()
        return self.check()

    def say(self, step: str, text: str) -> None:
        self.out.print(f"  [cyan]{step:<9}[/] {text}", soft_wrap=True)

    def insert_hours(self) -> None:
        started = time.perf_counter()
        for hour in range(6):
            self.hours.append(self.write(hour))
            self.clock.advance(seconds=3600)
        row = self.lake.list_tables()[0]
        self.say(
            "insert",
            f"6 hourly inserts of real Parquet: {row.row_count:,} rows, {row.file_count} files, {row.total_size / 1e6:.1f} MB "
            f"in {time.perf_counter() - started:.2f} s, each one registry transaction",
        )

    def write(self, hour: int, *, insert_range: TimeRange | None = None, replacing: frozenset[int] = frozenset()) -> Published:
        arrow_schema = to_arrow(self.lake.table(_TABLE).schema)
        with self.lake.writing(_TABLE) as writing:
            for half in range(2):
                first = (hour * 2 + half) * _ROWS
                moments = [_DAY + timedelta(hours=hour, minutes=30 * half, milliseconds=80 * i) for i in range(_ROWS)]
                columns = [
                    range(first, first + _ROWS),
                    moments,
                    [f"customer {i % 97}" for i in range(_ROWS)],
                    [i * 0.01 for i in range(_ROWS)],
                ]
                path = Path(writing.new_path())
                path.parent.mkdir(parents=True, exist_ok=True)
                pq.write_table(pa.table([list(c) for c in columns], schema=arrow_schema), path, compression="zstd")
            return writing.publish(insert_range=insert_range, replacing=replacing, grace_us=3600 * 1_000_000)

    def fail_a_write(self) -> None:
        try:
            with self.lake.writing(_TABLE) as writing:
                path = Path(writing.new_path())
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"PAR1 torn in the middle")
                writing.publish()
        except LakebedError as error:
            gone = not path.exists()
            self.say(
                "refuse", f"a torn file: [yellow]{error.code}[/], its directory is {'gone' if gone else 'STILL THERE'}, the table unchanged"
            )

    def show_journal(self) -> None:
        follower = Follower(self.lake.registry)
        changes = follower.poll()
        follower.close()
        shown = Table("number", "table", "operation", "what", title="the last changes of the journal", title_justify="left")
        for change in changes[-4:]:
            shown.add_row(str(change.sequence), change.table, change.operation, _describe(change.data))
        self.say("journal", f"{len(changes)} typed changes, numbered without a gap from {changes[0].sequence} to {changes[-1].sequence}")
        self.out.print(shown)

    def plan_a_query(self) -> None:
        long = Primitive(name="long")
        exact = bounds.encode(long, 123_456)
        wanted = ColumnRange(field_id=1, lower=exact, upper=exact, lower_coordinate=123_456.0, upper_coordinate=123_456.0)
        started = time.perf_counter()
        plan = self.lake.plan(_TABLE, ranges=[wanted])
        took = (time.perf_counter() - started) * 1e3
        self.say("plan", f"id = 123456 needs {len(plan.paths)} of 12 files, found in {took:.2f} ms without touching one")

    def replace_and_retire(self) -> None:
        planned = self.lake.plan(_TABLE)
        last = self.hours.pop()
        self.write(5, replacing=frozenset({last.partition_id}))
        self.say("replace", "the last hour, by compare-and-swap: its files are queued, the new ones live, in one transaction")
        for hour in self.hours[:2]:
            begin, end = hour.insert_range.begin, hour.insert_range.end
            self.retire(begin, end)
        for path in planned.paths:
            self.lake.load_partition_metadata(path)
        row = self.lake.list_tables()[0]
        self.say(
            "retire",
            f"two hours; {row.file_count} files stay live. A reader that planned before still loads all {len(planned.paths)} footers",
        )

    def retire(self, begin: int, end: int) -> None:
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        window = [epoch + timedelta(microseconds=at) for at in (begin, end)]
        self.lake.retire_partition(_TABLE, insert_begin=window[0], insert_end=window[1], grace_s=3600)

    def clean_up(self) -> None:
        early = self.lake.delete_expired_temporary_files()
        self.clock.advance(seconds=2 * 3600)
        late = self.lake.delete_expired_temporary_files()
        self.say(
            "clean",
            f"{early.deleted} files deleted inside the grace period, {late.deleted} after it ({late.bytes_freed / 1e6:.1f} MB), footers with them",
        )

    def check(self) -> bool:
        report = self.lake.check(deep=True)
        self.say(
            "check", f"{'[green]clean[/]' if report.clean else '[red]NOT clean[/]'}: {len(report.checked)} rules, every file read whole"
        )
        for finding in report.findings:
            self.out.print(f"    {finding.rule}: {finding.message}", markup=False)
        shown = Table("slice", "rows", "files", "bytes", "events", title=f"{_TABLE} at the end", title_justify="left")
        for p in self.lake.list_partitions(_TABLE):
            events = f"{p.min_event_time:%H:%M} to {p.max_event_time:%H:%M}" if p.min_event_time and p.max_event_time else "none"
            shown.add_row(f"{p.begin_insert_time:%F %T}", f"{p.num_rows:,}", str(p.file_count), f"{p.file_size:,}", events)
        self.out.print(shown)
        return report.clean


def _describe(row: object) -> str:
    count = getattr(row, "row_count", None)
    name = getattr(row, "file_name", None) or getattr(row, "name", "")
    return f"{name} {count:,} rows" if count is not None else str(name)
