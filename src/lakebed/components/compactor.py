"""The compactor: events only mark tables where small files accumulate; a few background workers compact them one by one."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never

from lakebed.compaction import CompactionOptions, CompactionResult, Control, Engines, LocalEngine, compact
from lakebed.core.errors import InvalidValueError, LakebedError, UnavailableError
from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, ChangeKind, Component
from lakebed.core.names import TableName
from lakebed.core.rows import TableFiles, TableStats
from lakebed.core.tables.compaction import TARGET_BYTES, Reason
from lakebed.registry.journal.changes import last_journal_number
from lakebed.registry.processes import make_owner
from lakebed.registry.queries.small_files import count_small_files, find_name, has_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.core.events import Event, RegistryTable
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage

logger = logging.getLogger(__name__)

_ANYWAY = "\0"  # in place of a partition path: a reason that statistics do not show
_LONGEST_PAUSES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactorOptions:
    """A table with `small_files` files in one partition path is marked; a compaction that changed nothing is followed by a pause."""

    workers: int = 1
    small_files: int = 16
    hot_s: float = 60.0
    pause_s: float = 30.0
    target_bytes: int = TARGET_BYTES
    max_bytes: int | None = 8 << 30  # per compaction, so that no table occupies a worker for hours

    def __post_init__(self) -> None:
        if self.workers < 1 or self.small_files < 1:
            message = f"workers={self.workers}, small_files={self.small_files}: both must be at least 1"
            raise InvalidValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactorMetrics:
    """The work of this process's workers, and the tables that wait for them."""

    looks: int = 0
    swaps: int = 0
    files_in: int = 0
    files_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: float = 0.0
    conflicts: int = 0
    failures: int = 0
    backlog: int = 0
    working: int = 0


@dataclass(slots=True)
class Backlog:
    """The marked tables, those being compacted, and until when a table rests. Callers pass the time."""

    small_files: int
    pause_s: float
    marked: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    rests_until: dict[int, float] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    busy: set[int] = field(default_factory=set)

    def count(self, table_id: int, partition_path: str, small_files: int) -> None:
        if small_files >= self.small_files:
            self.marked[table_id].add(partition_path)
        else:
            self.clear(table_id, partition_path)

    def mark(self, table_id: int) -> None:
        """Mark the table for one compaction, independent of its statistics."""
        self.marked[table_id].add(_ANYWAY)

    def clear(self, table_id: int, partition_path: str) -> None:
        self.marked[table_id].discard(partition_path)
        if not self.marked[table_id]:
            self.forget(table_id)

    def forget(self, table_id: int) -> None:
        self.marked.pop(table_id, None)
        self.tries.pop(table_id, None)

    def take(self, now: float) -> int | None:
        """The table that has waited longest; it is busy until `done`."""
        due = [(self.rests_until.get(t, 0.0), t) for t in self.marked if t not in self.busy and self.rests_until.get(t, 0.0) <= now]
        if not due:
            return None
        table_id = min(due)[1]
        self.busy.add(table_id)
        self.marked[table_id].discard(_ANYWAY)
        return table_id

    def done(self, table_id: int, *, now: float, changed: bool, again_in_s: float | None = None) -> None:
        """After a compaction. If it changed nothing, the table rests, even if events mark it: pauses grow up to twenty times."""
        self.busy.discard(table_id)
        self.tries[table_id] = 0 if changed else self.tries[table_id] + 1
        pause = 0.0 if changed else min(self.pause_s * 2 ** (self.tries[table_id] - 1), self.pause_s * _LONGEST_PAUSES)
        self.rests_until[table_id] = now + (pause if again_in_s is None else again_in_s)
        if not self.marked.get(table_id):
            self.forget(table_id)

    def next_due_s(self, now: float) -> float | None:
        waits = [max(0.0, self.rests_until.get(t, 0.0) - now) for t in self.marked if t not in self.busy]
        return min(waits, default=None)


