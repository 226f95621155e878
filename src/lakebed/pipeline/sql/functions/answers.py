"""The SQL functions as plain Python: what each one takes, which columns it gives, and its answer as Arrow.

`lake.sql` calls `answer` in its own process, the table functions of a Spark session call it in their
workers: one place decides, so both give the same. Every answer may be asked for twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from lakebed import admin
from lakebed.admin.audit import find_actor
from lakebed.admin.retirement import metadata_plan, range_plan
from lakebed.core.errors import InvalidValueError, PartitionNotFoundError, PartitionStraddlesError
from lakebed.core.results import Rows, arrow_schema
from lakebed.core.times import TimeRange, parse_time
from lakebed.registry.maintenance.runs import find_run, has_done
from lakebed.registry.partitions.retire_many import ALREADY_RETIRED, NOT_FOUND, RetireOutcome
from lakebed.registry.queries.listing import FileRow, IncompatibleRow, PartitionRow, ViewSetRow
from lakebed.registry.tables.names import resolve_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from lakebed.admin import Retirement
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage

    Given = dict[str, Any]
    Result = Rows[Any]

_REQUIRED = object()
# `begin`/`end` always mean event time; the slice of a partition goes by the names of its columns, too
_ALIASES = {"begin_insert_time": "insert_begin", "end_insert_time": "insert_end"}
_DEPRECATED = "deprecated: use retire_partition_by_metadata"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument: its name in SQL, how it is read, and what stands for it when it is absent or NULL."""

    name: str
    read: Callable[[str, Any], Any]
    default: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """`row` gives the columns of the answer, also when it is empty."""

    name: str
    row: type
    parameters: tuple[Parameter, ...]
    call: Callable[[Registry, Callable[[], Storage], Given], Result]
    changes: bool = False

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self.row)


def answer(registry: Registry, storage: Storage | Callable[[], Storage], name: str, arguments: Mapping[str, Any]) -> pa.Table:
    """The answer of the SQL function `name`, its arguments given by name. `storage` may be opened late: few functions need it."""
    function = require_function(name)
    given = read_arguments(function, arguments)
    return function.call(registry, storage if callable(storage) else lambda: storage, given).to_arrow()


def find_function(name: str) -> Function | None:
    return FUNCTIONS.get(name.lower())


def require_function(name: str) -> Function:
    if (found := find_function(name)) is None:
        message = f"there is no function {name!a}: there are {', '.join(sorted(FUNCTIONS))}"
        raise InvalidValueError(message)
    return found


def bind_arguments(name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> Given:
    """Arguments as a call in SQL gives them, each under its name."""
    function = require_function(name)
    known = [parameter.name for parameter in function.parameters]
    if len(positional) > len(known):
        message = f"{function.name} takes {len(known)} arguments ({', '.join(known) or 'none'}), not {len(positional)}"
        raise InvalidValueError(message)
    given = dict(zip(known, positional, strict=False))
    for key, value in named.items():
        target = _find_name(function, key)
        if target in given:
            message = f"{function.name} was given {target} twice"
            raise InvalidValueError(message)
        given[target] = value
    return given


def read_arguments(function: Function, arguments: Mapping[str, Any]) -> Given:
    """Values of the right type for every parameter; NULL is as good as absent."""
    given = bind_arguments(function.name, (), arguments)
    read: Given = {}
    for parameter in function.parameters:
        value = given.get(parameter.name)
        if value is None and parameter.default is _REQUIRED:
            message = f"{function.name} needs {parameter.name}"
            raise InvalidValueError(message)
        read[parameter.name] = parameter.default if value is None else parameter.read(parameter.name, value)
    return read


def _find_name(function: Function, key: str) -> str:
    known = {parameter.name for parameter in function.parameters}
    lowered = key.lower()
    candidates = [name for name in (lowered, _ALIASES.get(lowered), _MIRRORED.get(lowered)) if name in known]
    if not candidates or candidates[0] is None:
        message = f"{function.name} has no argument {key!a}: it takes {', '.join(sorted(known)) or 'none'}"
        raise InvalidValueError(message)
    return candidates[0]


_MIRRORED = {short: long for long, short in _ALIASES.items()}


# -- reading values -------------------------------------------------------------------------------


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(name, value, "text")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, value, "true or false")
    return value


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _wrong(name, value, "a whole number from 0 on")
    return value


