"""What is done to a lake while its process is struck at a system call."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from killing import LATER, NOW, Stage
from sqlalchemy import text

from builders import ORDERS, arrow_rows, insert_hours, seal_pending, within, write_partition, writing_path
from ice import open_ice
from lakebed.compaction import compact
from lakebed.core.errors import LakebedError
from lakebed.lake import Lake, connect
from lakebed.opening import adopt_migrated
from lakebed.registry.files.footers import load_footer
from lakebed.registry.migrate import _engine, migrate_registry, upgrade
from lakebed.testing import FixedClock
from retiring import retire_by_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from system_calls import Reporter

    from lakebed.staging.write import Writing

PAST_GRACE, CLAIMS_RAN_OUT = NOW + timedelta(hours=25), NOW + timedelta(hours=26)
DONE, UNKNOWN, OWN = "done", "outcome_unknown", "the writer's own error"


def ids_of(number: int, rows: int = 50) -> frozenset[int]:
    return frozenset(range(number * 1000, number * 1000 + rows))


@dataclass(frozen=True, slots=True)
class Effect:
    """What one call does to the rows of the table, all of it or nothing."""

    adds: frozenset[int] = frozenset()
    removes: frozenset[int] = frozenset()

    def is_in(self, found: frozenset[int]) -> bool:
        """Whether it happened; half of it is a failure."""
        happened = self.adds <= found and not self.removes & found
        assert happened or (not self.adds & found and self.removes <= found), f"half of {self} happened"
        return happened


class OwnWriteError(Exception):
    """The writer's own file could not be written."""


