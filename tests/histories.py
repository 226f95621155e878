"""Histories: the same move made on a registry and on a plain model of it, so that the two can be compared after each."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import pytest

from builders import HOUR, SCHEMA, START, fake_file, grow_schema, insert_hours, logical_dump, make_view, micros_of, promote, stage, within
from lakebed.core.errors import (
    AmbiguousPartitionError,
    FileConflictError,
    InvalidValueError,
    PartitionConflictError,
    PartitionNotFoundError,
    SchemaRefusedError,
    TableExistsError,
    VictimsChangedError,
)
from lakebed.core.files import FileType
from lakebed.core.ids import make_op_id
from lakebed.core.names import TableName
from lakebed.core.partitions import SMALL_FILE_BYTES, NewPartition
from lakebed.core.times import TimeRange, to_micros
from lakebed.registry.groups import list_files_at_group, seal, set_committed_group
from lakebed.registry.journal import read_ends
from lakebed.registry.lake_tables import TableSpec, create_table, require_table
from lakebed.registry.leases import end_reading, hold_for_reading
from lakebed.registry.listing import list_files, list_partitions
from lakebed.registry.operations import Operation
from lakebed.registry.plans import read_plan
from lakebed.registry.publish import publish_partition
from lakebed.registry.retire import Retired, retire_by_ids, retire_by_key, retire_by_range, retire_expired
from lakebed.registry.snapshots import NewSnapshot, add_snapshot, expire_snapshots
from lakebed.registry.temporary_files import claim_expired, finalize_deleted, release_failed

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from lakebed.core.errors import LakebedError
    from lakebed.core.files import NewFile
    from lakebed.registry.engine import Registry
    from lakebed.registry.transaction import Transaction
    from lakebed.testing import FixedClock

NAMES = tuple(TableName("shop", name) for name in ("orders", "daily", "returns"))
INSTANCES = ("global", "tenant-7")
PARTITION_PATHS = ("", "day=1", "day=2")
READERS = ("reader/a", "reader/b")
READABLE = ("serving", "readable")


class FileShape(NamedTuple):
    """What a file to be published looks like; its path and its place in the order are the history's."""

    rows: int = 1
    partition_path: str = ""
    is_large: bool = False
    is_json: bool = False


class Scope(NamedTuple):
    """Inside one, partitions never overlap."""

    instance: str
    schema_hash: str


@dataclass(slots=True, kw_only=True)
class File:
    file_id: int
    path: str
    shape: FileShape
    schema_hash: str
    partition_id: int
    added_seq: int
    retired_seq: int | None = None
    added_group: int | None = None
    removed_group: int | None = None

    @property
    def size_bytes(self) -> int:
        return SMALL_FILE_BYTES if self.shape.is_large else 20_000


@dataclass(slots=True, kw_only=True)
class Partition:
    partition_id: int
    scope: Scope
    insert_range: TimeRange
    event_range: tuple[int, int] | None


@dataclass(slots=True, kw_only=True)
class Table:
    """One lake table as the design says it must be; `iceberg`, `at_group` and `live_at` remember instead of computing."""

    name: TableName
    table_id: int
    is_view: bool
    standings: dict[str, str]
    partitions: dict[int, Partition] = field(default_factory=dict)
    gone: list[int] = field(default_factory=list)
    files: dict[int, File] = field(default_factory=dict)
    finalized: set[int] = field(default_factory=set)
    last_seq: int = 0
    last_slot: int = 0
    last_group: int = 0
    committed_group: int = 0
    iceberg: set[int] = field(default_factory=set)
    at_group: dict[int, frozenset[int]] = field(default_factory=lambda: {0: frozenset()})
    live_at: dict[int, frozenset[int]] = field(default_factory=dict)
    horizon: int = 0
    snapshots: dict[int, int] = field(default_factory=dict)

    @property
    def serving(self) -> str:
        return next(h for h, standing in self.standings.items() if standing == "serving")

    @property
    def staged(self) -> str | None:
        return next((h for h, standing in self.standings.items() if standing == "staged"), None)

    def live(self) -> list[File]:
        return [f for f in self.files.values() if f.retired_seq is None]

    def visible(self) -> list[File]:
        return [f for f in self.live() if self.is_readable(f)]

    def is_readable(self, file: File) -> bool:
        return self.standings[file.schema_hash] in READABLE

    def files_of(self, ids: Iterable[int]) -> list[File]:
        wanted = set(ids)
        return [f for f in self.live() if f.partition_id in wanted]

    def draw_group(self, *, enter: Iterable[File] = (), leave: Iterable[File] = ()) -> int:
        """The next step of the Iceberg history; what it holds from now on is remembered as a set."""
        self.last_group += 1
        for file in enter:
            file.added_group = self.last_group
            self.iceberg.add(file.file_id)
        for file in leave:
            self.iceberg.discard(file.file_id)
        self.at_group[self.last_group] = frozenset(self.iceberg)
        return self.last_group

    def overlaps(self, scope: Scope, wanted: TimeRange, *, apart_from: Iterable[int] = ()) -> bool:
        return any(
            p.scope == scope and p.insert_range.begin < wanted.end and wanted.begin < p.insert_range.end
            for p in self.partitions.values()
            if p.partition_id not in apart_from
        )


