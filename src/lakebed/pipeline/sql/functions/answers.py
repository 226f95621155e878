"""The SQL functions as plain Python: the arguments of each, its columns, and its answer as Arrow.

`lake.sql` calls `answer` in its own process, the table functions of a Spark session call it in their
workers, so both give the same answer. Every function may be called twice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakebed import admin
from lakebed.admin.audit import find_actor
from lakebed.admin.retirement import metadata_plan, range_plan
from lakebed.core.errors import InvalidValueError, PartitionNotFoundError, PartitionStraddlesError
from lakebed.core.names import GLOBAL_INSTANCE
from lakebed.core.results import Rows
from lakebed.core.times import TimeRange
from lakebed.pipeline.sql.functions.binding import Function
from lakebed.registry.maintenance.runs import find_run, has_done
from lakebed.registry.partitions.retire_many import ALREADY_RETIRED, NOT_FOUND, RetireOutcome
from lakebed.registry.queries.listing import FileRow, IncompatibleRow, PartitionRow, ViewSetRow
from lakebed.registry.tables.names import resolve_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from lakebed.admin import Retirement
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage

    Call = Callable[..., Rows[Any]]

_DEPRECATED = "deprecated: use retire_partition_by_metadata"
FUNCTIONS: dict[str, Function] = {}


def answer(registry: Registry, storage: Storage | Callable[[], Storage], name: str, arguments: Mapping[str, Any]) -> pa.Table:
    """The answer of the SQL function `name`, with arguments by name. `storage` is opened when a function needs it."""
    function = require_function(name)
    given = function.read(arguments)
    return function.call(registry, storage if callable(storage) else lambda: storage, **given).to_arrow()


def find_function(name: str) -> Function | None:
    return FUNCTIONS.get(name.lower())


def require_function(name: str) -> Function:
    if (found := find_function(name)) is None:
        message = f"unknown function {name!a}: expected one of {', '.join(sorted(FUNCTIONS))}"
        raise InvalidValueError(message)
    return found


def bind_arguments(name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call in SQL, each under its name."""
    return require_function(name).bind(positional, named)


def _answers(row: type, *, changes: bool = False) -> Callable[[Call], Call]:
    """Register the function for SQL under its own name, with its keyword-only parameters as arguments."""

    def add(call: Call) -> Call:
        FUNCTIONS[call.__name__] = Function.of(call, row, changes=changes)
        return call

    return add


# -- the functions, each called with the registry and an opener of the warehouse -------------------


@_answers(PartitionRow)
def list_partitions(
    registry: Registry,
    _: Callable[[], Storage],
    *,
    view_set_name: str | None = None,
    view_instance_id: str | None = None,
    insert_begin: datetime | None = None,
    insert_end: datetime | None = None,
    begin: datetime | None = None,
    end: datetime | None = None,
    schema_hash: str | None = None,
) -> Rows[PartitionRow]:
    return admin.list_partitions(
        registry, view_set_name, instance=view_instance_id, schema_hash=schema_hash, insert_begin=insert_begin, insert_end=insert_end,
        begin=begin, end=end,
    )  # fmt: skip


@_answers(FileRow)
def list_files(
    registry: Registry, _: Callable[[], Storage], *, view_set_name: str | None = None, retired: bool = False
) -> Rows[FileRow]:  # fmt: skip
    return admin.list_files(registry, view_set_name, retired=retired)


@_answers(ViewSetRow)
def list_view_sets(registry: Registry, _: Callable[[], Storage]) -> Rows[ViewSetRow]:
    return admin.list_view_sets(registry)


@_answers(IncompatibleRow)
def list_incompatible_partitions(
    registry: Registry, _: Callable[[], Storage], *, view_set_name: str | None = None
) -> Rows[IncompatibleRow]:  # fmt: skip
    return admin.list_incompatible_partitions(registry, view_set_name)


@_answers(RetireOutcome, changes=True)
def retire_partition_by_metadata(
    registry: Registry,
    _: Callable[[], Storage],
    *,
    view_set_name: str,
    view_instance_id: str,
    begin_insert_time: datetime,
    end_insert_time: datetime,
    schema_hash: str | None = None,
) -> Rows[RetireOutcome]:
    """A task that runs twice finds its own work done, which is an outcome, not an error."""
    begin, end = begin_insert_time, end_insert_time
    try:
        done = admin.retire_partition_by_metadata(
            registry, view_set_name, view_instance_id, insert_begin=begin, insert_end=end, schema_hash=schema_hash, actor=_actor()
        )
    except PartitionNotFoundError as exc:
        plan = metadata_plan(resolve_name(registry, view_set_name), view_instance_id, TimeRange.of(begin, end), schema_hash)
        run_id = find_run(registry, "retire_partition_by_metadata", plan=plan, state="done")
        outcome, message = (NOT_FOUND, str(exc)) if run_id is None else (ALREADY_RETIRED, f"it was retired by run {run_id}")
        gone = RetireOutcome(
            view_set_name=view_set_name,
            view_instance_id=view_instance_id,
            begin_insert_time=begin,
            end_insert_time=end,
            schema_hash=schema_hash,
            outcome=outcome,
            message=message,
        )
        return Rows(RetireOutcome, [gone])
    return done.outcomes


