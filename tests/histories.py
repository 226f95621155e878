"""Histories: the same move made on a registry and on a plain model of it, so that the two can be compared after each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from builders import HOUR, SCHEMA, START, fake_file, grow_schema, insert_hours, make_view, micros_of, promote, stage, within
from history_checks import compare
from history_model import NAMES, VISIBLE, File, FileShape, Partition, Queued, Refusal, Scope, Table
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
from lakebed.core.partitions import SMALL_FILE_BYTES, NewPartition
from lakebed.core.times import TimeRange
from lakebed.registry.files.deletion_queue import claim_expired, finalize_deleted, release_failed
from lakebed.registry.files.operations import Operation
from lakebed.registry.journal.changes import last_journal_numbers
from lakebed.registry.journal.leases import end_reading, hold_for_reading
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.snapshots.history import NewSnapshot, add_snapshot, expire_snapshots
from lakebed.registry.tables.groups import seal, set_committed_group
from lakebed.registry.tables.lake_tables import TableSpec, create_table
from retiring import RetiredT, retire_by_ids, retire_by_key, retire_by_range, retire_expired

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from lakebed.core.errors import LakebedError
    from lakebed.core.files import NewFile
    from lakebed.registry.partitions.retire import Retired
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction
    from lakebed.testing import FixedClock


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
        self.tables.append(Table(name=name, table_id=made.table_id, is_view=is_view, version_states={made.schema_hash: "serving"}))

    def evolve(self, table: Table) -> None:
        number = len(table.version_states)
        grown = grow_schema(self.registry, table.name, column=f"note{number}", field_id=100 + number)
        table.version_states |= {table.serving: "readable", grown: "serving"}

    def stage(self, table: Table) -> None:
        made = stage(self.registry, table.name, definition=f"SELECT {self._draw()}")
        if table.staged is not None:
            table.version_states[table.staged] = "incompatible"
        table.version_states[made] = "staged"

    def promote(self, table: Table) -> None:
        staged = table.staged
        if staged is None:
            with self.refused(InvalidValueError):
                promote(self.registry, "beef", table.name)
            return
        group = promote(self.registry, staged, table.name)
        table.version_states |= {h: "incompatible" for h, state in table.version_states.items() if state in VISIBLE} | {staged: "serving"}
        leave = [table.files[i] for i in table.iceberg if table.files[i].schema_hash != staged]
        enter = [f for f in table.live() if f.schema_hash == staged and not f.shape.is_json]
        assert group == table.allocate_group(enter=enter, leave=leave)
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
        wanted = partition.insert_range or table.next_slot(self.clock())
        if table.overlaps(scope, wanted):
            with self.refused(PartitionConflictError):
                self._publish(partition)
            return
        self._take_over(table, partition, shapes, frozenset(), frozenset())

    def publish_into_unserved(self, table: Table) -> None:
        unserved = next((h for h, state in table.version_states.items() if state == "incompatible"), "beef")
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
        if table.version_states[partition.schema_hash] == "incompatible":
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
        assert drawn == (table.allocate_group(enter=pending) if pending else None)

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
            gone = self.queue.pop(path)
            gone.table.forget(gone.file)
        for queued in (self.queue[path] for path in failed):
            queued.claimed_until = self.clock() + min(3600, 10 << queued.attempts) * 1_000_000
            queued.attempts += 1

    # -- what must be equal after every move --------------------------------------------------

    def note(self) -> None:
        """Remember what is live from the first number of the last transaction on to the one that each journal has reached."""
        ends = last_journal_numbers(self.registry)
        for table in self.tables:
            if (reached := ends[table.table_id]) > table.last_seq:
                visible = frozenset(f.file_id for f in table.visible())
                table.visible_at |= {table.last_seq + 1: visible, reached: visible}
                table.last_seq = reached

    def compare(self) -> None:
        """The registry and the model agree in everything."""
        compare(self)

    def refused(self, error: type[LakebedError]) -> AbstractContextManager[None]:
        return Refusal(self.registry, error)

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
        insert_range, stamp = partition.insert_range or table.next_slot(self.clock()), table.last_seq + 1
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
            assert group == table.allocate_group(enter=enter, leave=leaving)
        self._leave(table, leaving, stamp=stamp, group=group, grace_us=24 * HOUR)
        table.files |= {f.file_id: f for f in new}
        for file_id in kept:
            table.files[file_id].partition_id = partition_id
        table.drop(victims)
        table.partitions[partition_id] = Partition(
            partition_id=partition_id,
            scope=Scope(partition.instance, partition.schema_hash),
            insert_range=insert_range,
            event_range=(min(low for low, _ in spans), max(high for _, high in spans)) if spans else None,
        )

    def _retire(self, table: Table, victims: Sequence[Partition], move: Callable[[Transaction], RetiredT], *, grace_us: int) -> RetiredT:
        files = table.files_of(p.partition_id for p in victims)
        stamp = table.last_seq + 1
        done = within(self.registry, move, table.name)
        group = table.allocate_group(leave=files) if any(f.file_id in table.iceberg for f in files) else None
        assert (done.partitions, done.files, done.group) == (len(victims), len(files), group)
        self._leave(table, files, stamp=stamp, group=group, grace_us=grace_us)
        table.drop({p.partition_id for p in victims})
        return done

    def _leave(self, table: Table, files: Sequence[File], *, stamp: int, group: int | None, grace_us: int) -> None:
        for file in files:
            file.retired_seq = stamp
            file.removed_group = file.removed_group or group
            self.queue[file.path] = Queued(table=table, file=file, expiration=self.clock() + grace_us)

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