def _time(name: str, value: Any) -> datetime:
    """A timestamp, a date or ISO text; what names no zone is UTC, whatever the session's zone."""
    match value:
        case datetime():
            moment = value
        case date():
            moment = datetime(value.year, value.month, value.day, tzinfo=UTC)
        case str():
            moment = _parse(name, value)
        case _:
            raise _wrong(name, value, "a timestamp")
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _parse(name: str, text: str) -> datetime:
    try:
        return parse_time(text)
    except InvalidValueError as exc:
        raise _wrong(name, text, "a timestamp such as 2026-01-01T00:00:00Z") from exc


def _wrong(name: str, value: Any, wanted: str) -> InvalidValueError:
    return InvalidValueError(f"{name} is {str(value)[:80]!a}, but {wanted} is needed")


# -- the functions --------------------------------------------------------------------------------


def _list_partitions(registry: Registry, _: Callable[[], Storage], given: Given) -> Result:
    filters = {name: given[name] for name in ("schema_hash", "begin", "end", "insert_begin", "insert_end")}
    return admin.list_partitions(registry, given["view_set_name"], instance=given["view_instance_id"], **filters)


def _list_files(registry: Registry, _: Callable[[], Storage], given: Given) -> Result:
    return admin.list_files(registry, given["view_set_name"], retired=given["retired"])


def _list_view_sets(registry: Registry, _: Callable[[], Storage], __: Given) -> Result:
    return admin.list_view_sets(registry)


def _list_incompatible(registry: Registry, _: Callable[[], Storage], given: Given) -> Result:
    return admin.list_incompatible_partitions(registry, given["view_set_name"])


def _retire_by_metadata(registry: Registry, _: Callable[[], Storage], given: Given) -> Result:
    """A task that runs twice finds its own work done: that is told, not raised."""
    key = (given["view_set_name"], given["view_instance_id"])
    begin, end, schema_hash = given["begin_insert_time"], given["end_insert_time"], given["schema_hash"]
    try:
        done = admin.retire_partition_by_metadata(
            registry, *key, insert_begin=begin, insert_end=end, schema_hash=schema_hash, actor=_actor()
        )
    except PartitionNotFoundError as exc:
        plan = metadata_plan(resolve_name(registry, key[0]), key[1], TimeRange.of(begin, end), schema_hash)
        run_id = find_run(registry, "retire_partition_by_metadata", plan=plan, state="done")
        told = (NOT_FOUND, str(exc)) if run_id is None else (ALREADY_RETIRED, f"it was retired by run {run_id}")
        gone = RetireOutcome(
            view_set_name=key[0],
            view_instance_id=key[1],
            begin_insert_time=begin,
            end_insert_time=end,
            schema_hash=schema_hash,
            outcome=told[0],
            message=told[1],
        )
        return Rows(RetireOutcome, [gone])
    return done.outcomes


def _retire_by_file(registry: Registry, storage: Callable[[], Storage], given: Given) -> Result:
    """Nobody reads the warnings of a worker: the row tells it, too."""
    path = given["file_path"]
    try:
        done = admin.retire_partition_by_file(registry, storage(), path, actor=_actor())
    except PartitionNotFoundError as exc:
        return Rows(RetireOutcome, [RetireOutcome(outcome=NOT_FOUND, message=f"{exc} ({_DEPRECATED})")])
    return Rows(RetireOutcome, [_with_message(outcome, f"{outcome.message} ({_DEPRECATED})") for outcome in done.outcomes])


def _retire_partitions(registry: Registry, _: Callable[[], Storage], given: Given) -> Result:
    """A task that runs twice finds its own work done, and only what straddles left: a list of that, not an error."""
    table, begin, end = given["view_set_name"], given["insert_begin"], given["insert_end"]
    instance, schema_hash = given["view_instance_id"], given["schema_hash"]

    def call(options: admin.BulkOptions) -> Retirement:
        return admin.retire_partitions(
            registry, table, insert_begin=begin, insert_end=end, instance=instance, schema_hash=schema_hash, **options
        )

    try:
        return _tell(call(_options(given)), table)
    except PartitionStraddlesError:
        if not has_done(registry, "retire_partitions", plan=range_plan(table, TimeRange.of(begin, end), instance, schema_hash)):
            raise
        return _tell(call({**_options(given), "dry_run": True}), table)