@dataclass(slots=True, kw_only=True)
class Queued:
    table: Table
    file: File
    expiration: int
    attempts: int = 0
    claimed_until: int | None = None


class History:
    """Every method is one move: the registry must answer as the model expects, or refuse as it does and change nothing."""

    def __init__(self, registry: Registry, clock: FixedClock) -> None:
        self.registry, self.clock = registry, clock
        self.tables: list[Table] = []
        self.queue: dict[str, Queued] = {}
        self.leases: dict[str, tuple[int, dict[int, int]]] = {}
        self._drawn = 0

    # -- tables and their versions ------------------------------------------------------------

    def create(self, *, is_view: bool) -> None:
        name = NAMES[len(self.tables) % len(NAMES)]
        if len(self.tables) == len(NAMES):
            with self.refused(TableExistsError):
                create_table(self.registry, TableSpec(name=name, schema=SCHEMA))
            return
        spec = TableSpec(name=name, schema=SCHEMA, event_time="ts", index=("id",))
        made = make_view(self.registry, name) if is_view else create_table(self.registry, spec)
        self.tables.append(Table(name=name, table_id=made.table_id, is_view=is_view, standings={made.schema_hash: "serving"}))

    def evolve(self, table: Table) -> None:
        number = len(table.standings)
        grown = grow_schema(self.registry, table.name, column=f"note{number}", field_id=100 + number)
        table.standings |= {table.serving: "readable", grown: "serving"}

    def stage(self, table: Table) -> None:
        made = stage(self.registry, table.name, definition=f"SELECT {self._draw()}")
        if table.staged is not None:
            table.standings[table.staged] = "incompatible"
        table.standings[made] = "staged"

    def promote(self, table: Table) -> None:
        staged = table.staged
        if staged is None:
            with self.refused(InvalidValueError):
                promote(self.registry, "beef", table.name)
            return
        group = promote(self.registry, staged, table.name)
        table.standings |= {h: "incompatible" for h, standing in table.standings.items() if standing in READABLE} | {staged: "serving"}
        leave = [table.files[i] for i in table.iceberg if table.files[i].schema_hash != staged]
        enter = [f for f in table.live() if f.schema_hash == staged and not f.shape.is_json]
        assert group == table.draw_group(enter=enter, leave=leave)
        for file in leave:
            file.removed_group = group

    # -- publishing ---------------------------------------------------------------------------

    def publish(
        self,
        table: Table,
        shapes: Sequence[FileShape],
        *,
        hours: tuple[int, int] | None,
        instance: str = "global",
        use_staged: bool = False,
    ) -> None:
        """A plain insert without `hours`, a window with them; of the version that is being built if asked and there is one."""
        scope = Scope(instance, (table.staged if use_staged else None) or table.serving)
        partition = self._offer(table, shapes, scope, None if hours is None else insert_hours(*hours))
        wanted = partition.insert_range or self._next_slot(table)
        if table.overlaps(scope, wanted):
            with self.refused(PartitionConflictError):
                self._publish(partition)
            return
        self._take_over(table, partition, shapes, frozenset(), frozenset())

    def publish_into_unserved(self, table: Table) -> None:
        unserved = next((h for h, standing in table.standings.items() if standing == "incompatible"), "beef")
        with self.refused(SchemaRefusedError):
            self._publish(self._offer(table, [FileShape()], Scope("global", unserved), None))

    def publish_a_known_path(self, table: Table) -> None:
        """Also one that was retired: no path ever comes back while its row lives."""
        known = next((f for f in table.files.values() if not f.shape.is_json), None)
        if known is None:
            return
        partition = self._offer(table, [FileShape(), FileShape()], Scope("tenant-9", table.serving), None)
        again = replace(partition.files[1], path=known.path)
        with self.refused(FileConflictError):
            self._publish(replace(partition, files=(partition.files[0], again)))

    def swap(self, table: Table, victims: Sequence[Partition], shapes: Sequence[FileShape], *, keep: int = 0) -> None:
        """Replace these partitions of one scope by one that spans them; the first `keep` of their files move into it."""
        ids = frozenset(p.partition_id for p in victims)
        span = TimeRange(begin=min(p.insert_range.begin for p in victims), end=max(p.insert_range.end for p in victims))
        kept = frozenset(f.file_id for f in table.files_of(ids)[:keep])
        partition = self._offer(table, shapes, victims[0].scope, span)
        if table.standings[partition.schema_hash] == "incompatible":
            with self.refused(SchemaRefusedError):
                self._publish(partition, replacing=ids, keeping=kept)
        elif table.overlaps(victims[0].scope, span, apart_from=ids):
            with self.refused(PartitionConflictError):
                self._publish(partition, replacing=ids, keeping=kept)
        else:
            self._take_over(table, partition, shapes, ids, kept)

    def swap_stale(self, table: Table, *, pick: int) -> None:
        """The victims are not those of the plan any more: one partition, or one file to keep, is gone."""
        present = list(table.partitions)[:2]
        gone = table.gone[pick % len(table.gone)] if table.gone else 999
        partition = self._offer(table, [FileShape()], Scope("tenant-9", table.serving), insert_hours(0, 1))
        with self.refused(VictimsChangedError):
            self._publish(partition, replacing=frozenset({*present, gone}))
        left = [f.file_id for f in table.files.values() if f.retired_seq is not None]
        if present:
            with self.refused(VictimsChangedError):
                self._publish(partition, replacing=frozenset(present), keeping=frozenset({left[pick % len(left)] if left else 999}))

    # -- retiring -----------------------------------------------------------------------------

    def retire_key(self, table: Table, partition: Partition, *, name_schema: bool, grace_us: int) -> None:
        twins = [
            p for p in table.partitions.values() if (p.scope.instance, p.insert_range) == (partition.scope.instance, partition.insert_range)
        ]
        schema_hash = partition.scope.schema_hash if name_schema else None

        def move(tx: Transaction) -> Retired:
            return retire_by_key(
                tx,
                table.name,
                instance=partition.scope.instance,
                insert_range=partition.insert_range,
                schema_hash=schema_hash,
                grace_us=grace_us,
            )

        if len(twins) > 1 and not name_schema:
            with self.refused(AmbiguousPartitionError):
                within(self.registry, move, table.name)
        else:
            self._retire(table, [partition], move, grace_us=grace_us)

    def retire_unknown_key(self, table: Table) -> None:
        with self.refused(PartitionNotFoundError):
            within(
                self.registry, lambda tx: retire_by_key(tx, table.name, instance="tenant-9", insert_range=insert_hours(0, 1)), table.name
            )

    def retire_ids(self, table: Table, victims: Sequence[Partition], *, add_gone: bool, exactly: bool, grace_us: int) -> None:
        ids = {p.partition_id for p in victims} | ({table.gone[-1] if table.gone else 999} if add_gone else set())

        def move(tx: Transaction) -> Retired:
            return retire_by_ids(tx, table.name, ids, exactly=exactly, grace_us=grace_us)

        if add_gone and exactly:
            with self.refused(VictimsChangedError):
                within(self.registry, move, table.name)
        else:
            self._retire(table, victims, move, grace_us=grace_us)

    def retire_range(self, table: Table, hours: tuple[int, int], *, instance: str | None, grace_us: int) -> None:
        wanted = insert_hours(*hours)
        touched = [
            p
            for p in table.partitions.values()
            if p.insert_range.begin < wanted.end and wanted.begin < p.insert_range.end and instance in (None, p.scope.instance)
        ]
        inside = [p for p in touched if wanted.begin <= p.insert_range.begin and p.insert_range.end <= wanted.end]
        done = self._retire(
            table, inside, lambda tx: retire_by_range(tx, table.name, wanted, instance=instance, grace_us=grace_us), grace_us=grace_us
        )
        straddles = sorted((p.scope.instance, p.insert_range.begin, p.insert_range.end) for p in touched if p not in inside)
        assert sorted((s.instance, s.insert_range.begin, s.insert_range.end) for s in done.straddles) == straddles

    def retire_old(self, table: Table, *, hour: int, grace_us: int) -> None:
        cutoff = micros_of(START) + hour * HOUR
        old = [p for p in table.partitions.values() if (p.event_range[1] if p.event_range else p.insert_range.end) < cutoff]
        self._retire(table, old, lambda tx: retire_expired(tx, table.name, cutoff=cutoff, grace_us=grace_us), grace_us=grace_us)

    # -- the Iceberg side ---------------------------------------------------------------------

    def seal(self, table: Table) -> None:
        pending = [f for f in table.visible() if f.added_group is None and not f.shape.is_json]
        drawn = within(self.registry, lambda tx: seal(tx, table.name), table.name)
        assert drawn == (table.draw_group(enter=pending) if pending else None)

    def commit_groups(self, table: Table, *, behind: int) -> None:
        """Iceberg reaches a group, never goes back, and the snapshot it makes protects its files until it expires."""
        group, snapshot_id = max(0, table.last_group - behind), self._draw()
        snapshot = NewSnapshot(
            snapshot_id=snapshot_id,
            parent_id=None,
            sequence_number=snapshot_id,
            group_no=group,
            timestamp_ms=self.clock() // 1000,
            manifest_list="m",
            metadata_location="l",
            summary="{}",
            schema_id=0,
            operation="append",
            trigger="test",
        )
        # only forward: a snapshot of an older group could name files that are deleted already
        if group >= table.committed_group:
            within(self.registry, lambda tx: add_snapshot(tx, table.name, snapshot), table.name)
            table.snapshots[snapshot_id] = group
            table.committed_group = group
        within(self.registry, lambda tx: set_committed_group(tx, table.name, group, snapshot_id=snapshot_id), table.name)

    def expire_snapshots(self, table: Table, *, keep: int) -> None:
        old = sorted(table.snapshots)[: len(table.snapshots) - keep]
        assert within(self.registry, lambda tx: expire_snapshots(tx, table.name, old), table.name) == len(old)
        for snapshot_id in old:
            del table.snapshots[snapshot_id]

    # -- readers, time, clean-up --------------------------------------------------------------

    def hold(self, reader: str, tables: Sequence[Table], *, ttl_us: int) -> None:
        until, numbers = self.leases.get(reader, (0, {}))
        numbers = {} if until <= self.clock() else numbers
        numbers = {t.table_id: t.last_seq for t in tables} | numbers
        self.leases[reader] = (self.clock() + ttl_us, numbers)
        assert hold_for_reading(self.registry, reader, [t.table_id for t in tables], owner="test", ttl_us=ttl_us) == numbers

    def end(self, reader: str) -> None:
        end_reading(self.registry, reader)
        self.leases.pop(reader, None)

    def clean(self, *, limit: int, refused: int) -> None:
        """Claim, pretend that storage deleted all but the last `refused` of them, finalize the rest."""
        free = {path for path, queued in self.queue.items() if self._may_delete(queued)}
        claim = claim_expired(self.registry, limit=limit)
        paths = [f.path for f in claim.files]
        assert set(paths) <= free
        assert len(paths) == len(set(paths)) == min(limit, len(free))
        done, failed = paths[: len(paths) - refused], paths[len(paths) - refused :]
        assert finalize_deleted(self.registry, claim, done) == len(done)
        assert finalize_deleted(self.registry, claim, done) == 0
        release_failed(self.registry, claim, failed)
        for path in done:
            self._forget(self.queue.pop(path))
        for queued in (self.queue[path] for path in failed):
            queued.claimed_until = self.clock() + min(3600, 10 << queued.attempts) * 1_000_000
            queued.attempts += 1

    # -- what must be equal after every move --------------------------------------------------

    def note(self) -> None:
        """Remember what is live from the first number of the last transaction on to the one that each journal has reached."""
        ends = read_ends(self.registry)
        for table in self.tables:
            if (reached := ends[table.table_id]) > table.last_seq:
                live = frozenset(f.file_id for f in table.live())
                table.live_at |= {table.last_seq + 1: live, reached: live}
                table.last_seq = reached

    def compare(self) -> None:
        for table in self.tables:
            self._compare_rows(table)
            self._compare_counters(table)
            self._compare_groups(table)
            self._compare_past(table)
        queued = {path: (q.table.table_id, q.expiration, q.attempts, q.claimed_until) for path, q in self.queue.items()}
        rows = self.registry.query("SELECT file_path, table_id, expiration, attempts, claimed_until FROM temporary_files")
        assert {row[0]: tuple(row[1:]) for row in rows} == queued

    def _compare_rows(self, table: Table) -> None:
        assert {
            f.id: (f.file_path, f.partition_id, f.row_count, f.schema_hash, f.added_seq, f.retired_seq, f.added_group, f.removed_group)
            for f in list_files(self.registry, table.table_id, retired=True)
        } == {
            f.file_id: (f.path, f.partition_id, f.shape.rows, f.schema_hash, f.added_seq, f.retired_seq, f.added_group, f.removed_group)
            for f in table.files.values()
        }
        found = {
            p.partition_id: (
                Scope(p.view_instance_id, p.schema_hash),
                TimeRange(begin=to_micros(p.begin_insert_time), end=to_micros(p.end_insert_time)),
                None
                if p.min_event_time is None or p.max_event_time is None
                else (to_micros(p.min_event_time), to_micros(p.max_event_time)),
                (p.num_rows, p.file_count, p.file_size),
            )
            for p in list_partitions(self.registry, table.table_id)
        }
        assert found == {
            i: (p.scope, p.insert_range, p.event_range, _sums(table.files_of([i]))[:2] + _sums(table.files_of([i]))[3:])
            for i, p in table.partitions.items()
        }

    def _compare_counters(self, table: Table) -> None:
        by_path: dict[str, list[File]] = defaultdict(list)
        for file in table.visible():
            by_path[file.shape.partition_path].append(file)
        row = require_table(self.registry, table.name).row
        rows, files, _, size = _sums(table.visible())
        assert (row.row_count, row.file_count, row.total_size) == (rows, files, size)
        assert (row.last_group, row.committed_group) == (table.last_group, table.committed_group)
        sql = "SELECT partition_path, row_count, file_count, small_file_count, total_size FROM table_stats WHERE table_id = :id"
        assert {r[0]: r[1:] for r in self.registry.query(sql, {"id": table.table_id})} == {path: _sums(f) for path, f in by_path.items()}

    def _compare_groups(self, table: Table) -> None:
        for group, held in table.at_group.items():
            found = {f.id for f in list_files_at_group(self.registry, table.table_id, group)}
            assert found == held - table.finalized
            if group >= table.committed_group or group in table.snapshots.values():
                assert found == held, "a file was deleted that Iceberg still needs"

    def _compare_past(self, table: Table) -> None:
        with self.registry.read() as reader:
            assert {f.path for f in table.visible()} == set(read_plan(reader, table.name).paths)
            for number, live in table.live_at.items():
                if number < table.horizon:
                    with pytest.raises(InvalidValueError, match="cannot be read"):
                        read_plan(reader, table.name, as_of=number)
                    continue
                expected = [table.files[i].path for i in live if table.is_readable(table.files[i])]
                assert sorted(read_plan(reader, table.name, as_of=number).paths) == sorted(expected)

    def refused(self, error: type[LakebedError]) -> AbstractContextManager[None]:
        return _Refused(self.registry, error)

    # -- inside -------------------------------------------------------------------------------

    def _draw(self) -> int:
        self._drawn += 1
        return self._drawn

    def _offer(self, table: Table, shapes: Sequence[FileShape], scope: Scope, insert_range: TimeRange | None) -> NewPartition:
        number = self._draw()
        event = micros_of(START) + (number % 12) * HOUR
        return NewPartition(
            table=table.name,
            schema_hash=scope.schema_hash,
            fingerprint=f"{number:032x}",
            files=tuple(self._make_file(shape) for shape in shapes),
            instance=scope.instance,
            insert_range=insert_range,
            event_range=(event - 1000, event) if shapes else None,
        )

    def _make_file(self, shape: FileShape) -> NewFile:
        number = self._draw()
        size = SMALL_FILE_BYTES if shape.is_large else 20_000
        made = fake_file(number, rows=shape.rows, partition_path=shape.partition_path, size_bytes=size)
        made = replace(made, path=f"/warehouse/shop/data/{number:08d}.{'json' if shape.is_json else 'parquet'}")
        return replace(made, file_type=FileType.JSON, footer=None, columns=()) if shape.is_json else made

    def _next_slot(self, table: Table) -> TimeRange:
        slot = max(self.clock(), table.last_slot + 1)
        return TimeRange(begin=slot, end=slot + 1)

    def _publish(
        self, partition: NewPartition, *, replacing: frozenset[int] = frozenset(), keeping: frozenset[int] = frozenset()
    ) -> tuple[int, int | None, Sequence[int]]:
        work = Operation(op_id=make_op_id(1_700_000_000_000_000, self._draw().to_bytes(10, "big")))
        done = publish_partition(self.registry, partition, work, replacing=replacing, keeping=keeping)
        return done.partition_id, done.group, done.file_ids

    def _take_over(
        self, table: Table, partition: NewPartition, shapes: Sequence[FileShape], victims: frozenset[int], kept: frozenset[int]
    ) -> None:
        """Publish, and make the model what it must be afterwards."""
        insert_range, stamp = partition.insert_range or self._next_slot(table), table.last_seq + 1
        partition_id, group, file_ids = self._publish(partition, replacing=victims, keeping=kept)
        if partition.insert_range is None:
            table.last_slot = insert_range.begin
        new = [
            File(
                file_id=i,
                path=f.path,
                shape=shape,
                schema_hash=partition.schema_hash,
                partition_id=partition_id,
                added_seq=stamp,
            )
            for i, f, shape in zip(file_ids, partition.files, shapes, strict=True)
        ]
        leaving = [f for f in table.files_of(victims) if f.file_id not in kept]
        spans = [e for e in (table.partitions[i].event_range for i in victims) if e is not None] if kept else []
        if partition.event_range is not None:
            spans.append(partition.event_range)
        if victims:
            enter = [f for f in new if table.is_readable(f) and not f.shape.is_json]
            assert group == table.draw_group(enter=enter, leave=leaving)
        self._leave(table, leaving, stamp=stamp, group=group, grace_us=24 * HOUR)
        table.files |= {f.file_id: f for f in new}
        for file_id in kept:
            table.files[file_id].partition_id = partition_id
        self._drop(table, victims)
        table.partitions[partition_id] = Partition(
            partition_id=partition_id,
            scope=Scope(partition.instance, partition.schema_hash),
            insert_range=insert_range,
            event_range=(min(low for low, _ in spans), max(high for _, high in spans)) if spans else None,
        )

    def _retire(self, table: Table, victims: Sequence[Partition], move: Callable[[Transaction], Retired], *, grace_us: int) -> Retired:
        files = table.files_of(p.partition_id for p in victims)
        stamp = table.last_seq + 1
        done = within(self.registry, move, table.name)
        group = table.draw_group(leave=files) if any(f.file_id in table.iceberg for f in files) else None
        assert (done.partitions, done.files, done.group) == (len(victims), len(files), group)
        self._leave(table, files, stamp=stamp, group=group, grace_us=grace_us)
        self._drop(table, {p.partition_id for p in victims})
        return done

    def _leave(self, table: Table, files: Sequence[File], *, stamp: int, group: int | None, grace_us: int) -> None:
        for file in files:
            file.retired_seq = stamp
            file.removed_group = file.removed_group or group
            self.queue[file.path] = Queued(table=table, file=file, expiration=self.clock() + grace_us)

    def _drop(self, table: Table, ids: Iterable[int]) -> None:
        for partition_id in sorted(ids):
            del table.partitions[partition_id]
            table.gone.append(partition_id)

    def _may_delete(self, queued: Queued) -> bool:
        """Past its grace, held by no reader, needed by neither Iceberg's present nor a snapshot that is kept."""
        now, table, file = self.clock(), queued.table, queued.file
        if queued.expiration > now or (queued.claimed_until is not None and queued.claimed_until >= now):
            return False
        for until, numbers in self.leases.values():
            if until > now and (file.retired_seq or 0) > numbers.get(table.table_id, file.retired_seq or 0):
                return False
        coming = [held for group, held in table.at_group.items() if group >= table.committed_group]
        kept = [table.at_group[group] for group in table.snapshots.values()]
        return not any(file.file_id in held for held in coming + kept)

    def _forget(self, queued: Queued) -> None:
        table, file = queued.table, queued.file
        del table.files[file.file_id]
        table.finalized.add(file.file_id)
        table.horizon = max(table.horizon, file.retired_seq or 0)