@dataclass(slots=True)
class Attempts:
    """Calls one after the other, whatever becomes of each; every outcome is reported before the next begins."""

    report: Reporter

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        try:
            yield
        except LakebedError as exc:
            self.report(what, exc.code, str(exc))
        except OwnWriteError as exc:
            self.report(what, OWN, str(exc))
        else:
            self.report(what, DONE, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """An action on the lake that `fill` made, at a time, and what each of its calls does to the rows."""

    fill: Callable[[Lake], object]
    act: Callable[[Lake, Attempts], None]
    effects: Mapping[str, Effect] = field(default_factory=dict)
    at: datetime = NOW
    recovered_at: datetime = LATER
    is_migration: bool = False


# -- the actions ------------------------------------------------------------------------------------


def write_file(writing: Writing, number: int) -> None:
    try:
        pq.write_table(arrow_rows(number), writing_path(writing.new_path()))
    except OSError as exc:
        raise OwnWriteError(str(exc)) from exc


def insert(lake: Lake, attempts: Attempts) -> None:
    with attempts.of("insert 7"), lake.writing(str(ORDERS)) as writing:
        write_file(writing, 7)
        write_file(writing, 8)
        writing.publish()
    with attempts.of("insert 9"), lake.writing(str(ORDERS)) as writing:
        write_file(writing, 9)
        writing.publish()


def publish(lake: Lake, attempts: Attempts) -> None:
    """In the place of the first partition, then beside it with a slice of its own."""
    with attempts.of("publish 7"), lake.writing(str(ORDERS)) as writing:
        write_file(writing, 7)
        writing.publish(replacing=frozenset({min(p.partition_id for p in lake.list_partitions(str(ORDERS)))}))
    with attempts.of("publish 8"), lake.writing(str(ORDERS)) as writing:
        write_file(writing, 8)
        writing.publish(insert_range=insert_hours(1, 2))


def commit(lake: Lake, attempts: Attempts) -> None:
    for what in ("commit", "commit again"):
        with attempts.of(what), closing(open_ice(lake)) as ice:
            ice.committer.advance(1)


def compact_orders(lake: Lake, attempts: Attempts) -> None:
    with attempts.of("compact"):
        compact(lake.registry, lake.storage, str(ORDERS))


def retire(lake: Lake, attempts: Attempts) -> None:
    for number, found in enumerate(sorted(p.partition_id for p in lake.list_partitions(str(ORDERS))), start=1):
        with attempts.of(f"retire {number}"):
            within(lake.registry, lambda tx, chosen={found}: retire_by_ids(tx, ORDERS, chosen))  # type: ignore[misc]


def clean_up(lake: Lake, attempts: Attempts) -> None:
    with attempts.of("clean up"):
        lake.delete_expired_temporary_files(batch_size=2)


def insert_with_spark(lake: Lake, attempts: Attempts) -> None:
    rows = lake.spark.range(7000, 7050).selectExpr("id", "timestamp_micros(1767225607000000 + id) AS ts", "double(id) AS amount")
    for what in ("insert", "insert again"):
        with attempts.of(what):
            lake.insert(str(ORDERS), rows.selectExpr(f"id + {len(what) * 1000} AS id", "ts", "amount"))


# -- the lakes --------------------------------------------------------------------------------------


def three_partitions(lake: Lake) -> None:
    for number in (1, 2, 3):
        write_partition(lake, number)


def one_committed(lake: Lake) -> None:
    """A snapshot is there; an insert and a retirement wait together."""
    gone = write_partition(lake, 1)
    write_partition(lake, 2)
    seal_pending(lake.registry)
    with closing(open_ice(lake)) as ice:
        ice.advance()
    write_partition(lake, 3)
    within(lake.registry, lambda tx: retire_by_ids(tx, ORDERS, {gone.partition_id}))
    seal_pending(lake.registry)


def four_retired(lake: Lake) -> None:
    for number in (11, 12, 13, 14):
        write_partition(lake, number)
    ids = {p.partition_id for p in lake.list_partitions(str(ORDERS))}
    within(lake.registry, lambda tx: retire_by_ids(tx, ORDERS, ids))
    three_partitions(lake)


SCENES = {
    "insert": Scene(
        fill=three_partitions,
        act=insert,
        effects={"insert 7": Effect(adds=ids_of(7) | ids_of(8)), "insert 9": Effect(adds=ids_of(9))},
    ),
    "publish": Scene(
        fill=three_partitions,
        act=publish,
        effects={"publish 7": Effect(adds=ids_of(7), removes=ids_of(1)), "publish 8": Effect(adds=ids_of(8))},
    ),
    "commit": Scene(fill=one_committed, act=commit),
    "compact": Scene(fill=three_partitions, act=compact_orders),
    "retire": Scene(
        fill=three_partitions,
        act=retire,
        effects={f"retire {number}": Effect(removes=ids_of(number)) for number in (1, 2, 3)},
    ),
    "clean up": Scene(fill=four_retired, act=clean_up, at=PAST_GRACE, recovered_at=CLAIMS_RAN_OUT),
    "migrate": Scene(fill=three_partitions, act=lambda *_: None, is_migration=True),
}
WITH_SPARK = "insert with Spark"
ALL = SCENES | {
    WITH_SPARK: Scene(
        fill=three_partitions,
        act=insert_with_spark,
        effects={what: Effect(adds=ids_of(7 + len(what))) for what in ("insert", "insert again")},
    )
}
_SPARK = {"spark.master": "local[1]", "spark.driver.memory": "1g"}


_OLD_TABLE = """INSERT INTO tables (id, database, name, kind, row_count, file_count, total_size, last_modified, created_at)
VALUES (1, 'shop', 'orders', 'table', 0, 0, 0, 5, 5)"""
_OLD_VERSION = """INSERT INTO table_metadata (table_id, schema_version, schema, schema_hash, format, compression, partition_by, sort_by,
properties, last_modified, created_at, updated_at) VALUES (1, 1, :schema, :hash, 'parquet', 'zstd', '[]', '[]', '{}', 5, 5, 5)"""
_OLD_PARTITION = """INSERT INTO partitions (table_id, view_instance_id, begin_insert_time, end_insert_time, min_event_time, max_event_time,
schema_hash, num_rows, file_path, file_size, file_metadata, updated)
VALUES (1, 'global', :b, :e, :low, :high, :hash, :rows, :path, :size, :footer, 7)"""
_NEW_VERSION = "SELECT schema, schema_hash AS hash FROM table_metadata"
_NEW_PARTITIONS = """SELECT p.begin_insert_time AS b, p.end_insert_time AS e, p.min_event_time AS low, p.max_event_time AS high,
p.schema_hash AS hash, p.num_rows AS rows, f.file_path AS path, f.file_size AS size FROM partitions p JOIN table_files f
ON f.partition_id = p.id ORDER BY p.id"""


def make_old(stage: Stage, url: str) -> Stage:
    """The same files under a registry of the first revision, and a warehouse without a marker."""
    with stage.opened(stage.url) as lake:
        (version,), partitions = lake.registry.query(_NEW_VERSION), lake.registry.query(_NEW_PARTITIONS)
        footers = {row[6]: load_footer(lake.registry, row[6])[:-8] for row in partitions}
        Path(lake.storage.paths.marker).unlink()
    upgrade(url, "0001")
    engine = _engine(url)
    with engine.connect() as connection:
        connection.execute(text(_OLD_TABLE))
        connection.execute(text(_OLD_VERSION), dict(zip(("schema", "hash"), version, strict=True)))
        for row in partitions:
            named = dict(zip(("b", "e", "low", "high", "hash", "rows", "path", "size"), row, strict=True))
            connection.execute(text(_OLD_PARTITION), {**named, "footer": footers[row[6]]})
    engine.dispose()
    old = Stage(databases=stage.databases, directory=stage.directory, url=url)
    old.keep()
    return old


# -- what happens in the struck process -------------------------------------------------------------


def live(report: Reporter, *, name: str, url: str, warehouse: str) -> None:
    """Open the lake, act, close it."""
    scene, attempts = ALL[name], Attempts(report)
    if scene.is_migration:
        with attempts.of("migrate"):
            migrate_registry(url)
            adopt_migrated(url, warehouse)
        return
    try:
        with connect(url, warehouse=warehouse, clock=FixedClock(scene.at), spark_options=_SPARK, create=False) as lake:
            scene.act(lake, attempts)
    except LakebedError as exc:
        report("lake", exc.code, str(exc))
