"""Adopting a directory of Parquet files as a new table or into an existing one; a second run adds what is new."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lakebed.admin.audit import find_actor
from lakebed.adopt.places import open_place
from lakebed.adopt.plan import describe_step, plan_adoption, source_key
from lakebed.adopt.results import COPY, EMPTY, IN_PLACE, LINK, REFUSED, REWRITE, AdoptedFile, Adoption, AdoptRequest
from lakebed.adopt.schemas import describe_columns
from lakebed.core.errors import AdoptionRefusedError, FileConflictError, LakebedError
from lakebed.core.results import Rows
from lakebed.parquet.capture import capture_foreign
from lakebed.parquet.rewrite.conform import ForeignRows, rewrite_foreign
from lakebed.parquet.rewrite.rewriter import WriteOptions
from lakebed.parquet.rewrite.target import TargetSchema
from lakebed.registry.files.adoption import SourceStamp, list_adopted, remember_adopted
from lakebed.registry.files.known_paths import list_swept
from lakebed.registry.files.left_out import LeftOut, drop_records, record_left_out
from lakebed.registry.maintenance.open_runs import OpenRun, keeping_run
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.tables.lake_tables import TableSpec, create_table, require_table
from lakebed.registry.tables.names import resolve_name
from lakebed.registry.tables.versions import evolve_schema
from lakebed.staging.partition import partition_of
from lakebed.staging.register import foreign_statistics_spec, place_file
from lakebed.staging.write import open_writing
from lakebed.storage.intake import bring_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakebed.adopt.plan import AdoptionPlan, FileStep, Target
    from lakebed.core.names import TableName
    from lakebed.parquet.capture import CapturedFile
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Transaction
    from lakebed.staging.write import Writing
    from lakebed.storage.protocol import Storage


TARGET_BYTES = 128 << 20
_SOURCE = "adopt"  # stored with files that are left out: never rename
_IN_WAREHOUSE = frozenset({IN_PLACE, REWRITE, REFUSED, EMPTY})
_TO_COME = "not yet adopted: run `lakebed adopt` again"


def adopt(registry: Registry, storage: Storage, table: str, directory: str, request: AdoptRequest) -> Adoption:
    """Register every Parquet file of `directory` in `table`, which is created from their footers if it does not exist.

    Files in the warehouse stay in place, others are linked or copied, and files with columns that exist only in their path are
    rewritten with those columns. Each batch of files becomes visible as a whole or not at all; after a crash, a second run
    finishes the work. If any file is refused, nothing is done, unless the request skips refused files.
    """
    name = resolve_name(registry, table)
    plan = plan_adoption(registry, storage, name, directory, request)
    if request.dry_run:
        return _summarize(name, plan, request)
    refused = [file for file in plan.list_files() if file.how == REFUSED]
    if refused and not request.skip_refused:
        raise AdoptionRefusedError(str(name), files=tuple((file.path, file.reason) for file in refused))
    taken = [step for step in plan.steps if step.is_taken]
    if not taken or plan.target.schema is None:
        _record(registry, storage, plan, None)
        return _summarize(name, plan, request)
    target = _prepare(registry, name, plan.target, request)
    _record(registry, storage, plan, target)
    stored_plan = {"table": str(name), "directory": plan.walk.root, "files": len(taken), "rows": sum(s.row_count for s in taken)}
    run = _Run()
    run.kept = OpenRun("adopt", actor=find_actor(request.actor), plan=stored_plan, table_id=target.table_id, so_far=run.total)
    with keeping_run(registry, run.kept):
        _adopt_all(_Adopting(registry, storage, open_place(storage, plan.walk.root), target, request), taken, run)
    return _summarize(name, plan, request, run=run)


@dataclass(slots=True)
class _Run:
    """The progress of one call; `outcomes` replace the plan for files that turned out otherwise."""

    kept: OpenRun = field(init=False)
    partition_ids: list[int] = field(default_factory=list)
    outcomes: dict[str, AdoptedFile] = field(default_factory=dict)

    def total(self, more: int = 0) -> dict[str, Any]:
        return {"partitions": len(self.partition_ids) + more}


def _prepare(registry: Registry, name: TableName, target: Target, request: AdoptRequest) -> LakeTable:
    """The table as the plan wants it."""
    assert target.schema is not None  # noqa: S101 - there are files
    if target.table is None:
        spec = TableSpec(
            name=name,
            schema=target.schema,
            event_time=target.event_time,
            partition_by=target.partition_by,
            sort_by=tuple(request.sort_by),
        )
        return create_table(registry, spec)
    if target.schema != target.table.schema:
        wanted = target.schema
        registry.transact(lambda tx: evolve_schema(tx, name, wanted), tables=[name])
    return require_table(registry, name)


def _record(registry: Registry, storage: Storage, plan: AdoptionPlan, table: LakeTable | None) -> None:
    """Record, before the first file is taken, files of the warehouse that are not (yet) adopted, so that none counts as an orphan."""
    out = [step for step in plan.steps if step.how in _IN_WAREHOUSE and storage.paths.holds(step.file.path)]
    files = {step.file.path: LeftOut(size_bytes=step.file.size_bytes, reason=step.reason or _TO_COME) for step in out}
    record_left_out(registry, files, source=_SOURCE, table_id=0 if table is None else table.table_id)


# -- taking -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Adopting:
    registry: Registry
    storage: Storage
    place: Storage
    table: LakeTable
    request: AdoptRequest


def _adopt_all(adopting: _Adopting, steps: Sequence[FileStep], run: _Run) -> None:
    with adopting.registry.write() as tx:
        run.kept.begin(tx)
    size = max(1, adopting.request.batch_files)
    for start in range(0, len(steps), size):
        batch = steps[start : start + size]
        if (partition_id := _adopt_batch(adopting, batch, run, is_last=start + len(batch) == len(steps))) is not None:
            run.partition_ids.append(partition_id)
        if adopting.request.progress is not None:
            adopting.request.progress(start + len(batch), len(steps))
    if not run.kept.is_closed:  # every file of the last batch was refused after all
        with adopting.registry.write() as tx:
            run.kept.finish(tx, result=run.total())


def _adopt_batch(adopting: _Adopting, steps: Sequence[FileStep], run: _Run, *, is_last: bool) -> int | None:
    """One batch: intent, files, capture, one transaction; None when every file of it was refused after all."""
    registry, storage, table = adopting.registry, adopting.storage, adopting.table
    _require_unswept(registry, storage, steps)
    with open_writing(registry, storage, table, kind="adopt") as writing:
        captured, kept = _bring(adopting, writing, steps, run)
        if not captured:
            return None
        if writing.paths:
            storage.sync_tree(writing.directory)
        partition = partition_of(table, captured, instance=adopting.request.instance)
        remember = _remember(table, writing, kept)

        def guard(tx: Transaction) -> None:
            remember(tx)
            if is_last:
                run.kept.finish(tx, result=run.total(1))

        done = writing.published = publish_partition(registry, partition, writing.operation, guard=guard)
        return done.partition_id


def _require_unswept(registry: Registry, storage: Storage, steps: Sequence[FileStep]) -> None:
    inside = [step.file.path for step in steps if storage.paths.holds(step.file.path)]
    if swept := list_swept(registry, inside):
        raise FileConflictError(swept[0], reason="a sweep queued it for deletion: copy it out of the warehouse and adopt the copy")


def _remember(table: LakeTable, writing: Writing, steps: Sequence[FileStep]) -> Callable[[Transaction], None]:
    """Under the table's lock: of two simultaneous runs, the second finds the files that the first has adopted."""
    sources = {
        source_key(s.file.path): SourceStamp(size_bytes=s.file.size_bytes, modified_ns=s.file.modified_ns)
        for s in steps
        if s.how != IN_PLACE
    }

    def guard(tx: Transaction) -> None:
        drop_records(tx, [s.file.path for s in steps])
        taken = list_adopted(tx, table.table_id).keys() & sources.keys()
        if taken:
            path = next(s.file.path for s in steps if source_key(s.file.path) in taken)
            raise FileConflictError(path, reason="another run adopted it meanwhile; nothing of this batch was changed, run again")
        if sources:
            remember_adopted(tx, table.table_id, writing.operation.op_id, sources)

    return guard