class Compactor:
    """Bounded workers that yield to writers. `is_active` says whether this process runs the components."""

    def __init__(
        self,
        registry: Registry,
        storage: Storage,
        *,
        engines: Engines | None = None,
        options: CompactorOptions | None = None,
        is_active: Callable[[], bool] = lambda: True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry, self._storage, self._options = registry, storage, options or CompactorOptions()
        self._engines = engines or Engines(local=LocalEngine(storage=storage))
        self._is_active, self._monotonic = is_active, monotonic
        self._changed = threading.Condition()
        self._backlog = Backlog(small_files=self._options.small_files, pause_s=self._options.pause_s)
        self._metrics = CompactorMetrics()
        self._damaged: dict[int, frozenset[int]] = {}  # per table: not tried again at every compaction
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    # -- as Astha sees it ---------------------------------------------------------------------

    def get_subscribed_tables(self) -> frozenset[RegistryTable]:
        return COMPONENT_SUBSCRIPTIONS[Component.COMPACTOR]

    def on_event(self, event: Event[TableFiles | TableStats]) -> None:
        with self._changed:
            match event.data:
                case TableStats() if event.operation is ChangeKind.DELETE:
                    self._backlog.clear(event.table_id, event.data.partition_path)
                case TableStats(partition_path=path, small_file_count=count):
                    self._backlog.count(event.table_id, path, count)
                case TableFiles(retired_seq=None, file_type="json") if (
                    event.operation is ChangeKind.INSERT and self._engines.spark is not None
                ):
                    self._backlog.mark(event.table_id)
                case TableFiles():
                    pass  # the statistics of its partition path decide
                case unreachable:
                    assert_never(unreachable)
            self._changed.notify_all()

    def on_refresh(self, table_id: int) -> int:
        with self._registry.read() as reader:
            mark, counts, json = last_journal_number(reader, table_id), count_small_files(reader, table_id), has_json(reader, table_id)
        with self._changed:
            self._backlog.forget(table_id)
            for path, count in counts.items():
                self._backlog.count(table_id, path, count)
            if json and self._engines.spark is not None:
                self._backlog.mark(table_id)
            self._changed.notify_all()
        return mark

    def on_health(self) -> None:
        """Replaces workers that died, and reports them."""
        with self._changed:
            dead = [] if self._stopping.is_set() else [t for t in self._threads if not t.is_alive()]
            for thread in dead:
                self._threads.remove(thread)
                self._add_worker()
        if dead:
            message = f"{len(dead)} compaction worker(s) crashed and were restarted; see the log"
            raise UnavailableError(message)

    # -- workers ------------------------------------------------------------------------------

    def start(self) -> None:
        with self._changed:
            self._stopping.clear()
            while len(self._threads) < self._options.workers:
                self._add_worker()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Cancels running compactions, which leave no trace, and waits for the workers."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
            threads, self._threads = self._threads, []
        deadline = self._monotonic() + timeout_s
        for thread in threads:
            thread.join(max(0.0, deadline - self._monotonic()))

    def metrics(self) -> CompactorMetrics:
        with self._changed:
            busy = len(self._backlog.busy)
            return replace(self._metrics, backlog=len(self._backlog.marked.keys() - self._backlog.busy), working=busy)

    def run_once(self) -> CompactionResult | None:
        """Compact one due table in this thread; None if there is none."""
        with self._changed:
            table_id = self._backlog.take(self._monotonic())
        return None if table_id is None else self._look(table_id)

    def _add_worker(self) -> None:
        thread = threading.Thread(target=self._work, name=f"lakebed-compactor-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while not self._stopping.is_set():
            if self._is_active() and self.run_once() is not None:
                continue
            with self._changed:
                if not self._stopping.is_set():
                    self._changed.wait(min(1.0, self._backlog.next_due_s(self._monotonic()) or 1.0) if self._is_active() else 1.0)

    def _look(self, table_id: int) -> CompactionResult | None:
        result: CompactionResult | None = None
        try:
            result = self._compact(table_id)
        except LakebedError as exc:
            extra = {"action": "compact", "table_id": table_id, "code": exc.code, "reason": str(exc)}
            logger.warning("a compaction failed; its table rests", extra=extra)
        finally:
            self._settle(table_id, result)
        return result

    def _compact(self, table_id: int) -> CompactionResult | None:
        name = find_name(self._registry, table_id)
        if name is None:
            with self._changed:
                self._backlog.forget(table_id)
            return None
        asked = self._options
        wanted = CompactionOptions(
            target_bytes=asked.target_bytes,
            hot_s=asked.hot_s,
            max_bytes=asked.max_bytes,
            balanced=True,
            leaving=self._damaged.get(table_id, frozenset()),
        )
        control = Control(actor=make_owner("compactor"), cancelled=self._stopping.is_set)
        done = compact(self._registry, self._storage, TableName(*name), wanted, engines=self._engines, control=control)
        if done.damaged:
            self._damaged[table_id] = wanted.leaving | {file.file_id for file in done.damaged}
        return done

    def _settle(self, table_id: int, result: CompactionResult | None) -> None:
        """No event announces that a slice has become cold or that a limit ended a compaction early, so the table is marked again."""
        with self._changed:
            self._metrics = _add(self._metrics, result)
            changed, again_in_s = False, None
            if result is not None and not result.cancelled:
                changed = bool(result.runs)
                is_hot, is_cut = result.plan.count(Reason.HOT) > 0, changed and result.plan.count(Reason.OVER_LIMIT) > 0
                if is_hot or is_cut:
                    self._backlog.mark(table_id)
                again_in_s = self._options.hot_s if is_hot and not is_cut and not result.stopped else None
            self._backlog.done(table_id, now=self._monotonic(), changed=changed, again_in_s=again_in_s)
            self._changed.notify_all()


def _add(metrics: CompactorMetrics, result: CompactionResult | None) -> CompactorMetrics:
    if result is None:
        return replace(metrics, looks=metrics.looks + 1, failures=metrics.failures + 1)
    return replace(
        metrics,
        looks=metrics.looks + 1,
        swaps=metrics.swaps + len(result.runs),
        files_in=metrics.files_in + result.files_before,
        files_out=metrics.files_out + result.files_after,
        bytes_in=metrics.bytes_in + result.bytes_before,
        bytes_out=metrics.bytes_out + result.bytes_after,
        seconds=metrics.seconds + result.seconds,
        conflicts=metrics.conflicts + result.conflicts,
    )