def _retire_incompatible(registry: Registry, _: Callable[[], Storage], given: Given) -> Result:
    return admin.retire_incompatible_partitions(registry, given["view_set_name"], **_options(given)).outcomes


def _materialize(registry: Registry, _: Callable[[], Storage], given: Given) -> Result:
    return admin.request_materialization(registry, given["view_set_name"], **_window(given))


def _regenerate(registry: Registry, _: Callable[[], Storage], given: Given) -> Result:
    return admin.request_regeneration(registry, given["view_set_name"], **_window(given))


def _options(given: Given) -> admin.BulkOptions:
    return {
        "dry_run": given["dry_run"],
        "atomic": given["atomic"],
        "max_partitions": given["max_partitions"],
        "actor": _actor(),
    }


def _window(given: Given) -> Given:
    window = {name: given[name] for name in ("insert_begin", "insert_end")}
    return {**window, "instance": given["view_instance_id"], "actor": _actor()}


def _tell(done: Retirement, table: str) -> Rows[RetireOutcome]:
    """Nothing matched is a row, too: silence would look like success."""
    if done.outcomes or not done.message:
        return done.outcomes
    return Rows(RetireOutcome, [RetireOutcome(view_set_name=table, outcome=NOT_FOUND, message=done.message)])


def _with_message(outcome: RetireOutcome, message: str) -> RetireOutcome:
    return replace(outcome, message=message)


def _actor() -> str:
    return f"sql {find_actor()}"


_TABLE = Parameter("view_set_name", _text)
_THE_TABLE = Parameter("view_set_name", _text, _REQUIRED)
_INSTANCE = Parameter("view_instance_id", _text)
_HASH = Parameter("schema_hash", _text)
_SPAN = (Parameter("insert_begin", _time), Parameter("insert_end", _time))
_THE_SPAN = (Parameter("insert_begin", _time, _REQUIRED), Parameter("insert_end", _time, _REQUIRED))
_BULK = (
    Parameter("dry_run", _flag, default=True),
    Parameter("atomic", _flag, default=False),
    Parameter("max_partitions", _count, admin.MAX_PARTITIONS),
)
_BUILD = (_THE_TABLE, *_SPAN, Parameter("view_instance_id", _text, "global"))
_KEY = (
    _THE_TABLE,
    Parameter("view_instance_id", _text, _REQUIRED),
    Parameter("begin_insert_time", _time, _REQUIRED),
    Parameter("end_insert_time", _time, _REQUIRED),
    _HASH,
)
_ALL = (
    Function(
        name="list_partitions",
        row=PartitionRow,
        parameters=(_TABLE, _INSTANCE, *_SPAN, Parameter("begin", _time), Parameter("end", _time), _HASH),
        call=_list_partitions,
    ),
    Function(name="list_files", row=FileRow, parameters=(_TABLE, Parameter("retired", _flag, default=False)), call=_list_files),
    Function(name="list_view_sets", row=ViewSetRow, parameters=(), call=_list_view_sets),
    Function(name="list_incompatible_partitions", row=IncompatibleRow, parameters=(_TABLE,), call=_list_incompatible),
    Function(name="retire_partition_by_metadata", row=RetireOutcome, parameters=_KEY, call=_retire_by_metadata, changes=True),
    Function(
        name="retire_partition_by_file",
        row=RetireOutcome,
        parameters=(Parameter("file_path", _text, _REQUIRED),),
        call=_retire_by_file,
        changes=True,
    ),
    Function(
        name="retire_partitions",
        row=RetireOutcome,
        parameters=(_THE_TABLE, *_THE_SPAN, _INSTANCE, _HASH, *_BULK),
        call=_retire_partitions,
        changes=True,
    ),
    Function(
        name="retire_incompatible_partitions", row=RetireOutcome, parameters=(_TABLE, *_BULK), call=_retire_incompatible, changes=True
    ),
    Function(name="materialize_partitions", row=admin.RequestedRun, parameters=_BUILD, call=_materialize, changes=True),
    Function(name="regenerate_partitions", row=admin.RequestedRun, parameters=_BUILD, call=_regenerate, changes=True),
)
FUNCTIONS = {function.name: function for function in _ALL}