def _bring(adopting: _Adopting, writing: Writing, steps: Sequence[FileStep], run: _Run) -> tuple[list[CapturedFile], list[FileStep]]:
    """Rewritten files, then the others unchanged: links and copies in the operation's directory, the rest in place."""
    captured: list[CapturedFile] = []
    kept: list[FileStep] = []
    for step in (s for s in steps if s.how == REWRITE):
        try:
            captured += _rewrite(adopting, writing, step)
        except LakebedError as exc:
            _give_up(adopting, step, exc, run)
        else:
            kept.append(step)
    whole = [s for s in steps if s.how != REWRITE]
    paths = [step.file.path if step.how == IN_PLACE else _transfer(adopting, writing, step, run) for step in whole]
    return [*captured, *_capture(adopting, paths)], [*kept, *whole]


def _give_up(adopting: _Adopting, step: FileStep, error: LakebedError, run: _Run) -> None:
    """A problem that only reading all rows could show. Unless refused files are skipped, the batch is undone."""
    if not adopting.request.skip_refused:
        raise AdoptionRefusedError(str(adopting.table.name), files=((step.file.path, str(error)),)) from error
    run.outcomes[step.file.path] = describe_step(replace(step, how=REFUSED, reason=str(error)))
    if adopting.storage.paths.holds(step.file.path):
        files = {step.file.path: LeftOut(size_bytes=step.file.size_bytes, reason=str(error))}
        record_left_out(adopting.registry, files, source=_SOURCE, table_id=adopting.table.table_id)