@_answers(RetireOutcome, changes=True)
def retire_partition_by_file(registry: Registry, storage: Callable[[], Storage], *, file_path: str) -> Rows[RetireOutcome]:
    """The row repeats the warning, because warnings of a worker are not shown."""
    try:
        done = admin.retire_partition_by_file(registry, storage(), file_path, actor=_actor())
    except PartitionNotFoundError as exc:
        return Rows(RetireOutcome, [RetireOutcome(outcome=NOT_FOUND, message=f"{exc} ({_DEPRECATED})")])
    return Rows(RetireOutcome, [replace(outcome, message=f"{outcome.message} ({_DEPRECATED})") for outcome in done.outcomes])


@_answers(RetireOutcome, changes=True)
def retire_partitions(  # noqa: PLR0913 - one keyword per argument in SQL
    registry: Registry,
    _: Callable[[], Storage],
    *,
    view_set_name: str,
    insert_begin: datetime,
    insert_end: datetime,
    view_instance_id: str | None = None,
    schema_hash: str | None = None,
    dry_run: bool = True,
    atomic: bool = False,
    max_partitions: int = admin.MAX_PARTITIONS,
) -> Rows[RetireOutcome]:
    """A task that runs twice finds its own work done and only straddling partitions left: it lists them, without an error."""
    options: admin.BulkOptions = {"dry_run": dry_run, "atomic": atomic, "max_partitions": max_partitions, "actor": _actor()}

    def call(options: admin.BulkOptions) -> Retirement:
        return admin.retire_partitions(
            registry, view_set_name, insert_begin=insert_begin, insert_end=insert_end, instance=view_instance_id, schema_hash=schema_hash,
            **options,
        )  # fmt: skip

    try:
        return _outcomes_of(call(options), view_set_name)
    except PartitionStraddlesError:
        plan = range_plan(view_set_name, TimeRange.of(insert_begin, insert_end), view_instance_id, schema_hash)
        if not has_done(registry, "retire_partitions", plan=plan):
            raise
        return _outcomes_of(call({**options, "dry_run": True}), view_set_name)


@_answers(RetireOutcome, changes=True)
def retire_incompatible_partitions(
    registry: Registry,
    _: Callable[[], Storage],
    *,
    view_set_name: str | None = None,
    dry_run: bool = True,
    atomic: bool = False,
    max_partitions: int = admin.MAX_PARTITIONS,
) -> Rows[RetireOutcome]:
    return admin.retire_incompatible_partitions(
        registry, view_set_name, dry_run=dry_run, atomic=atomic, max_partitions=max_partitions, actor=_actor()
    ).outcomes


@_answers(admin.RequestedRun, changes=True)
def materialize_partitions(
    registry: Registry,
    _: Callable[[], Storage],
    *,
    view_set_name: str,
    insert_begin: datetime | None = None,
    insert_end: datetime | None = None,
    view_instance_id: str = GLOBAL_INSTANCE,
) -> Rows[admin.RequestedRun]:
    return admin.request_materialization(
        registry, view_set_name, insert_begin=insert_begin, insert_end=insert_end, instance=view_instance_id, actor=_actor()
    )


@_answers(admin.RequestedRun, changes=True)
def regenerate_partitions(
    registry: Registry,
    _: Callable[[], Storage],
    *,
    view_set_name: str,
    insert_begin: datetime | None = None,
    insert_end: datetime | None = None,
    view_instance_id: str = GLOBAL_INSTANCE,
) -> Rows[admin.RequestedRun]:
    return admin.request_regeneration(
        registry, view_set_name, insert_begin=insert_begin, insert_end=insert_end, instance=view_instance_id, actor=_actor()
    )


def _outcomes_of(done: Retirement, table: str) -> Rows[RetireOutcome]:
    """If nothing matched, the answer is a row that says so, because an empty answer would look like success."""
    if done.outcomes or not done.message:
        return done.outcomes
    return Rows(RetireOutcome, [RetireOutcome(view_set_name=table, outcome=NOT_FOUND, message=done.message)])


def _actor() -> str:
    return f"sql {find_actor()}"
