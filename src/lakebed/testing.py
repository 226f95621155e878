"""Real implementations for tests of Lakebed and of programs that use it: a fixed clock, a temporary lake, injected faults."""

from __future__ import annotations

import os
import signal
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import LakebedError
from lakebed.core.times import to_micros
from lakebed.lake import Lake, connect
from lakebed.registry.backends.protocol import CommitUnknownError
from lakebed.registry.files.range_index import bins_of_columns
from lakebed.registry.journal.changes import last_journal_numbers, read_changes
from lakebed.registry.journal.notifications import SWEEP_S, open_hints
from lakebed.registry.tables.counters import recount
from lakebed.registry.tables.lake_tables import read_indexed
from lakebed.storage.protocol import DeleteOutcome, Deletion

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from lakebed.core.events import Event
    from lakebed.core.files import ColumnStatistics
    from lakebed.core.rows import Row
    from lakebed.registry.backends.protocol import Backend, Connection, RawRows, SystemTables, TableHead
    from lakebed.registry.backends.statements import Dialect, Statement, Value
    from lakebed.registry.journal.notifications import Hint
    from lakebed.registry.partitions.publish import Published
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction
    from lakebed.settings import MetadataMode, ServiceMode
    from lakebed.storage.protocol import Storage


FILES_PER_GROUP, _FILES_PER_PARTITION, _PATHS = 100, 10, 100
_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT CAST(0 AS bigint) UNION ALL SELECT i + 1 FROM n WHERE i < :copies - 1)"
_COPY_PARTITION = f"""{_NUMBERS.replace(":copies", ":partitions")} INSERT INTO partitions (id, table_id, scope_id, view_instance_id,
begin_insert_time, end_insert_time, min_event_time, max_event_time, schema_hash, fingerprint, num_rows, file_count, partition_format_version,
updated)
SELECT :first + n.i, p.table_id, p.scope_id, p.view_instance_id, p.begin_insert_time - n.i - 1, p.begin_insert_time - n.i, p.min_event_time,
p.max_event_time, p.schema_hash, p.fingerprint, p.num_rows * {_FILES_PER_PARTITION}, {_FILES_PER_PARTITION}, p.partition_format_version, p.updated
FROM partitions p CROSS JOIN n WHERE p.id = :partition_id"""
_COPY_FILE = f"""{_NUMBERS} INSERT INTO table_files (id, table_id, partition_id, file_name, file_path, file_size, file_type, partition_path,
row_count, checksum, checksum_kind, is_compressed, schema_hash, added_seq, added_group, created_at, modified_at)
SELECT :first_file + n.i, f.table_id, :first + n.i / {_FILES_PER_PARTITION}, f.file_name, f.file_path || '.' || n.i || '.parquet', f.file_size,
f.file_type, 'p=' || (n.i - n.i / {_PATHS} * {_PATHS}), f.row_count, f.checksum, f.checksum_kind, f.is_compressed, f.schema_hash, :stamp,
1 + n.i / {FILES_PER_GROUP}, :now, :now FROM table_files f CROSS JOIN n WHERE f.id = :file_id"""
_COPY_FOOTER = f"""{_NUMBERS} INSERT INTO partition_metadata (file_path, table_id, file_size, metadata, insert_time, partition_format_version,
footer_length, num_rows, checksum)
SELECT m.file_path || '.' || n.i || '.parquet', m.table_id, m.file_size, m.metadata, m.insert_time, m.partition_format_version, m.footer_length,
m.num_rows, m.checksum FROM partition_metadata m JOIN table_files f ON f.file_path = m.file_path CROSS JOIN n WHERE f.id = :file_id"""
_GROUPS = "UPDATE tables SET last_group = :g, committed_group = :g, last_modified = :now WHERE id = :table_id"


def multiply_file(
    registry: Registry, published: Published, copies: int, *, columns: Callable[[int], Sequence[ColumnStatistics]] = lambda _: ()
) -> int:
    """Make a table large in seconds: copies of its one published file, ten to a partition, a hundred to a sealed group, over a hundred paths.

    The first copy has the statistics `columns(0)`. Returns the last group; the journal and the counters are correct.
    """
    table_id, partitions = published.table_id, copies // _FILES_PER_PARTITION
    with registry.write([table_id]) as tx:
        table = tx.tables[table_id]
        first = table.allocate_id(partitions)
        first_file = table.allocate_id(copies)
        table.last_group = 1 + (copies - 1) // FILES_PER_GROUP
        whose = {"file_id": published.first_file_id, "copies": copies}
        tx.run(_COPY_PARTITION, {"partition_id": published.partition_id, "partitions": partitions, "first": first})
        if tx.dialect == "postgresql":  # the rules that files are checked by join them with what was there at the last analysis
            tx.run("ANALYZE partitions")
        tx.run(_COPY_FILE, {**whose, "first": first, "first_file": first_file, "stamp": table.journal_number, "now": tx.now})
        tx.run(_COPY_FOOTER, whose)
        _add_statistics(tx, table_id, [(first_file + i, columns(i)) for i in range(copies)])
        tx.run(_GROUPS, {"g": table.last_group, "now": tx.modified_at(table), "table_id": table_id})
        recount(tx, table)
    return table.last_group


