"""The one committer of a table: moves Iceberg to the newest sealed group in one snapshot, exactly once.

Where the table stands is read from the table itself, in a property that the same commit set, so a redelivery, a lost
answer or a crash between the commit and the registry changes nothing: the next call finds what is true and goes on.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from lakebed.core.errors import (
    CorruptionError,
    FileMissingError,
    ForeignCommitError,
    IcebergDriftError,
    LakebedError,
    LeaseLostError,
    OutcomeUnknownError,
)
from lakebed.core.names import TableName
from lakebed.iceberg.commit.describing import Describing
from lakebed.iceberg.commit.merging import DEFAULT_LIMITS, MergeLimits
from lakebed.iceberg.commit.record import Settler
from lakebed.iceberg.commit.removal import Removals
from lakebed.iceberg.commit.results import Advanced, Verified, describe_commit
from lakebed.iceberg.commit.snapshot import Change, SnapshotWriter, Written
from lakebed.iceberg.locations import MetadataFiles, parse_version, to_path, to_uri
from lakebed.iceberg.manifests.cache import ManifestStore
from lakebed.iceberg.manifests.data_file import FileWriter
from lakebed.iceberg.metadata.difference import compare
from lakebed.iceberg.metadata.load import Base, TableOpener
from lakebed.iceberg.metadata.metadata import UNRECORDED, add_snapshot, evolve, is_ours, read_group, succeed
from lakebed.iceberg.metadata.ownership import complete, list_changes
from lakebed.iceberg.metadata.state import TableState, read_state
from lakebed.iceberg.types.partitions import make_partitioning
from lakebed.iceberg.upkeep.foreign import adopt_files, list_added, list_old_tags, name_tag, rewind
from lakebed.iceberg.upkeep.reachable import list_leftovers, list_reachable, read_root
from lakebed.parquet.schema.match import LayoutFinder
from lakebed.registry.journal.leases import require_epoch
from lakebed.registry.partitions.retire import DEFAULT_GRACE_US
from lakebed.registry.snapshots.foreign import clear_stop, list_tables_with_foreign, record_stop
from lakebed.registry.snapshots.history import find_instances, list_queued, sum_at_group
from lakebed.registry.snapshots.requests import change_requests
from lakebed.registry.tables.groups import GroupStep, find_ids, find_paths
from lakebed.registry.tables.lake_tables import find_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyiceberg.table.metadata import TableMetadataV2

    from lakebed.iceberg.catalog import LakeCatalog
    from lakebed.iceberg.manifests.avro import ManifestFormat
    from lakebed.registry.journal.leases import Lease
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage

logger = logging.getLogger(__name__)

_BROKEN = (FileMissingError, CorruptionError)


class _Owned:
    """A table as this process owns it: the fence's epoch, and the metadata that the registry is known to be in step with."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.epoch: int | None = None
        self.settled: str | None = None


