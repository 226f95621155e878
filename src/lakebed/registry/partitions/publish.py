"""Publishing: a partition, its files, footers, column statistics, counters and journal, in one transaction."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, overload

from lakebed.core.errors import FileConflictError, InvalidValueError, OperationConflictError, PartitionConflictError, SchemaRefusedError
from lakebed.core.files import FileType
from lakebed.core.partitions import PARTITION_FORMAT, NewPartition, Slice, join_event_ranges
from lakebed.core.results import single_result
from lakebed.core.rows import TableFiles, list_columns
from lakebed.core.times import TimeRange
from lakebed.registry.backends.constraints import ConstraintRefusedError
from lakebed.registry.backends.statements import Insert
from lakebed.registry.files.footers import FOOTER_COLUMNS, footer_row
from lakebed.registry.files.operations import find_operation, find_result, register_statements
from lakebed.registry.files.range_index import range_statements
from lakebed.registry.partitions.append import try_append
from lakebed.registry.partitions.retire import DEFAULT_GRACE_US, PartitionsToRetire, load_partitions_to_retire, retire_loaded
from lakebed.registry.schema.predicates import VISIBLE
from lakebed.registry.tables.counters import count_by_path, update_table_statistics
from lakebed.registry.tables.groups import allocate_group

if TYPE_CHECKING:
    from collections import OrderedDict
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from lakebed.core.files import NewFile
    from lakebed.core.names import TableName
    from lakebed.registry.backends.statements import Statement, Value
    from lakebed.registry.files.operations import Operation
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import LockedTable, Transaction

    RetireAlso = Callable[[Transaction, LockedTable, int], None]  # retires under the table's lock, in the group it is given

_FILE_COLUMNS = list_columns(TableFiles)
_PARTITION_COLUMNS = (
    "id", "table_id", "scope_id", "view_instance_id", "begin_insert_time", "end_insert_time", "min_event_time", "max_event_time",
    "schema_hash", "source_data_hash", "lookup_hash", "fingerprint", "num_rows", "file_count", "partition_format_version", "updated",
)  # fmt: skip
_STATISTICS_COLUMNS = ("file_id", "field_id", "null_count", "value_count", "lower", "upper")
_FIND_SCOPE = "SELECT id FROM partition_scopes WHERE table_id = :t AND view_instance_id = :i AND schema_hash = :h"
_ADD_SCOPE = "INSERT INTO partition_scopes (table_id, view_instance_id, schema_hash) VALUES (:t, :i, :h) RETURNING id"
_OVERLAP = """SELECT begin_insert_time, end_insert_time FROM partitions
WHERE scope_id = :scope AND begin_insert_time < :end AND end_insert_time > :begin LIMIT 1"""
_REPARENT = "UPDATE table_files SET partition_id = :p, modified_at = :now WHERE id IN (:ids*)"
_MAX_SCOPES_CACHED = 4096


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The result of a publication."""

    partition_id: int
    table_id: int
    insert_range: TimeRange
    journal_number: int
    group: int | None
    first_file_id: int
    file_count: int

    @property
    def file_ids(self) -> range:
        return range(self.first_file_id, self.first_file_id + self.file_count)

    def to_json(self) -> str:
        """As the operation keeps it, so that a repeated batch gets the first answer."""
        values = (
            self.partition_id, self.table_id, self.insert_range.begin, self.insert_range.end, self.journal_number, self.group,
            self.first_file_id, self.file_count,
        )  # fmt: skip
        return json.dumps(values, separators=(",", ":"))  # as PostgreSQL writes it

    @classmethod
    def from_json(cls, stored: str) -> Published:
        partition_id, table_id, begin, end, number, group, first, count = json.loads(stored)
        return cls(
            partition_id=partition_id, table_id=table_id, insert_range=TimeRange(begin=begin, end=end), journal_number=number, group=group,
            first_file_id=first, file_count=count,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A partition in the place of another one of the same slice, if any, whose files `kept` move into it."""

    partition: NewPartition
    retired_id: int | None = None
    kept: tuple[int, ...] = ()
    kept_rows: int = 0
    kept_events: tuple[int, int] | None = None


@overload
def update_table_files(
    tx: Transaction,
    partition: NewPartition,
    operation: Operation,
    *,
    replacing: AbstractSet[int] = ...,
    keeping: AbstractSet[int] = ...,
    retire_also: RetireAlso | None = ...,
    grace_us: int = ...,
) -> Published: ...


@overload
def update_table_files(
    tx: Transaction, partition: NewPartition, operation: Operation, *, skip_known: Literal[True]
) -> Published | None: ...


def update_table_files(
    tx: Transaction,
    partition: NewPartition,
    operation: Operation,
    *,
    replacing: AbstractSet[int] = frozenset(),
    keeping: AbstractSet[int] = frozenset(),
    retire_also: RetireAlso | None = None,
    grace_us: int = DEFAULT_GRACE_US,
    skip_known: bool = False,
) -> Published | None:
    """Make `partition` live and retire exactly the partitions `replacing`; refuse if any of those is gone.

    Files in `keeping` (ids, all of `replacing`) move into the new partition instead of being retired.
    Without `replacing` the files are pending until a group seals them; a swap is a group of its own. `retire_also` lets other
    files leave in that group. `skip_known`, for one file: the same path with the same checksum changes nothing.
    """
    table = tx.require(partition.table)
    if skip_known and _is_known(tx, table, partition):
        return None
    if (done := find_result(tx, table, operation)) is not None:
        return Published.from_json(done)
    state = _require_version(table, partition)
    retiring = (
        load_partitions_to_retire(tx, table, replacing, exactly=True, keeping=keeping, kept_by=partition)
        if replacing or keeping
        else PartitionsToRetire()
    )
    result = _allocate(tx, table, partition, swaps=bool(replacing) or retire_also is not None, kind=operation.kind)
    statements: list[Statement] = [*register_statements(tx, table, operation, result=result.to_json())]
    if replacing:
        retire_loaded(tx, table, retiring, reason="replaced", grace_us=grace_us, group=result.group)
    if retire_also is not None:
        retire_also(tx, table, table.last_group)
    scope = _require_scope(tx, table, partition)
    if partition.insert_range is not None:
        _require_no_overlap(tx, partition, scope)
    is_visible = state in VISIBLE
    statements.append(_partition_statement(tx, table, partition, result, scope, retiring))
    statements += _file_statements(tx, table, partition, result, group=result.group if is_visible else None)
    update_table_statistics(tx, table, count_by_path(partition.files if is_visible else ()), beside=statements)
    _reparent(tx, result, retiring)
    return result


def publish_replacements(
    tx: Transaction,
    replacements: Sequence[Replacement],
    operation: Operation,
    *,
    reason: str,
    replacing: AbstractSet[int] = frozenset(),
    grace_us: int = DEFAULT_GRACE_US,
) -> Published:
    """Put every replacement in the place of the partition it replaces, and take the partitions `replacing` out of the table, in one group.

    The caller has compared the partitions to retire under this lock.

    The answer counts all files, and names the first partition.
    """
    table = tx.require(replacements[0].partition.table)
    allocate_group(tx, table, operation.kind)
    results = _allocate_all(table, replacements)
    whole = replace(results[0], file_count=sum(result.file_count for result in results))
    statements: list[Statement] = [*register_statements(tx, table, operation, result=whole.to_json())]
    kept = tuple(sorted(file_id for r in replacements for file_id in r.kept))
    gone = replacing | {r.retired_id for r in replacements if r.retired_id is not None}
    retiring = PartitionsToRetire(partition_ids=tuple(sorted(gone)), kept_ids=kept)
    retire_loaded(tx, table, retiring, reason=reason, grace_us=grace_us, group=table.last_group)
    for new, result in zip(replacements, results, strict=True):
        _require_version(table, new.partition)
        scope, own = _require_scope(tx, table, new.partition), _kept_of(new)
        statements.append(_partition_statement(tx, table, new.partition, result, scope, own))
        statements += _file_statements(tx, table, new.partition, result, group=result.group)
    update_table_statistics(tx, table, count_by_path([file for r in replacements for file in r.partition.files]), beside=statements)
    for new, result in zip(replacements, results, strict=True):
        _reparent(tx, result, _kept_of(new))
    return whole


def _allocate_all(table: LockedTable, replacements: Sequence[Replacement]) -> list[Published]:
    """Ids of files follow one another over all partitions, so that one range names them."""
    partition_id = table.allocate_id(len(replacements))
    file_id = table.allocate_id(sum(len(r.partition.files) for r in replacements))
    results: list[Published] = []
    for n, new in enumerate(replacements):
        assert new.partition.insert_range is not None  # noqa: S101 - the slice of the replaced partition, or one that the caller allocated
        results.append(
            Published(
                partition_id=partition_id + n, table_id=table.table_id, insert_range=new.partition.insert_range, journal_number=table.journal_number,
                group=table.last_group, first_file_id=file_id, file_count=len(new.partition.files),
            )
        )  # fmt: skip
        file_id += len(new.partition.files)
    return results


def _kept_of(new: Replacement) -> PartitionsToRetire:
    return PartitionsToRetire(event_range=new.kept_events, kept_ids=new.kept, kept_rows=new.kept_rows)


def _reparent(tx: Transaction, result: Published, retiring: PartitionsToRetire) -> None:
    if retiring.kept_ids:
        tx.send(_REPARENT, {"p": result.partition_id, "now": tx.now, "ids": list(retiring.kept_ids)})


def publish_partition(  # noqa: PLR0913 - one keyword per part of the change
    registry: Registry,
    partition: NewPartition,
    operation: Operation,
    *,
    replacing: AbstractSet[int] = frozenset(),
    keeping: AbstractSet[int] = frozenset(),
    grace_us: int = DEFAULT_GRACE_US,
    inputs: Sequence[TableName] = (),
    guard: Callable[[Transaction], object] | None = None,
    retire_also: RetireAlso | None = None,
) -> Published:
    """`update_table_files` in a transaction of its own; a lost commit is looked up by the operation's id.

    An operation that is registered already, by this call's first try or by another, gives its first answer.
    `guard` looks first, with the tables `inputs` locked too: when it raises, nothing is published.
    """

    def body(tx: Transaction) -> Published:
        if guard is not None:
            guard(tx)
        return update_table_files(
            tx, partition, operation, replacing=replacing, keeping=keeping, retire_also=retire_also, grace_us=grace_us
        )

    def call() -> Published:
        if not (replacing or keeping or guard or retire_also) and (appended := try_append(registry, partition, operation)) is not None:
            return Published.from_json(appended)
        return registry.transact(body, tables=[partition.table, *inputs], op_id=operation.op_id)

    return first_answer(registry, operation, call)


def first_answer(registry: Registry, operation: Operation, call: Callable[[], Published]) -> Published:
    """What `call` publishes, or what the same operation published before: by its own first try, or by a duplicate of it."""
    try:
        return call()
    except (OperationConflictError, ConstraintRefusedError):
        done = find_operation(registry, operation.op_id)
        if done is None or done.state != "registered" or done.result is None:
            raise
        return Published.from_json(done.result)


def _allocate(tx: Transaction, table: LockedTable, partition: NewPartition, *, swaps: bool, kind: str) -> Published:
    """Everything that is numbered, before the first row is written."""
    insert_range = partition.insert_range
    if insert_range is None:
        slot = tx.allocate_slot(table)
        insert_range = TimeRange(begin=slot, end=slot + 1)
    if swaps:
        allocate_group(tx, table, kind)
    return Published(
        partition_id=table.allocate_id(),
        table_id=table.table_id,
        insert_range=insert_range,
        journal_number=table.journal_number,
        group=table.last_group if swaps else None,
        first_file_id=table.allocate_id(len(partition.files)),
        file_count=len(partition.files),
    )


def _require_version(table: LockedTable, partition: NewPartition) -> str:
    state = table.head.find_version_state(partition.schema_hash)
    if state is None:
        message = f"{partition.table}: no version has the schema hash {partition.schema_hash}: read the table again"
        raise SchemaRefusedError(message)
    if state == "incompatible":
        message = f"{partition.table}: version {partition.schema_hash} is no longer served or staged: read the table again"
        raise SchemaRefusedError(message)
    if partition.files and partition.event_range is None and table.head.event_time_field is not None:
        message = f"{partition.table}: the table has an event time, so a partition with rows needs its event range"
        raise InvalidValueError(message)
    return state


def _require_scope(tx: Transaction, table: LockedTable, partition: NewPartition) -> int:
    """The number of (table, instance, schema); scopes are never deleted, so what a transaction read stays valid."""
    key = (table.table_id, partition.instance, partition.schema_hash)
    scopes = tx.cache.scopes
    if (known := scopes.get(key)) is not None:
        return known
    params = {"t": key[0], "i": key[1], "h": key[2]}
    rows = tx.query(_FIND_SCOPE, params) or tx.query(_ADD_SCOPE, params)
    scope: int = rows[0][0]
    tx.after_commit.append(lambda: _remember_scope(scopes, key, scope))  # not before: a rollback would give the number to another
    return scope


def _remember_scope(scopes: OrderedDict[tuple[int, str, str], int], key: tuple[int, str, str], scope: int) -> None:
    scopes[key] = scope
    while len(scopes) > _MAX_SCOPES_CACHED:
        scopes.popitem(last=False)


def _require_no_overlap(tx: Transaction, partition: NewPartition, scope: int) -> None:
    wanted = partition.insert_range
    if wanted is None:
        return
    rows = tx.query(_OVERLAP, {"scope": scope, "begin": wanted.begin, "end": wanted.end})
    if rows:
        found = Slice(table=partition.table, instance=partition.instance, insert_range=TimeRange(begin=rows[0][0], end=rows[0][1]))
        raise PartitionConflictError(str(Slice(table=partition.table, instance=partition.instance, insert_range=wanted)), found=str(found))


def _partition_statement(
    tx: Transaction,
    table: LockedTable,
    partition: NewPartition,
    result: Published,
    scope: int,
    retiring: PartitionsToRetire,
) -> Insert:
    low, high = _event_range(partition, retiring)
    values = (
        result.partition_id, table.table_id, scope, partition.instance, result.insert_range.begin, result.insert_range.end, low, high,
        partition.schema_hash,
        partition.source_data_hash, partition.lookup_hash, partition.fingerprint, partition.num_rows + retiring.kept_rows,
        len(partition.files) + len(retiring.kept_ids), PARTITION_FORMAT, tx.now,
    )  # fmt: skip
    return Insert("partitions", _PARTITION_COLUMNS, [values])


def _event_range(partition: NewPartition, retiring: PartitionsToRetire) -> tuple[int, int] | tuple[None, None]:
    """Of the new rows and of those that are kept: retention judges the partition by it."""
    return join_event_ranges([partition.event_range, retiring.event_range if retiring.kept_ids else None]) or (None, None)


def _file_statements(
    tx: Transaction, table: LockedTable, partition: NewPartition, result: Published, *, group: int | None
) -> list[Statement]:
    files, ids = partition.files, result.file_ids
    if not files:
        return []
    statements: list[Statement] = [Insert("table_files", _FILE_COLUMNS, [
        (
            i, table.table_id, result.partition_id, f.name, f.path, f.size_bytes, f.file_type.value, f.partition_path, f.row_count, f.checksum,
            f.checksum_kind.value, int(f.is_compressed), partition.schema_hash, table.journal_number, None,
            group if f.file_type is FileType.PARQUET else None, None, tx.now, tx.now,
        )
        for i, f in zip(ids, files, strict=True)
    ])]  # fmt: skip
    statements += _footer_statements(tx, table, files)
    statistics: list[Sequence[Value]] = [
        (i, c.field_id, c.null_count, c.value_count, c.lower, c.upper) for i, f in zip(ids, files, strict=True) for c in f.columns
    ]
    if statistics:
        statements.append(Insert("file_columns", _STATISTICS_COLUMNS, statistics))
    return statements + range_statements(tx, table, list(zip(ids, files, strict=True)))


def _footer_statements(tx: Transaction, table: LockedTable, files: Sequence[NewFile]) -> list[Statement]:
    rows: list[Sequence[Value]] = [
        footer_row(f.path, f.footer, table_id=table.table_id, file_size=f.size_bytes, now=tx.now) for f in files if f.footer is not None
    ]
    return [Insert("partition_metadata", FOOTER_COLUMNS, rows)] if rows else []


def _is_known(tx: Transaction, table: LockedTable, partition: NewPartition) -> bool:
    """Whether exactly this file is registered; refuses its path with other content."""
    if len(partition.files) != 1:
        message = f"{partition.table}: exactly one file is expected here; publish takes several"
        raise InvalidValueError(message)
    (offered,) = partition.files
    rows = tx.query("SELECT checksum, retired_seq, table_id FROM table_files WHERE file_path = :path", {"path": offered.path})
    if not rows:
        return False
    checksum, retired_seq, table_id = rows[0]
    if checksum == offered.checksum and retired_seq is None and table_id == table.table_id:
        return True
    raise FileConflictError(offered.path, reason="it was retired" if retired_seq is not None else "it is registered with other content")