class _Refused:
    """The block raises the error, and every row of every table is as before."""

    def __init__(self, registry: Registry, error: type[LakebedError]) -> None:
        self._registry, self._error = registry, error

    def __enter__(self) -> None:
        self._before = logical_dump(self._registry)

    def __exit__(self, kind: object, found: BaseException | None, _: object) -> bool:
        assert isinstance(found, self._error), f"{self._error.__name__} was expected, not {found!r}"
        assert logical_dump(self._registry) == self._before
        return True


def _sums(files: Sequence[File]) -> tuple[int, int, int, int]:
    """Rows, files, small files, bytes."""
    small = sum(not f.shape.is_large for f in files)
    return sum(f.shape.rows for f in files), len(files), small, sum(f.size_bytes for f in files)


def wander(history: History, chance: random.Random, moves: int) -> Iterator[None]:
    """A random history that depends on nothing but `chance`: every kind of move, refused ones too; pauses after each."""
    for is_view in (False, True, False):
        history.create(is_view=is_view)
        history.note()
    for _ in range(moves):
        _move(history, chance.choice(history.tables), chance)
        history.note()
        yield


def _move(history: History, table: Table, chance: random.Random) -> None:
    hours = (begin := chance.randrange(9), begin + chance.randrange(1, 4))
    instance, grace_us = chance.choice(INSTANCES), chance.choice([0, HOUR, 24 * HOUR])
    shapes = [
        FileShape(chance.randrange(1, 6), chance.choice(PARTITION_PATHS), chance.random() < 0.3, chance.random() < 0.2)
        for _ in range(chance.randrange(4))
    ]
    publishing: list[Callable[[], None]] = [
        lambda: history.publish(table, shapes, hours=hours, instance=instance, use_staged=chance.random() < 0.5),
        lambda: history.publish(table, shapes, hours=None, instance=instance),
    ]
    others: list[Callable[[], None]] = [
        lambda: history.seal(table),
        lambda: history.commit_groups(table, behind=chance.randrange(3)),
        lambda: history.expire_snapshots(table, keep=min(1, len(table.snapshots))),
        lambda: history.stage(table) if table.is_view else history.evolve(table),
        lambda: history.promote(table),
        lambda: history.hold(chance.choice(READERS), [table], ttl_us=HOUR),
        lambda: history.end(chance.choice(READERS)),
        lambda: history.clock.advance(seconds=chance.choice([1e-6, 1800.0, 30 * 3600.0])),
        lambda: history.clean(limit=chance.choice([2, 100]), refused=chance.randrange(2)),
        lambda: history.swap_stale(table, pick=chance.randrange(9)),
        lambda: history.publish_into_unserved(table),
        lambda: history.publish_a_known_path(table),
        lambda: history.retire_unknown_key(table),
        lambda: history.retire_range(table, hours, instance=chance.choice([None, instance]), grace_us=grace_us),
        lambda: history.retire_old(table, hour=chance.randrange(6), grace_us=grace_us),
    ]
    if table.partitions:
        one = chance.choice(list(table.partitions.values()))
        alike = sorted((p for p in table.partitions.values() if p.scope == one.scope), key=lambda p: p.insert_range.begin)
        others += [
            lambda: history.swap(table, alike[: chance.randrange(1, 4)], shapes, keep=chance.randrange(3)),
            lambda: history.swap(table, alike[-1:], shapes, keep=chance.randrange(2)),
            lambda: history.retire_key(table, one, name_schema=chance.random() < 0.5, grace_us=grace_us),
            lambda: history.retire_ids(table, alike[:2], add_gone=chance.random() < 0.3, exactly=chance.random() < 0.5, grace_us=grace_us),
        ]
    chance.choice(publishing if chance.random() < 0.4 else others)()