class Committer:
    """Tables in parallel, one table by one thread at a time. `lease` is asked for whenever ownership is in doubt."""

    def __init__(
        self,
        registry: Registry,
        storage: Storage,
        catalog: LakeCatalog,
        *,
        lease: Callable[[], Lease | None] = lambda: None,
        limits: MergeLimits = DEFAULT_LIMITS,
    ) -> None:
        self.registry, self.storage, self.catalog = registry, storage, catalog
        self.store = ManifestStore(storage)
        self._opener = TableOpener(registry, storage, catalog)
        self._settler = Settler(registry=registry, storage=storage, store=self.store)
        self._lease, self._limits = lease, limits
        self._owned: dict[int, _Owned] = {}
        self._guard = threading.Lock()

    def advance(self, table_id: int) -> Advanced | None:
        """Bring the table to the newest sealed group, schema and requests; None when it is there already, or dropped."""
        with self._owning(table_id) as owned:
            return self._advance(table_id, owned)

    def refresh(self, table_id: int) -> Advanced | None:
        """Advance, then compare Iceberg's totals with the registry's; where they differ, or nothing can be read, make them equal."""
        with self._owning(table_id) as owned:
            try:
                done = self._advance(table_id, owned)
                if self._agrees(table_id):
                    return done
            except ForeignCommitError:
                raise
            except _BROKEN as exc:
                if table_id in list_tables_with_foreign(self.registry):
                    raise  # a new table would give up what other programs keep in this one: a person decides
                logger.warning("iceberg table rebuilt", extra={"action": "rebuild", "table_id": table_id, "reason": str(exc)})
                return self._rebuild(table_id, owned)
            return self._resync(table_id, owned) or done

    def rebuild(self, table_id: int) -> Advanced | None:
        """A new Iceberg table from the registry alone; its earlier snapshots are given up."""
        with self._owning(table_id) as owned:
            return self._rebuild(table_id, owned)

    def verify(self, table_id: int) -> Verified | None:
        """Read every manifest of the current snapshot and compare it with the registry; None where there is no table."""
        row = find_row(self.registry, table_id)
        base = None if row is None else self._opener.find(TableName(row.database, row.name))
        if base is None:
            return None
        group = read_group(base.metadata)
        found = compare(self.registry, self.store, base.metadata, table_id=table_id, group=group)
        missing = sorted(to_uri(path) for path in find_paths(self.registry, found.missing))
        return Verified(group=group, files=found.files, missing=tuple(missing), extra=tuple(sorted(found.extra)))

    def find_version(self, name: TableName) -> tuple[int, tuple[int, ...]]:
        """The number of the table's current metadata, and the snapshots that it keeps, oldest first."""
        base = self._opener.find(name)
        return (0, ()) if base is None else (parse_version(base.location), tuple(s.snapshot_id for s in base.metadata.snapshots))

    def discard_foreign(self, table_id: int) -> Advanced | None:
        """Go back to what we wrote and on from there; a snapshot that another program made current stays as a tag `foreign-<id>`."""
        with self._owning(table_id) as owned:
            base = self._open(table_id, owned)
            if base is None:
                return None
            if (tag := name_tag(base.metadata)) is not None:
                self._keep_tags(table_id, {tag: base.metadata.current_snapshot_id or 0})
            state = read_state(self.registry, self.storage.paths, table_id, since=None)
            if state is None:
                return None
            done = self._go_back(state, base, owned)
            self.registry.transact(lambda tx: clear_stop(tx, state.name), tables=[table_id])
            moved = self._resync(table_id, owned)
            return done if moved is None or done is None else replace(moved, undone=done.undone)

    def _go_back(self, state: TableState, base: Base, owned: _Owned) -> Advanced | None:
        if not (undone := list_changes(base.metadata, state.wanted)):
            return None
        now_ms = self.registry.now() // 1000
        target = complete(evolve(rewind(base.metadata, state.wanted, now_ms=now_ms), state.wanted), state.wanted.requested)
        after = self._swap(state, base, target, self._files(state), owned, now_ms=now_ms)
        return describe_commit(state, after, None, undone=undone)

    def adopt_foreign(self, table_id: int) -> Advanced | None:
        """Register the files that another program added, then discard its snapshot: they come back in a group of ours.

        Refused when it removed files, which cannot be distinguished from rows that were rewritten, or changed more than files.
        """
        with self._owning(table_id) as owned:
            base = self._open(table_id, owned)
            state = None if base is None else read_state(self.registry, self.storage.paths, table_id, since=None)
            changed = () if base is None or state is None else list_changes(base.metadata, state.wanted)
            if base is None or state is None or not changed:
                return None
            added = list_added(state.name, self.store, base.metadata, changed)
        adopt_files(self.registry, self.storage, state.name, added)
        return self.discard_foreign(table_id)

    def sweep(self, table_id: int, *, older_than_us: int = DEFAULT_GRACE_US) -> list[str]:
        """Delete metadata files that nothing names and that are old enough; their paths.

        Their writer can no longer commit them: this process raised the fence, and holds the table while it looks.
        """
        with self._owning(table_id) as owned:
            base = self._open(table_id, owned)
            row = find_row(self.registry, table_id)
            if base is None or row is None or not is_ours(base.metadata):  # another program's commit is settled first
                return []
            directory = self.storage.paths.metadata_directory(table_id, TableName(row.database, row.name))
            leftovers = list_leftovers(
                self.storage.list_files(directory),
                reachable=list_reachable(self.storage, self.store, read_root(self.storage, base.location)),
                queued=list_queued(self.registry, table_id),
                before_us=self.registry.now() - older_than_us,
            )
            return [outcome.path for outcome in self.storage.delete(leftovers) if outcome.gone]

    # -- one table, under its lock --------------------------------------------------------------

    def _advance(self, table_id: int, owned: _Owned) -> Advanced | None:
        base = self._open(table_id, owned)
        if base is None:
            return None
        since = read_group(base.metadata)
        state = read_state(self.registry, self.storage.paths, table_id, since=since)
        if state is None:
            return None
        self._require_lineage(state, base)
        if old := list_old_tags(base.metadata, state.wanted.requested):
            self._keep_tags(table_id, old)
            return self._advance(table_id, owned)
        if since < state.row.committed_group:  # an older catalog came back: rows of files that left since may be gone
            return self._resync(table_id, owned)
        return self._move(state, base, owned, removed=Removals(ids=state.step.removed, locate=self._locate, identify=self._identify))

    def _resync(self, table_id: int, owned: _Owned) -> Advanced | None:
        base = self._open(table_id, owned)
        if base is None:
            return None
        state = read_state(self.registry, self.storage.paths, table_id, since=None)
        if state is None:
            return None
        self._require_lineage(state, base)
        found = compare(self.registry, self.store, base.metadata, table_id=table_id, group=state.row.last_group)
        instances = find_instances(self.registry, found.missing) if state.with_instance else {}
        state = replace(state, step=GroupStep(added=found.missing, removed=(), instances=instances, trigger="repair"))
        return self._move(state, base, owned, removed=Removals(strays=found.extra))

    def _rebuild(self, table_id: int, owned: _Owned) -> Advanced | None:
        state = read_state(self.registry, self.storage.paths, table_id, since=0)
        if state is None:
            return None
        epoch = self._own(state.name, owned)
        base = self._opener.create(state, epoch=epoch, over=True)
        return self._move(state, base, owned, removed=Removals())

    def _open(self, table_id: int, owned: _Owned) -> Base | None:
        """The table as its pointer has it, made where there is none."""
        state = read_state(self.registry, self.storage.paths, table_id, since=None) if owned.epoch is None else None
        if owned.epoch is None and state is None:
            return None
        row = find_row(self.registry, table_id) if state is None else state.row
        if row is None or row.dropped_at is not None:
            return None
        name = TableName(row.database, row.name)
        epoch = self._own(name, owned)
        found = self._opener.find_intact(name, table_id)
        if found is not None:
            return found
        state = state or read_state(self.registry, self.storage.paths, table_id, since=None)
        return None if state is None else self._opener.restore(state, epoch=epoch)

    def _own(self, name: TableName, owned: _Owned) -> int:
        """Raise the fence before the first read; only then see whether the lease is still ours, because no other process can pass it later."""
        if owned.epoch is None:
            epoch = self.catalog.raise_fence(name)
            if (lease := self._lease()) is not None:
                with self.registry.write() as tx:
                    require_epoch(tx, lease)
            owned.epoch, owned.settled = epoch, None
        return owned.epoch

    def _require_lineage(self, state: TableState, base: Base) -> None:
        if changed := list_changes(base.metadata, state.wanted):
            snapshot_id = base.metadata.current_snapshot_id
            raise ForeignCommitError(str(state.name), snapshot_id=snapshot_id, location=base.location, changed=changed)
        if (group := read_group(base.metadata)) > state.row.last_group:
            raise IcebergDriftError(
                str(state.name), problem=f"Iceberg holds group {group}, the registry drew {state.row.last_group} so far"
            )

    def _move(self, state: TableState, base: Base, owned: _Owned, *, removed: Removals) -> Advanced | None:
        now_ms = self.registry.now() // 1000
        files = self._files(state)
        try:
            target, written = self._build(state, base, files, removed=removed, now_ms=now_ms)
            if target is base.metadata:
                self._settle(state, base, base, owned)
                self._clear_stop(state)
                return None
            after = self._swap(state, base, target, files, owned, now_ms=now_ms)
        except OutcomeUnknownError:
            raise
        except BaseException:
            self.store.forget(files.written)
            with suppress(LakebedError):
                files.sweep()
            raise
        self._settle(state, base, after, owned)
        self._clear_stop(state)
        return describe_commit(state, after, written)

    def _build(
        self, state: TableState, base: Base, files: MetadataFiles, *, removed: Removals, now_ms: int
    ) -> tuple[TableMetadataV2, Written | None]:
        """Everything but the metadata file itself; the base's own metadata when there is nothing to do."""
        target = evolve(base.metadata, state.wanted)
        group = state.row.last_group
        is_respecced = target.default_spec_id != base.metadata.default_spec_id and base.metadata.current_snapshot_id is not None
        written = None
        if group > read_group(base.metadata) or state.step.added or removed or is_respecced:
            form = self._form(state, target)
            change = self._change(state, form, removed)
            writer = SnapshotWriter(files=files, store=self.store, form=form, metadata=target, now_ms=now_ms, limits=self._limits)
            written = writer.write(change, table=str(state.name))
            target = add_snapshot(target, written.snapshot, group=group)
        return complete(target, state.wanted.requested), written

    def _form(self, state: TableState, target: TableMetadataV2) -> ManifestFormat:
        wanted = state.wanted
        partitioning = make_partitioning(
            wanted.schema, wanted.partition_by, with_instance=wanted.with_instance, spec_id=target.default_spec_id
        )
        return self._opener.form(partitioning, target.schema())

    def _change(self, state: TableState, form: ManifestFormat, removed: Removals) -> Change:
        writer = FileWriter(
            layouts=LayoutFinder(state.wanted.schema),
            partitioning=form.partitioning,
            partition_names=form.partition_names,
            always=state.always_measured,
        )
        describing = Describing(registry=self.registry, writer=writer, table=str(state.name), instances=state.step.instances)
        return Change(
            added=describing.run(state.step.added),
            removed=removed,
            is_rewrite=state.step.is_rewrite,
            group=state.row.last_group,
            trigger=state.step.trigger or UNRECORDED,
            schema_version=state.serving.schema_version,
        )

    def _swap(self, state: TableState, base: Base, target: TableMetadataV2, files: MetadataFiles, owned: _Owned, *, now_ms: int) -> Base:
        final = succeed(target, previous=base.metadata, location=base.location, now_ms=now_ms)
        location = files.write_metadata(parse_version(base.location) + 1, self._opener.dump(final))
        epoch = self._own(state.name, owned)
        if not self.catalog.swap(state.name, old=base.location, new=location, epoch=epoch):
            raise LeaseLostError(f"iceberg/{state.name}", epoch=epoch)
        self._opener.remember(location, final)
        return Base(metadata=final, location=location)

    def _settle(self, state: TableState, before: Base, after: Base, owned: _Owned) -> None:
        """Another process may have committed and died before it recorded that: only what this process recorded is known."""
        is_known = owned.settled == before.location
        if is_known and before is after:
            return
        self._settler.settle(state, before=before, after=after, known=is_known, lease=self._lease())
        owned.settled = after.location

    def _files(self, state: TableState) -> MetadataFiles:
        return MetadataFiles(self.storage, self.storage.paths.metadata_directory(state.table_id, state.name), {})

    def _locate(self, ids: Sequence[int]) -> dict[str, int]:
        return {to_uri(path): file_id for path, file_id in find_paths(self.registry, ids).items()}

    def _identify(self, locations: Sequence[str]) -> list[int]:
        return find_ids(self.registry, [to_path(location) for location in locations])

    def _agrees(self, table_id: int) -> bool:
        """By totals of the manifest list, without opening a manifest."""
        row = find_row(self.registry, table_id)
        base = None if row is None else self._opener.find(TableName(row.database, row.name))
        if base is None:
            return True
        snapshot = base.metadata.current_snapshot()
        manifests = () if snapshot is None else self.store.load_list(snapshot.manifest_list)
        totals = sum_at_group(self.registry, table_id, read_group(base.metadata))
        return (totals.files, totals.rows) == (sum(m.live_files for m in manifests), sum(m.live_rows for m in manifests))

    @contextmanager
    def _owning(self, table_id: int) -> Iterator[_Owned]:
        with self._guard:
            owned = self._owned.setdefault(table_id, _Owned())
        with owned.lock:
            try:
                yield owned
            except ForeignCommitError as stop:
                self._record_stop(table_id, stop)
                raise
            except BaseException:
                owned.epoch = None  # whatever it was, the next call looks at everything anew
                raise

    def _record_stop(self, table_id: int, stop: ForeignCommitError) -> None:
        row = find_row(self.registry, table_id)
        if row is not None and row.dropped_at is None:
            name = TableName(row.database, row.name)
            self.registry.transact(lambda tx: record_stop(tx, name, stop), tables=[table_id])

    def _clear_stop(self, state: TableState) -> None:
        """What we committed on is ours: the program that stopped the table may have undone its change itself."""
        if state.row.state == "degraded":
            self.registry.transact(lambda tx: clear_stop(tx, state.name), tables=[state.table_id])

    def _keep_tags(self, table_id: int, tags: dict[str, int]) -> None:
        """Before they are needed: a request that is not carried out yet harms nothing, a snapshot without its tag might go."""
        change_requests(self.registry, table_id, lambda requested: replace(requested, tags={**requested.tags, **tags}))
