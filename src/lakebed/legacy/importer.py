"""Importing the tables of an older lake: a dry run by default, in bounded transactions; after a crash, run it again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from lakebed.admin.audit import find_actor
from lakebed.adopt.places import find_root, open_place
from lakebed.core.errors import FileMissingError, InvalidValueError, LakebedError, NotAFileError, PathRefusedError, TableExistsError
from lakebed.core.results import Rows
from lakebed.core.schema.schema import Schema
from lakebed.core.tables.settings import LEGACY
from lakebed.legacy.files import Prepared, find_path, load_located, prepare
from lakebed.legacy.plan import BAD_NAME, NO_SCHEMA, OUTSIDE, QUEUED, LegacyFinding, find, name_tables, plan_view_set
from lakebed.legacy.publish import publish_batch
from lakebed.legacy.results import ImportedViewSet, ImportRequest, LegacyImport
from lakebed.legacy.schemas import fit_ids
from lakebed.legacy.source import open_legacy
from lakebed.parquet.foreign.infer import Discovery
from lakebed.parquet.foreign.sandbox import ForeignFile
from lakebed.parquet.inspect import StatisticsSpec
from lakebed.registry.files.adoption import (
    APP_ID,
    close_side_version,
    list_imported,
    list_registered,
    open_side_version,
    queue_legacy_files,
)
from lakebed.registry.files.left_out import LeftOut, record_left_out
from lakebed.registry.maintenance.open_runs import OpenRun, keeping_run
from lakebed.registry.tables.lake_tables import TableSpec, create_table, find_table
from lakebed.registry.tables.versions import list_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakebed.core.names import TableName
    from lakebed.legacy.files import Located
    from lakebed.legacy.plan import PlannedPartition, VersionPlan, ViewSetPlan
    from lakebed.legacy.source import LegacySource
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Transaction
    from lakebed.storage.protocol import Storage


T = TypeVar("T")

_QUEUE_BATCH = 1000
_TO_COME = "not yet imported: run `lakebed import-legacy` again"
_NOT_CHOSEN = "view set {!a} was not imported: run `lakebed import-legacy` for it"
_SAMPLES = 5  # files to try for the columns of a version


def import_legacy(registry: Registry, storage: Storage, url: str, request: ImportRequest) -> LegacyImport:
    """Import view sets as plain tables whose partitions keep their slices, instances, event ranges and source hashes.

    Files stay in place if the old root is in the warehouse; otherwise they are linked or copied. A later run does not import a
    partition again, even if it was retired meanwhile.
    """
    with open_legacy(url, timeout_s=registry.backend.timeout_s) as source:
        root = find_root(storage, request.root) if request.root is not None else storage.paths.root
        importing = _Importing(registry, storage, source, request, root)
        plans = [*importing.plan()]
        if request.dry_run:
            importing.carry_out(plans)
            importing.take_temporary_files(plans)
            return importing.summarize(None)
        stored_plan = {"source": source.shown_url, "root": root, "view_sets": [plan.view_set for plan in plans]}
        run = OpenRun("import_legacy", actor=find_actor(request.actor), plan=stored_plan, so_far=importing.total)
        with keeping_run(registry, run):
            with registry.write() as tx:
                run.begin(tx)
            importing.record_files(plans)
            importing.carry_out(plans)
            importing.take_temporary_files(plans)
            importing.explain_left_out(finish=lambda tx: run.finish(tx, result=importing.total()))
        return importing.summarize(run.run_id)


@dataclass(slots=True)
class _Counts:
    """The state of one view set during its import."""

    values: dict[str, int] = field(default_factory=dict)

    def add(self, **amounts: int) -> None:
        for name, amount in amounts.items():
            self.values[name] = self.values.get(name, 0) + amount


@dataclass(frozen=True, slots=True)
class _Version:
    """One version of one view set during its import; without a table in a dry run that would create it."""

    view_set: ViewSetPlan
    plan: VersionPlan
    table: LakeTable | None
    event_time: str | None


class _Importing:
    def __init__(self, registry: Registry, storage: Storage, source: LegacySource, request: ImportRequest, root: str) -> None:
        self.registry, self.storage, self.source, self.request, self.root = registry, storage, source, request, root
        self.in_place = root == storage.paths.root or storage.paths.holds(root)
        self.place = open_place(storage, root)
        self.findings: list[LegacyFinding] = []
        self.done: list[ImportedViewSet] = []
        self.queued = 0
        self._seen = self._total = 0

    # -- planning -----------------------------------------------------------------------------

    def plan(self) -> Iterator[ViewSetPlan]:
        every = self.source.list_view_sets()
        wanted = list(self.request.view_sets) or every
        if unknown := sorted(set(wanted) - set(every)):
            message = f"the old lake has no view set {unknown[0]!a}: it has {', '.join(every) or 'none'}"
            raise InvalidValueError(message)
        tables = name_tables(wanted, database=self.request.database, names=self.request.names or {})
        if nameless := self.source.count_nameless():
            self.findings.append(_finding(BAD_NAME, "", f"{nameless} rows name no view set: repair them in the old lake"))
        for view_set in wanted:
            if view_set in tables:
                yield self._plan(view_set, tables[view_set])
            else:
                message = "its table would have the name of another view set's table: choose one with names"
                self.findings.append(_finding(BAD_NAME, view_set, message))

    def _plan(self, view_set: str, table: TableName) -> ViewSetPlan:
        serving = (self.request.serving or {}).get(view_set) or self._serving_hash(view_set, table)
        plan = plan_view_set(view_set, self.source.list_partitions(view_set), table=table, serving_hash=serving)
        self.findings += plan.findings
        self._total += sum(len(version.partitions) for version in plan.versions)
        return plan

    def _serving_hash(self, view_set: str, name: TableName) -> str | None:
        """The choice of an earlier run is kept."""
        table = find_table(self.registry, name)
        if table is None:
            return None
        stored = table.properties.get(LEGACY, {})
        if stored.get("view_set") != view_set:
            raise TableExistsError(str(name))
        return str(stored["schema_hash"])

    # -- carrying out -------------------------------------------------------------------------

    def carry_out(self, plans: Sequence[ViewSetPlan]) -> None:
        for plan in plans:
            counts = _Counts()
            before = len([f for f in self.findings if not f.kept])
            self._carry_out(plan, counts)
            left_out = len([f for f in self.findings if not f.kept]) - before + sum(1 for f in plan.findings if not f.kept)
            shown = ImportedViewSet(
                view_set_name=plan.view_set, table=str(plan.table), schema_hash=plan.serving_hash, left_out=left_out, **counts.values
            )  # fmt: skip
            self.done.append(shown)

    def _carry_out(self, plan: ViewSetPlan, counts: _Counts) -> None:
        schema = self._find_schema(plan)
        if schema is None:
            for version in plan.versions:
                self._report_all(version, NO_SCHEMA, "no file of the view set records its columns: write one slice of it in the old lake")
            return
        event_time = self._event_time(plan, schema)
        table = self._require_table(plan, schema, event_time)
        done = list_imported(self.registry, table.table_id) if table is not None else frozenset()
        history = self._history(table, schema)
        for version in plan.versions:
            fresh = [p for p in version.partitions if p.key not in done]
            counts.add(known_partitions=len(version.partitions) - len(fresh))
            self._step(len(version.partitions) - len(fresh))
            if fresh:
                self._import_version(_Version(plan, version, table, event_time), fresh, history, counts)

    def _report_all(self, version: VersionPlan, kind: str, message: str) -> None:
        self.findings += [find(kind, planned.row, message) for planned in version.partitions]
        self._step(len(version.partitions))

    def _find_schema(self, plan: ViewSetPlan) -> Schema | None:
        table = find_table(self.registry, plan.table)
        if table is not None:
            return table.schema
        serving = next((v for v in plan.versions if v.serves), None)
        return self.discover(plan, serving) if serving is not None else None

    def discover(self, plan: ViewSetPlan, version: VersionPlan) -> Schema | None:
        """The columns of the newest files that record them."""
        with_files = [p for p in reversed(version.partitions) if p.row.file_path is not None][:_SAMPLES]
        discovery = Discovery()
        for located in self.locate(plan, with_files, []):
            (answer,) = discovery.discover([ForeignFile(path=located.path, tail=located.footer.tail)])
            if not isinstance(answer, LakebedError):
                return answer.schema
        return None

    def locate(self, plan: ViewSetPlan, partitions: Sequence[PlannedPartition], findings: list[LegacyFinding]) -> list[Located]:
        paths = [p.row.file_path for p in partitions if p.row.file_path is not None]
        return load_located(self.place, self.root, partitions, self.source.load_footers(plan.view_set, paths), findings)

    def _event_time(self, plan: ViewSetPlan, schema: Schema) -> str | None:
        name = (self.request.event_times or {}).get(plan.view_set)
        if name is not None:
            schema.require(name)
        return name

    def _require_table(self, plan: ViewSetPlan, schema: Schema, event_time: str | None) -> LakeTable | None:
        """None in a dry run that would create the table."""
        table = find_table(self.registry, plan.table)
        if table is not None or self.request.dry_run:
            return table
        properties: dict[str, Any] = {
            LEGACY: {"view_set": plan.view_set, "schema_hash": plan.serving_hash, "source": self.source.shown_url}
        }
        return create_table(self.registry, TableSpec(name=plan.table, schema=schema, event_time=event_time, properties=properties))

    def _history(self, table: LakeTable | None, schema: Schema) -> list[Schema]:
        if table is None:
            return [schema]
        with self.registry.read() as reader:
            return [Schema.from_json(version.schema) for version in list_versions(reader, table.table_id)]

    def _import_version(self, version: _Version, fresh: Sequence[PlannedPartition], history: list[Schema], counts: _Counts) -> None:
        schema = self._schema_of(version, history)
        schema_hash = self._open(version, schema)
        for batch in _batches(fresh, max(1, self.request.batch_partitions)):
            prepared = self._prepare(version, batch, schema)
            if version.table is not None and schema_hash is not None and prepared:
                publish_batch(self.registry, self.storage, version.table, schema_hash, prepared, link=not self.request.copy)
            _count(counts, prepared, serves=version.plan.serves)
            self._step(len(batch))
        if version.table is not None and not version.plan.serves:
            name = version.table.name
            self.registry.transact(lambda tx: close_side_version(tx, name), tables=[name])

    def _schema_of(self, version: _Version, history: list[Schema]) -> Schema:
        """A version without files gets the serving columns: its partitions are empty."""
        if version.plan.serves:
            return history[0] if version.table is None else version.table.schema
        found = self.discover(version.view_set, version.plan)
        schema = fit_ids(found, history) if found is not None else history[-1]
        history.append(schema)
        return schema

    def _open(self, version: _Version, schema: Schema) -> str | None:
        if version.table is None:
            return None
        if version.plan.serves:
            return version.table.schema_hash
        name, note = version.table.name, version.plan.note
        return self.registry.transact(lambda tx: open_side_version(tx, name, schema, note=note), tables=[name])

    def _prepare(self, version: _Version, batch: Sequence[PlannedPartition], schema: Schema) -> list[Prepared]:
        located = self.locate(version.view_set, [p for p in batch if p.row.file_path is not None], self.findings)
        event = schema.find(version.event_time) if version.event_time is not None else None
        indexed = frozenset({event.field_id} if event is not None else ())
        spec = StatisticsSpec(event_time=event.field_id if event is not None else None, indexed=indexed, require_ids=False)
        with_files = prepare(located, schema, spec, has_event_time=version.event_time is not None, findings=self.findings)
        empty = [Prepared(planned=p, file=None, event_range=None) for p in batch if p.row.file_path is None]
        return sorted([*with_files, *empty], key=lambda one: one.planned.insert_range)

    def _step(self, count: int) -> None:
        self._seen += count
        if self.request.progress is not None:
            self.request.progress(self._seen, self._total)

    # -- files that stay out ------------------------------------------------------------------

    def record_files(self, plans: Sequence[ViewSetPlan]) -> None:
        """Record files before the first is imported: until a file is registered or a person releases it, no clean-up treats it as an orphan."""
        wanted = {plan.view_set for plan in plans}
        for batch in _batches(self.source.list_files(), _QUEUE_BATCH) if self.in_place else ():
            reasons = {path: _TO_COME if view_set in wanted else _NOT_CHOSEN.format(view_set) for path, view_set in batch}
            self._record(reasons)

    def explain_left_out(self, *, finish: Callable[[Transaction], object]) -> None:
        """Record the findings for each file that was not imported; `finish` belongs to the last transaction."""
        out = [f for f in self.findings if f.file_path is not None and not f.kept] if self.in_place else []
        self._record({str(f.file_path): f"{f.kind}: {f.message}" for f in out}, finish=finish)

    def _record(self, reasons: Mapping[str, str], *, finish: Callable[[Transaction], object] | None = None) -> None:
        files: dict[str, LeftOut] = {}
        for stored, reason in reasons.items():
            with suppress(PathRefusedError, FileMissingError, NotAFileError):
                path = find_path(self.place, self.root, stored)
                files[path] = LeftOut(size_bytes=self.place.stat(path).size_bytes, reason=reason)
        record_left_out(self.registry, files, source=APP_ID, finish=finish)

    # -- files queued for deletion ------------------------------------------------------------

    def take_temporary_files(self, plans: Sequence[ViewSetPlan]) -> None:
        """Queue files with the expiry they had, the later one if queued twice. Files outside the warehouse are left for the old lake to delete."""
        waiting = self.source.list_temporary_files()
        if waiting and not self.in_place:
            message = f"{len(waiting)} temporary files are outside the warehouse: the old lake must delete them"
            self.findings.append(_finding(QUEUED, "", message, kept=True))
            return
        live = {p.row.file_path for plan in plans for version in plan.versions for p in version.partitions}
        wanted: dict[str, tuple[int, int]] = {}
        for file in waiting:
            if file.file_path in live:
                message = "a file that a partition still needs is queued for deletion: it was not queued here"
                self.findings.append(_finding(QUEUED, "", message, path=file.file_path))
            elif (path := self._find_temporary(file.file_path)) is not None:
                wanted[path] = (file.file_size, file.expiration)
        known = list_registered(self.registry, wanted)
        self._queue({path: value for path, value in wanted.items() if path not in known})

    def _find_temporary(self, path: str) -> str | None:
        try:
            return find_path(self.place, self.root, path)
        except PathRefusedError as exc:
            self.findings.append(_finding(OUTSIDE, "", f"{exc}; it was not queued here", path=path))
            return None

    def _queue(self, wanted: dict[str, tuple[int, int]]) -> None:
        self.queued = len(wanted)
        for batch in () if self.request.dry_run else _batches(wanted.items(), _QUEUE_BATCH):
            chosen = dict(batch)
            self.registry.transact(lambda tx, chosen=chosen: queue_legacy_files(tx, chosen), tables=[])  # type: ignore[misc]

    # -- the summary --------------------------------------------------------------------------

    def total(self) -> dict[str, Any]:
        """The result as stored in `runs`."""
        return {"view_sets": len(self.done), "findings": len(self.findings)}

    def summarize(self, run_id: int | None) -> LegacyImport:
        return LegacyImport(
            source=self.source.shown_url,
            version=self.source.version,
            root=self.root,
            in_place=self.in_place,
            dry_run=self.request.dry_run,
            view_sets=Rows(ImportedViewSet, self.done),
            findings=Rows(LegacyFinding, self.findings),
            temporary_files=self.queued,
            run_id=run_id,
        )


def _count(counts: _Counts, prepared: Sequence[Prepared], *, serves: bool) -> None:
    files = [one.file for one in prepared if one.file is not None]
    counts.add(files=len(files), rows=sum(f.row_count for f in files), size_bytes=sum(f.size_bytes for f in files))
    if serves:
        counts.add(partitions=len(files), empty_partitions=len(prepared) - len(files))
    else:
        counts.add(incompatible_partitions=len(prepared))


def _finding(kind: str, view_set: str, message: str, *, path: str | None = None, kept: bool = False) -> LegacyFinding:
    """A finding that does not concern a single partition."""
    return LegacyFinding(
        kind=kind, view_set_name=view_set, view_instance_id="", insert_range="", schema_hash="", file_path=path, message=message, kept=kept
    )  # fmt: skip


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