def _add_statistics(tx: Transaction, table_id: int, numbered: Sequence[tuple[int, Sequence[ColumnStatistics]]]) -> None:
    indexed = read_indexed(tx, table_id)
    for start in range(0, len(numbered), 10_000):
        some = numbered[start : start + 10_000]
        stored = [(i, c.field_id, c.null_count, c.value_count, c.lower, c.upper) for i, columns in some for c in columns]
        bins = [entry for i, columns in some for entry in bins_of_columns(table_id, i, columns, indexed)]
        if stored:
            tx.insert("file_columns", ("file_id", "field_id", "null_count", "value_count", "lower", "upper"), stored)
        if bins:
            tx.insert("file_ranges", ("id", "scope", "level", "prefix"), bins)


class FixedClock:
    """Stands still until it is advanced; starts at an aware datetime."""

    def __init__(self, start: datetime) -> None:
        self.micros = to_micros(start)

    def __call__(self) -> int:
        return self.micros

    def advance(self, *, seconds: float) -> None:
        self.micros += int(seconds * 1_000_000)


@contextmanager
def temporary_lake(
    url: str | None = None,
    *,
    clock: FixedClock | None = None,
    spark_options: Mapping[str, str] | None = None,
    metadata_mode: MetadataMode | None = None,
    service: ServiceMode | None = None,
    commit_timeout_s: float | None = None,
) -> Iterator[Lake]:
    """A lake in a temporary directory, on SQLite unless `url` names another registry."""
    with TemporaryDirectory(prefix="lakebed-") as directory:
        registry_url = url or f"sqlite:///{directory}/lake.db"
        place = str(Path(directory) / "warehouse")
        with connect(
            registry_url, warehouse=place, clock=clock, spark_options=spark_options, metadata_mode=metadata_mode, service=service,
            commit_timeout_s=commit_timeout_s,
        ) as lake:  # fmt: skip
            yield lake


@dataclass(slots=True)
class Steps:
    """Counts what a registry sends to its database and does `act` just before step number `at` (from 1)."""

    at: int = 0
    act: Callable[[str], None] = field(default=lambda _: None)
    done: list[str] = field(default_factory=list)

    def reach(self, what: str) -> None:
        self.done.append(what)
        if len(self.done) == self.at:
            self.act(what)


def kill_self(_: str) -> None:
    """As a power cut would: nothing is flushed, closed or caught."""
    os.kill(os.getpid(), signal.SIGKILL)


