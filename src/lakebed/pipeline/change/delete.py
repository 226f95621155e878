"""`delete`: removes rows that satisfy a condition from a plain table, in one swap that succeeds as a whole or changes nothing."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from lakebed.admin import MAX_PARTITIONS
from lakebed.admin.audit import find_actor
from lakebed.core.errors import InvalidValueError, RewriteMismatchError, TooManyPartitionsError
from lakebed.core.fingerprints import make_fingerprint
from lakebed.core.names import TableName, require_instance
from lakebed.core.partitions import Slice
from lakebed.core.results import single_result
from lakebed.core.schema.schema import RESERVED
from lakebed.pipeline.change.delete_plan import plan_delete
from lakebed.pipeline.change.versions import current_columns
from lakebed.pipeline.rows.scan import stored_rows
from lakebed.pipeline.rows.types import quote
from lakebed.pipeline.spark.errors import spark_translated
from lakebed.pipeline.write.files import write_physical
from lakebed.pipeline.write.spark_engine import into_files
from lakebed.registry.maintenance.runs import add_run, finish_run
from lakebed.registry.partitions.publish import Published, Replacement, first_answer, publish_replacements
from lakebed.registry.tables.lake_tables import require_table
from lakebed.registry.tables.view_sets import guard_files
from lakebed.staging.partition import partition_of
from lakebed.staging.write import Staging, staging
from lakebed.storage.paths import below

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from lakebed.parquet.capture import CapturedFile
    from lakebed.pipeline.change.delete_plan import DeletePlan, PartitionRewrite
    from lakebed.pipeline.context import Context, MetadataMode
    from lakebed.registry.snapshots.waiting import Commits
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Transaction

JOB = "delete"  # stored in runs and operations: never rename
_ROW = f"{RESERVED}row"
_PARALLEL = 4


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteResult:
    """What a delete did, or with `dry_run` would do. If no row matches, nothing is done, and `note` says so.

    Dropped files held only matching rows. `group` and `snapshot_id` are known after a `sync` delete, or after `wait`.
    """

    table: TableName
    where: str
    rows: int
    partitions: int
    partitions_emptied: int
    files_dropped: int
    files_rewritten: int
    files_written: int = 0
    files_examined: int = 0
    dry_run: bool = False
    op_id: str | None = None
    group: int | None = None
    journal_number: int | None = None
    snapshot_id: int | None = None
    note: str = ""
    seconds: float = field(default=0.0, compare=False)
    timings: Mapping[str, float] = field(default_factory=dict, compare=False)
    table_id: int = field(default=0, repr=False)
    commits: Commits | None = field(default=None, repr=False, compare=False)

    def wait(self, timeout_s: float | None = None) -> Self:
        """Wait for a snapshot without the rows. A timeout loses nothing: wait again."""
        if self.commits is None or self.group is None:
            return self
        return replace(self, snapshot_id=self.commits.wait_for_group(self.table_id, self.group, timeout_s=timeout_s))


def delete(
    context: Context,
    name: str,
    where: str,
    *,
    dry_run: bool = False,
    instance: str | None = None,
    max_partitions: int = MAX_PARTITIONS,
    metadata_mode: MetadataMode | None = None,
    actor: str | None = None,
) -> DeleteResult:
    """Delete the rows of a plain table for which `where` is true; rows for which it is NULL stay.

    Files whose rows all match are dropped, if possible without opening them; the remaining rows of the others are rewritten under
    their version, slice and partition paths. Rows written meanwhile stay. Raises a conflict, with nothing changed, if another writer
    changed one of these partitions first. JSON files that lose rows become Parquet.
    """
    began = time.monotonic()
    table = require_table(context.registry, TableName.parse(name))
    _require_arguments(table, where, instance)
    with context.lease.reading():
        plan = plan_delete(context, table.name, where, instance=instance)
        summary = _summarize(context, plan, dry_run=dry_run)
        if dry_run or not plan.rewrites:
            return replace(summary, seconds=time.monotonic() - began)
        if summary.partitions > max_partitions:
            raise TooManyPartitionsError(str(table.name), found=summary.partitions, allowed=max_partitions)
        done = _carry_out(context, plan, summary, actor=find_actor(actor), instance=instance)
    done = replace(done, seconds=time.monotonic() - began)
    return done.wait() if (metadata_mode or context.metadata_mode) == "sync" else done


def _require_arguments(table: LakeTable, where: object, instance: str | None) -> None:
    if table.row.kind != "table":
        message = f"{table.name} is a view set: its rows come from its definition; delete them from its source and materialize it again"
        raise InvalidValueError(message)
    if not isinstance(where, str) or not where.strip():
        message = f'{table.name}: say which rows to delete, such as where="id = 7"; where="true" deletes all of them'
        raise InvalidValueError(message)
    if instance is not None:
        require_instance(instance)


def _summarize(context: Context, plan: DeletePlan, *, dry_run: bool) -> DeleteResult:
    rows = plan.rows
    note = "" if rows else f"no row of {plan.table.name} satisfies {plan.where!a}, among {plan.table.row.row_count}: nothing is changed"
    return DeleteResult(
        table=plan.table.name,
        where=plan.where,
        rows=rows,
        partitions=len(plan.rewrites),
        partitions_emptied=sum(part.is_emptied for part in plan.rewrites),
        files_dropped=sum(len(part.dropped) for part in plan.rewrites),
        files_rewritten=sum(len(part.rewritten) for part in plan.rewrites),
        files_examined=plan.examined,
        dry_run=dry_run,
        note=note,
        table_id=plan.table.table_id,
        commits=context.commits,
    )


def _carry_out(context: Context, plan: DeletePlan, summary: DeleteResult, *, actor: str, instance: str | None) -> DeleteResult:
    with staging(context.registry, context.storage, plan.table, kind=JOB, ahead=True) as work:
        written = _rewrite_all(context, work, plan)
        count = sum(map(len, written))
        if count:
            with work.stage("sync"):
                context.storage.sync_tree(work.directory)
        replacements = [_replacement(plan.table, part, files) for part, files in zip(plan.rewrites, written, strict=True)]
        audit = _Audit(actor, {"table": str(summary.table), "where": summary.where, "instance": instance}, _counts(summary, count))
        with work.stage("registry"):
            work.published = published = _publish(context, work, plan, replacements, audit)
    return replace(
        summary, files_written=count, op_id=work.operation.op_id, group=published.group, journal_number=published.journal_number,
        timings=work.timings,
    )  # fmt: skip


# -- the rows that stay -----------------------------------------------------------------------


def _rewrite_all(context: Context, work: Staging, plan: DeletePlan) -> list[list[CapturedFile]]:
    """One job per partition, because a file belongs to one partition; several run at once."""
    orders = [(part, _beside(work, part, plan)) for part in plan.rewrites]
    if sum(bool(part.rewritten) for part in plan.rewrites) <= 1:  # in this thread, which receives interrupts
        written = [_rewrite(context, plan, part, own) for part, own in orders]
    else:
        written = _rewrite_parallel(context, plan, orders)
    for _, own in orders:
        for stage, seconds in own.timings.items():
            work.timings[stage] = work.timings.get(stage, 0.0) + seconds
    return written


def _rewrite_parallel(context: Context, plan: DeletePlan, orders: Sequence[tuple[PartitionRewrite, Staging]]) -> list[list[CapturedFile]]:
    with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="lakebed-delete") as pool:
        futures = [pool.submit(_rewrite, context, plan, part, own) for part, own in orders]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # what runs already ends by itself, and the block waits for it
            raise


def _beside(work: Staging, part: PartitionRewrite, plan: DeletePlan) -> Staging:
    """The same operation, with a subdirectory for the files of one partition."""
    table = plan.versions[part.partition.schema_hash]
    return Staging(table, work.operation, below(work.directory, str(part.partition.partition_id)))


def _rewrite(context: Context, plan: DeletePlan, part: PartitionRewrite, own: Staging) -> list[CapturedFile]:
    if not part.rewritten:
        return []
    with spark_translated(f"reading rows of {plan.table.name} that stay"):
        frame = into_files(_survivors(context, plan, part, own.table), own.table, size_bytes=sum(f.size_bytes for f in part.rewritten))
    written = write_physical(context, own, own.table, frame)
    found = sum(captured.file.row_count for captured in written)
    if found != part.remaining_rows:
        raise RewriteMismatchError(_name(plan.table, part), expected=part.remaining_rows, found=found)
    return written


def _survivors(context: Context, plan: DeletePlan, part: PartitionRewrite, version: LakeTable) -> DataFrame:
    """Stored rows, filtered by current names: both sets of columns exist while the condition is evaluated."""
    stored = stored_rows(context, version.schema, [file.path for file in part.rewritten])
    whole = F.struct(*(F.col(quote(column)) for column in stored.columns)).alias(_ROW)
    asked = stored.select(whole, *current_columns(version.schema, plan.table.schema))
    stays = asked.where(~F.coalesce(F.expr(plan.where), F.lit(False)))  # noqa: FBT003 - a literal of SQL
    return stays.select(f"{_ROW}.*")


def _name(table: LakeTable, part: PartitionRewrite) -> str:
    return str(Slice(table=table.name, instance=part.partition.instance, insert_range=part.partition.insert_range))


# -- the swap ---------------------------------------------------------------------------------


def _replacement(table: LakeTable, part: PartitionRewrite, written: Sequence[CapturedFile]) -> Replacement:
    """The same slice with the remaining rows; an empty partition records that the slice was processed."""
    partition = partition_of(
        table,
        written,
        schema_hash=part.partition.schema_hash,
        fingerprint=make_fingerprint(has_rows=not part.is_emptied),
        instance=part.partition.instance,
        insert_range=part.partition.insert_range,
        rows_are_ours=True,
        event_range=part.partition.event_range,
    )
    return Replacement(
        partition=partition,
        retired_id=part.partition.partition_id,
        kept=tuple(file.file_id for file in part.kept),
        kept_rows=sum(file.row_count for file in part.kept),
        kept_events=part.partition.event_range,
    )


@dataclass(frozen=True, slots=True)
class _Audit:
    actor: str
    plan: dict[str, Any]
    result: dict[str, Any]


def _publish(context: Context, work: Staging, plan: DeletePlan, replacements: Sequence[Replacement], audit: _Audit) -> Published:
    """The partitions to retire are compared by partition and by file, under the table's lock: a writer that changed one of them wins."""
    table = plan.table
    ids = [part.partition.partition_id for part in plan.rewrites]
    guard = guard_files(table.name, partitions=ids, files=[file.file_id for part in plan.rewrites for file in part.files])

    def body(tx: Transaction) -> Published:
        guard(tx)
        published = publish_replacements(tx, replacements, work.operation, reason="deleted")
        run_id = add_run(tx, JOB, actor=audit.actor, plan=audit.plan, table_id=table.table_id)
        finish_run(tx, run_id, state="done", result={**audit.result, "group": published.group, "op_id": work.operation.op_id})
        return published

    registry = context.registry
    return first_answer(
        registry, work.operation, lambda: registry.transact(body, tables=[table.name], op_id=work.operation.op_id)
    )  # fmt: skip


def _counts(summary: DeleteResult, files_written: int) -> dict[str, Any]:
    return {
        "rows": summary.rows, "partitions": summary.partitions, "files_dropped": summary.files_dropped, "files_rewritten": summary.files_rewritten,
        "files_written": files_written,
    }  # fmt: skip