def _transfer(adopting: _Adopting, writing: Writing, step: FileStep, run: _Run) -> str:
    target = writing.new_path()
    if not bring_in(adopting.storage, step.file.path, target, link=step.how == LINK) and step.how == LINK:
        run.outcomes[step.file.path] = describe_step(replace(step, how=COPY))
    return target


def _capture(adopting: _Adopting, paths: Sequence[str]) -> Iterator[CapturedFile]:
    spec = foreign_statistics_spec(adopting.table, paths, adopt=True)
    for answer in capture_foreign(adopting.storage, paths, adopting.table.schema, spec=spec):
        if isinstance(answer, LakebedError):
            raise answer
        yield _place(adopting, answer)


def _place(adopting: _Adopting, captured: CapturedFile) -> CapturedFile:
    return place_file(captured, adopting.table, relative=adopting.storage.paths.relative(captured.file.path))


def _rewrite(adopting: _Adopting, writing: Writing, step: FileStep) -> list[CapturedFile]:
    table = adopting.table
    options = WriteOptions(
        target=TargetSchema(table.schema),
        spec=foreign_statistics_spec(table, [step.file.path], adopt=True),
        new_path=writing.new_path,
        target_bytes=TARGET_BYTES,
        compression=table.metadata.compression,
        sort_by=table.sort_columns,
    )
    with adopting.place.open_input(step.file.path) as opened:
        rows = ForeignRows(path=step.file.path, size_bytes=step.file.size_bytes, opened=opened, constants=step.constants)
        return [_place(adopting, captured) for captured in rewrite_foreign(adopting.storage, rows, options)]


# -- the summary ------------------------------------------------------------------------------


def _summarize(name: TableName, plan: AdoptionPlan, request: AdoptRequest, *, run: _Run | None = None) -> Adoption:
    outcomes = run.outcomes if run is not None else {}
    return Adoption(
        table=str(name),
        directory=plan.walk.root,
        dry_run=request.dry_run,
        creates_table=plan.target.table is None and plan.target.schema is not None,
        columns=describe_columns(plan.target.schema) if plan.target.schema is not None else (),
        partition_by=plan.target.partition_by,
        files=Rows(AdoptedFile, (outcomes.get(file.path, file) for file in plan.list_files())),
        skipped=plan.walk.skipped,
        differences=plan.target.differences,
        partition_ids=tuple(run.partition_ids) if run is not None else (),
        run_id=run.kept.run_id if run is not None else None,
    )
