"""Rolling a table back to a snapshot: its rows and columns are restored in one new group. Files are copied: a path is never reused."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakebed.admin.audit import find_actor
from lakebed.core.errors import InvalidValueError, RollbackRefusedError
from lakebed.core.names import GLOBAL_INSTANCE, TableName
from lakebed.core.results import single_result
from lakebed.core.schema.restoring import list_clashes, list_lost_names, restore_fields
from lakebed.core.schema.schema import Schema
from lakebed.core.times import TimeRange
from lakebed.parquet.capture import capture
from lakebed.registry.maintenance.runs import add_run, finish_run, require_allowed
from lakebed.registry.partitions.publish import Replacement, first_answer, publish_replacements
from lakebed.registry.partitions.replace import list_visible_partitions
from lakebed.registry.partitions.retire import load_partitions_to_retire
from lakebed.registry.queries.plans import AtGroup
from lakebed.registry.queries.time_travel import go_back
from lakebed.registry.schema.predicates import VISIBLE
from lakebed.registry.snapshots.history import has_instances
from lakebed.registry.tables.groups import list_files_at_group
from lakebed.registry.tables.lake_tables import require_table
from lakebed.registry.tables.versions import list_versions, plan_evolution, require_serving
from lakebed.registry.tables.view_sets import list_all_definitions, version_of
from lakebed.staging.partition import partition_of, statistics_spec_of
from lakebed.staging.write import naming_recovery, open_writing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from lakebed.core.partitions import NewPartition
    from lakebed.core.rows import TableFiles
    from lakebed.core.tables.view_sets import Definition
    from lakebed.registry.partitions.publish import Published
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Reader, Transaction
    from lakebed.staging.write import Writing
    from lakebed.storage.protocol import Storage

JOB = "rollback"  # stored in runs: never rename


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """The table after the rollback, or what `dry_run` would give. Views in `broken_views` name a column that is gone or became ambiguous."""

    table: TableName
    snapshot_id: int
    files: int
    schema: Schema = field(repr=False)
    schema_version: int
    broken_views: tuple[str, ...] = ()
    group: int | None = None
    journal_number: int | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    table: LakeTable  # the table now
    restored: LakeTable  # the table after the rollback
    evolve: Callable[[Transaction], None]
    files: tuple[TableFiles, ...]
    versions: dict[str, LakeTable]  # by schema hash: the versions under which the files were written
    replacing: frozenset[int]
    result: Rollback


def roll_back_to(
    registry: Registry, storage: Storage, name: str, snapshot_id: int, *, dry_run: bool = False, actor: str | None = None
) -> Rollback:
    """Replace the visible rows and the columns of a plain table by those of a kept snapshot, in one transaction.

    Every column keeps its field id. Columns added since the snapshot stay and are NULL in the old rows; a widened type stays wide; a
    dropped column is restored with its values, as optional. The rollback is refused if another column now has an old name. Rows that
    other writers insert meanwhile stay; if a partition is retired meanwhile, the rollback fails with a conflict and changes nothing.
    The copies share their bytes with the old files where the storage has hard links.
    """
    plan = _plan(registry, require_table(registry, TableName.parse(name)), snapshot_id)
    if dry_run:
        return replace(plan.result, dry_run=True)
    asked_by = find_actor(actor)
    with registry.write() as tx:
        require_allowed(tx, JOB, asked_by)
    with open_writing(registry, storage, plan.table, kind="rollback", held_back=False) as writing:
        with naming_recovery(registry, writing.operation.op_id):
            partitions = _copy(storage, plan, writing)
        published = writing.published = _publish(registry, plan, writing, partitions, actor=asked_by)
    return replace(plan.result, group=published.group, journal_number=published.journal_number)


def _plan(registry: Registry, table: LakeTable, snapshot_id: int) -> _Plan:
    replacing = list_visible_partitions(registry, table.table_id, instance=GLOBAL_INSTANCE)
    with registry.read() as reader:
        group, then = _require_snapshot(reader, table, snapshot_id)
        files = tuple(list_files_at_group(reader, table.table_id, group))
        versions = list_versions(reader, table.table_id)
        history = [Schema.from_json(version.schema) for version in versions if version.standing in VISIBLE]
        schema = _restore(table, then, history, snapshot_id)
        broken = list_broken_views(reader, table, schema)
    restored, evolve = plan_evolution(table, schema, versions=versions) if schema != table.schema else (table, _keep(table))
    result = Rollback(
        table=table.name, snapshot_id=snapshot_id, files=len(files), schema=schema, schema_version=restored.metadata.schema_version,
        broken_views=broken,
    )  # fmt: skip
    written_under = {version.schema_hash: version_of(table, version) for version in versions}
    return _Plan(
        table=table, restored=restored, evolve=evolve, files=files, versions=written_under, replacing=replacing, result=result
    )  # fmt: skip


def _require_snapshot(reader: Reader, table: LakeTable, snapshot_id: int) -> tuple[int, LakeTable]:
    if table.row.kind != "table":
        message = f"{table.name} is a view set: regenerate it from its source instead"
        raise InvalidValueError(message)
    if has_instances(reader, table.table_id):
        message = f"{table.name} has several instances, and the files of a snapshot do not record theirs: insert the rows again instead"
        raise InvalidValueError(message)
    moment = go_back(reader, table, snapshot_id)
    if not isinstance(moment.at, AtGroup):
        message = f"{table.name}: {snapshot_id} is a journal number; give a snapshot id that `lake.snapshots` lists"
        raise InvalidValueError(message)
    return moment.at.group, moment.table


def _restore(table: LakeTable, then: LakeTable, history: Sequence[Schema], snapshot_id: int) -> Schema:
    fields = restore_fields(then.schema, table.schema, history=history)
    if clashes := list_clashes(fields):
        raise RollbackRefusedError(str(table.name), snapshot_id=snapshot_id, clashes=tuple(map(str, clashes)))
    return Schema(fields=fields)


def _keep(table: LakeTable) -> Callable[[Transaction], None]:
    return lambda tx: require_serving(tx, table)


def _copy(storage: Storage, plan: _Plan, writing: Writing) -> list[NewPartition]:
    """One partition per version under which the files were written: compaction and deletion rely on it."""
    if not plan.files:
        return [partition_of(plan.restored, [])]
    for file in plan.files:
        storage.copy(file.file_path, writing.new_path(partition_path=file.partition_path))
    storage.sync_tree(writing.directory)
    grouped = defaultdict(list)
    for file, path in zip(plan.files, writing.paths, strict=True):
        under = plan.versions[file.schema_hash]
        captured = capture(storage, path, under.schema, spec=statistics_spec_of(under), partition_path=file.partition_path)
        grouped[file.schema_hash].append(captured)
    return [partition_of(plan.versions[key], files) for key, files in grouped.items()]


def _publish(registry: Registry, plan: _Plan, writing: Writing, partitions: Sequence[NewPartition], *, actor: str) -> Published:
    name, operation, result = plan.table.name, writing.operation, plan.result

    def body(tx: Transaction) -> Published:
        plan.evolve(tx)
        table = tx.require(name)
        load_partitions_to_retire(tx, table, plan.replacing, exactly=True)
        placed = []
        for partition in partitions:
            slot = tx.allocate_slot(table)
            placed.append(Replacement(partition=replace(partition, insert_range=TimeRange(begin=slot, end=slot + 1))))
        published = publish_replacements(tx, placed, operation, reason="replaced", replacing=plan.replacing)
        asked = {"table": str(name), "snapshot_id": result.snapshot_id, "files": result.files}
        run_id = add_run(tx, JOB, actor=actor, plan=asked, table_id=plan.table.table_id)
        done = {"schema_version": result.schema_version, "group": published.group, "broken_views": list(result.broken_views)}
        finish_run(tx, run_id, state="done", result=done)
        return published

    return first_answer(registry, operation, lambda: registry.transact(body, tables=[name], op_id=operation.op_id))


def list_broken_views(reader: Reader, table: LakeTable, schema: Schema) -> tuple[str, ...]:
    """View sets whose query names a column that `schema` lacks, or one that becomes ambiguous because another table has it too."""
    lost = {name.lower() for name in list_lost_names(table.schema, schema)}
    gained = {name.lower() for name in list_lost_names(schema, table.schema)}
    if not lost and not gained:
        return ()
    reading = [(view, one) for view, one in list_all_definitions(reader) if table.name in one.inputs]
    return tuple(sorted({str(view) for view, one in reading if _breaks(one, table.name, lost=lost, gained=gained)}))


def _breaks(definition: Definition, table: TableName, *, lost: AbstractSet[str], gained: AbstractSet[str]) -> bool:
    import sqlglot  # noqa: PLC0415 - the parser is needed only for tables with views
    from sqlglot import exp  # noqa: PLC0415

    tree = sqlglot.parse_one(definition.sql, read="spark")
    others = {t.alias_or_name.lower() for t in tree.find_all(exp.Table) if t.db and f"{t.db}.{t.name}".lower() != str(table).lower()}
    if lost and any(isinstance(star.parent, exp.Select | exp.Column) for star in tree.find_all(exp.Star)):  # excludes the star of count(*)
        return True
    ambiguous = gained if len(definition.inputs) > 1 else frozenset[str]()
    columns: list[exp.Column | exp.Dot] = [*tree.find_all(exp.Column), *tree.find_all(exp.Dot)]
    for column in columns:
        names = [part.name.lower() for part in column.parts]
        if names[0] not in others and not lost.isdisjoint(names):
            return True
        if len(names) == 1 and names[0] in ambiguous:
            return True
    return False