class SteppedConnection:
    """A real connection that announces every statement."""

    def __init__(self, real: Connection, steps: Steps) -> None:
        self.real, self._steps = real, steps

    @property
    def dialect(self) -> Dialect:
        return self.real.dialect

    @property
    def closed(self) -> bool:
        return self.real.closed

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> RawRows:
        self._steps.reach(sql)
        return self.real.query(sql, params)

    def query_locked(self, sql: str, params: Mapping[str, Any] | None = None) -> RawRows:
        self._steps.reach(sql)
        return self.real.query_locked(sql, params)

    def lock_key(self, room: int, key: str = "") -> None:
        self._steps.reach(f"lock {room}")
        self.real.lock_key(room, key)

    def run(self, sql: str, params: Mapping[str, Any] | None = None) -> int:
        self._steps.reach(sql)
        return self.real.run(sql, params)

    def send(self, sql: str, params: Mapping[str, Any] | None = None) -> None:
        self._steps.reach(sql)
        self.real.send(sql, params)

    def insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Sequence[Value]]) -> None:
        self._steps.reach(f"insert {table}")
        self.real.insert(table, columns, rows)

    def execute_batch(self, statements: Sequence[Statement]) -> None:
        self._steps.reach("batch")
        self.real.execute_batch(statements)

    def run_many(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        self._steps.reach(sql)
        self.real.run_many(sql, rows)

    def close(self) -> None:
        self.real.close()


class SteppedBackend:
    """A real backend whose every statement, begin and commit is a step: `Registry(SteppedBackend(backend, steps))`."""

    def __init__(self, real: Backend, steps: Steps) -> None:
        self.real, self.steps = real, steps

    @property
    def dialect(self) -> Dialect:
        return self.real.dialect

    @property
    def shown_url(self) -> str:
        return self.real.shown_url

    @property
    def catalog_url(self) -> str:
        return self.real.catalog_url

    @property
    def timeout_s(self) -> float:
        return self.real.timeout_s

    @property
    def is_server(self) -> bool:
        return self.real.is_server

    @property
    def system(self) -> SystemTables:
        return self.real.system

    def is_empty(self) -> bool:
        return self.real.is_empty()

    def create(self) -> None:
        self.real.create()

    def is_alone(self, idle: Sequence[Connection]) -> bool:
        return self.real.is_alone([_real(connection) for connection in idle])

    def migrating(self) -> AbstractContextManager[None]:
        return self.real.migrating()

    def connect(self) -> Connection:
        return SteppedConnection(self.real.connect(), self.steps)

    def begin_write(self, connection: Connection, table_ids: Sequence[int]) -> tuple[list[TableHead], int | None]:
        self.steps.reach("begin")
        return self.real.begin_write(_real(connection), table_ids)

    def begin_read(self, connection: Connection) -> None:
        self.real.begin_read(_real(connection))

    def end_read(self, connection: Connection) -> None:
        self.real.end_read(_real(connection))

    def commit(self, connection: Connection) -> None:
        """A typed error before the commit is a refusal, which leaves nothing open; one behind it is an answer that was lost."""
        try:
            self.steps.reach("commit")
        except LakebedError:
            self.real.rollback(_real(connection))
            raise
        self.real.commit(_real(connection))
        self._answer()

    def call(self, connection: Connection, sql: str, values: Sequence[Any]) -> Any:
        self.steps.reach("call")
        answer = self.real.call(_real(connection), sql, values)
        self._answer()
        return answer

    def _answer(self) -> None:
        try:
            self.steps.reach("committed")
        except LakebedError as exc:
            raise CommitUnknownError from exc

    def rule_out(self, connection: Connection) -> None:
        self.real.rule_out(_real(connection))

    def rollback(self, connection: Connection) -> None:
        self.real.rollback(_real(connection))

    def script(self, connection: Connection, statements: Sequence[str]) -> None:
        self.real.script(_real(connection), statements)

    def close_all(self, idle: Sequence[Connection]) -> None:
        self.real.close_all([_real(connection) for connection in idle])

    def close(self) -> None:
        self.real.close()


def _real(connection: Connection) -> Connection:
    return connection.real if isinstance(connection, SteppedConnection) else connection


@dataclass(slots=True)
class StubbornStorage:
    """A real storage that refuses to delete some paths until `refused` is emptied: `Lake(lake.registry, StubbornStorage(lake.storage))`."""

    real: Storage
    refused: set[str] = field(default_factory=set)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def delete(self, paths: Sequence[str]) -> list[DeleteOutcome]:
        done = {outcome.path: outcome for outcome in self.real.delete([path for path in paths if path not in self.refused])}
        refusal = "throttled: try again later"
        return [done.get(path) or DeleteOutcome(path=path, result=Deletion.FAILED, reason=refusal) for path in paths]


class Follower:
    """All changes of all tables from given positions on, per table in order. Positions live with the caller."""

    def __init__(self, registry: Registry, positions: dict[int, int] | None = None) -> None:
        self._registry = registry
        self.positions = dict(positions or {})
        self._hints = open_hints(registry)

    def poll(self) -> list[Event[Row]]:
        """What is there now."""
        found: list[Event[Row]] = []
        for table_id, last in last_journal_numbers(self._registry).items():
            while (after := self.positions.get(table_id, 0)) < last:
                changes = read_changes(self._registry, table_id, after=after)
                if not changes:
                    break
                found.extend(changes)
                self.positions[table_id] = changes[-1].sequence
        return found

    def follow(self, stop: threading.Event) -> Iterator[Event[Row]]:
        """Every change, as soon as it is committed, until `stop` is set."""
        while not stop.is_set():
            yield from self.poll()
            self._hints.wait(SWEEP_S)

    def wait(self, timeout_s: float) -> Hint | None:
        return self._hints.wait(timeout_s)

    def close(self) -> None:
        self._hints.close()
