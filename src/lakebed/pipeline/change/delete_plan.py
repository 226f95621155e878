"""Plans a delete: which files hold matching rows, from one snapshot of the registry and by reading the undecided files."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from lakebed.core.errors import FileChangedError, InvalidValueError, PathRefusedError
from lakebed.pipeline.change.moments import freeze
from lakebed.pipeline.read.planning import ScanRequest, require_in, resolve_scan
from lakebed.pipeline.read.strict import find_fully_matching, list_strict_metrics
from lakebed.pipeline.rows.scan import FILE, frame_of, frame_with_files
from lakebed.pipeline.spark.errors import spark_translated
from lakebed.pipeline.spark.interrupts import interruptible
from lakebed.pipeline.sql.filters import parse_where
from lakebed.registry.partitions.replace import list_holders
from lakebed.registry.queries.plans import read_plan
from lakebed.registry.tables.versions import list_versions
from lakebed.registry.tables.view_sets import list_live_files, version_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.core.names import TableName
    from lakebed.pipeline.context import Context
    from lakebed.pipeline.read.strict import StrictMetrics
    from lakebed.pipeline.sql.filters import Where
    from lakebed.registry.partitions.replace import LivePartition
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.tables.view_sets import LiveFile
    from lakebed.registry.transaction import Reader

_UNSTEADY = frozenset({
    "rand", "random", "randn", "uuid", "shuffle", "uniform", "randstr", "monotonically_increasing_id", "spark_partition_id",
    "input_file_name", "input_file_block_start", "input_file_block_length", "now", "curdate", "current_time", "current_timestamp",
    "current_date", "localtimestamp", "unix_timestamp",
})  # fmt: skip
_UNSTEADY_NODES = (
    exp.Rand, exp.Randn, exp.Uuid, exp.CurrentDate, exp.CurrentTime, exp.CurrentTimestamp, exp.CurrentDatetime, exp.Localtimestamp
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRewrite:
    """One partition that loses rows: whole files, and matching rows of others; its other files are unchanged."""

    partition: LivePartition
    dropped: tuple[LiveFile, ...]
    rewritten: tuple[LiveFile, ...]
    kept: tuple[LiveFile, ...]
    remaining_rows: int  # rows of `rewritten` that stay

    @property
    def files(self) -> tuple[LiveFile, ...]:
        return (*self.dropped, *self.rewritten, *self.kept)

    @property
    def rows(self) -> int:
        """The number of rows to delete."""
        return sum(file.row_count for file in (*self.dropped, *self.rewritten)) - self.remaining_rows

    @property
    def is_emptied(self) -> bool:
        return not self.rewritten and not self.kept


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePlan:
    """`table` as of planning; `versions` are those under which its partitions were written. `examined` files were read to decide."""

    table: LakeTable
    where: str
    rewrites: tuple[PartitionRewrite, ...]
    versions: Mapping[str, LakeTable] = field(repr=False)
    examined: int = 0

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.rewrites)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidates:
    table: LakeTable
    versions: Mapping[str, LakeTable]
    partitions: Sequence[LivePartition]
    files: Sequence[LiveFile]  # every live file of the partitions
    suspected: frozenset[str]
    matching: frozenset[str]


def plan_delete(context: Context, name: TableName, where: str, *, instance: str | None) -> DeletePlan:
    """Changes nothing. The caller holds a lease, so that planned files can be read. `now()` means the time of this call."""
    zone = context.source.zone
    context.lease.hold([context.registry.require_table_id(name)])
    with context.registry.read() as reader:
        table = require_in(reader, context, name)
        condition = parse_where(freeze(context, where, [column.name for column in table.schema.fields]))
        _require_condition(context, table, condition)
        request = ScanRequest(name=name, find=lambda found: condition.find_filter(found.schema, zone), instance=instance)
        found = _read_candidates(reader, request, table, list_strict_metrics(condition, table, zone))
    doubtful = [file for file in found.files if file.path in found.suspected - found.matching]
    matched = _count_matches(context, table, condition.text, doubtful)
    matched.update({file.path: file.row_count for file in found.files if file.path in found.matching})
    owned: dict[int, list[LiveFile]] = defaultdict(list)
    for file in found.files:
        owned[file.partition_id].append(file)
    rewrites = [
        part for partition in found.partitions if (part := _plan_rewrite(partition, owned[partition.partition_id], matched)) is not None
    ]
    return DeletePlan(table=table, where=condition.text, rewrites=tuple(rewrites), versions=found.versions, examined=len(doubtful))


def _require_condition(context: Context, table: LakeTable, where: Where) -> None:
    """Rows are read twice, to count and to rewrite, so a condition must give the same result each time."""
    if where.tree is None:
        message = f"{table.name}: the condition {where.text!a} cannot be parsed: write it as after WHERE"
        raise InvalidValueError(message)
    for node in where.tree.walk():
        if isinstance(node, exp.Query | exp.Subquery):
            message = f"{table.name}: the condition of a delete must not contain a query: collect its values first and list them"
            raise InvalidValueError(message)
        if isinstance(node, _UNSTEADY_NODES) or (isinstance(node, exp.Anonymous) and node.name.lower() in _UNSTEADY):
            message = f"{table.name}: {node.sql(dialect='spark')!a} may change between two evaluations: give its value as a literal"
            raise InvalidValueError(message)
    with spark_translated(f"the condition on {table.name}"):
        frame_of(context, table.schema, []).where(where.text).schema  # noqa: B018 - Spark analyses it here


def _read_candidates(reader: Reader, request: ScanRequest, table: LakeTable, metrics: Sequence[StrictMetrics] | None) -> _Candidates:
    scan = resolve_scan(reader, request, table)
    used = scan.used
    plan = read_plan(
        reader, request.name, ranges=used.ranges, nulls=used.nulls, partition_paths=scan.partition_paths, instance=request.instance
    )  # fmt: skip
    partitions = list_holders(reader, table.table_id, plan.paths)
    files = list_live_files(reader, [partition.partition_id for partition in partitions]) if partitions else []
    suspected = frozenset(plan.paths)
    matching = find_fully_matching(reader, request, scan, metrics, [file for file in files if file.path in suspected])
    versions = {v.schema_hash: version_of(table, v) for v in list_versions(reader, table.table_id)}
    return _Candidates(table=table, versions=versions, partitions=partitions, files=files, suspected=suspected, matching=matching)


def _count_matches(context: Context, table: LakeTable, where: str, files: Sequence[LiveFile]) -> dict[str, int]:
    """Matching rows per file; a condition that is NULL for a row does not match it."""
    if not files:
        return {}
    with spark_translated(f"looking for rows of {table.name} to delete"), interruptible():
        frame = frame_with_files(context, table.schema, [file.path for file in files])
        found = frame.where(where).groupBy(FILE).count().collect()
    matched = {context.storage.canonical(row[0]): int(row[1]) for row in found}
    _require_known(matched, files)
    return matched


def _require_known(matched: Mapping[str, int], files: Sequence[LiveFile]) -> None:
    """Rows whose file is not recognized would silently stay."""
    known = {file.path: file.row_count for file in files}
    for path, rows in matched.items():
        if path not in known:
            raise PathRefusedError(path, reason="Spark spells it differently from the registry: register the file under a plain name")
        if rows > known[path]:
            raise FileChangedError(path, reason=f"it holds more rows than the {known[path]} registered ones; run `lakebed check --deep`")


def _plan_rewrite(partition: LivePartition, files: Sequence[LiveFile], matched: Mapping[str, int]) -> PartitionRewrite | None:
    """How the files of one partition are changed; None if it loses no row."""
    kept = tuple(file for file in files if not matched.get(file.path))
    dropped = tuple(file for file in files if matched.get(file.path) == file.row_count)
    rewritten = tuple(file for file in files if 0 < matched.get(file.path, 0) < file.row_count)
    if not dropped and not rewritten:
        return None
    remaining_rows = sum(file.row_count - matched[file.path] for file in rewritten)
    return PartitionRewrite(partition=partition, dropped=dropped, rewritten=rewritten, kept=kept, remaining_rows=remaining_rows)
