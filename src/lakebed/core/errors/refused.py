"""Fix the request; nothing was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.errors.families import RefusedError

if TYPE_CHECKING:
    from datetime import datetime

_SHOWN_CHARS = 80


class InvalidNameError(RefusedError):
    """A table, column, instance or lease name is outside the allow-list."""

    code = "invalid_name"

    def __init__(self, kind: str, name: str, *, reason: str) -> None:
        shown = ascii(name if len(name) <= _SHOWN_CHARS else name[:_SHOWN_CHARS] + "...")
        super().__init__(f"{kind} name {shown} is refused: {reason}")
        self.kind, self.name, self.reason = kind, name, reason


class InvalidRangeError(RefusedError):
    """A time range is empty, reversed, naive or out of bounds."""

    code = "invalid_range"

    def __init__(self, message: str) -> None:
        super().__init__(
            f"{message}; give begin < end (half-open), as datetimes with a time zone or ISO 8601 text such as 2026-03-01T12:00:00Z"
        )


class InvalidValueError(RefusedError):
    """An argument has the right type but an invalid value."""

    code = "invalid_value"


class PathRefusedError(RefusedError):
    """A path leaves the warehouse, passes a symlink, or is not canonical."""

    code = "path_refused"

    def __init__(self, path: str, *, reason: str) -> None:
        super().__init__(f"path {path!a} is refused: {reason}")
        self.path, self.reason = path, reason


class NotAFileError(RefusedError):
    """The path exists but is not a regular file (directory, FIFO, device)."""

    code = "not_a_file"

    def __init__(self, path: str, *, found: str) -> None:
        super().__init__(f"{path!a} is a {found}: only regular files can be registered")
        self.path, self.found = path, found


class FileMissingError(RefusedError):
    """The path does not exist."""

    code = "file_missing"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path!a} does not exist in the warehouse: write the file first")
        self.path = path


class UnreadableFileError(RefusedError):
    """A file is torn, damaged or not Parquet; `row_group` and `column` say where, if one column chunk is at fault."""

    code = "unreadable_file"

    def __init__(self, path: str, *, reason: str, row_group: int | None = None, column: str | None = None) -> None:
        super().__init__(f"{path!a} cannot be registered: {reason}; write it again")
        self.path, self.reason, self.row_group, self.column = path, reason, row_group, column


class LimitExceededError(RefusedError):
    """Reading the input would need more memory, time or size than is allowed."""

    code = "limit_exceeded"

    def __init__(self, path: str, *, limit: str) -> None:
        super().__init__(f"{path!a} is refused: it exceeds the limit of {limit}")
        self.path, self.limit = path, limit


class NotAllowedError(RefusedError):
    """The caller is not among the lake's administrators."""

    code = "not_allowed"

    def __init__(self, job: str, *, actor: str) -> None:
        super().__init__(f"{job} is refused: {actor} is not among this lake's administrators; ask one of them, nothing was changed")
        self.job, self.actor = job, actor


class NotIcebergReadyError(RefusedError):
    """A file could be read but could never become an Iceberg data file."""

    code = "not_iceberg_ready"

    def __init__(self, path: str, *, problems: tuple[str, ...]) -> None:
        super().__init__(f"{path!a} cannot enter an Iceberg table: {'; '.join(problems)}")
        self.path, self.problems = path, problems


class AdoptionRefusedError(RefusedError):
    """Files of a directory cannot become files of the table; `files` names each with its reason."""

    code = "adoption_refused"

    def __init__(self, table: str, *, files: tuple[tuple[str, str], ...]) -> None:
        (path, reason), more = files[0], f" (and {len(files) - 1} more)" if len(files) > 1 else ""
        super().__init__(
            f"{table}: {len(files)} files cannot be adopted: {path!a}: {reason}{more}; "
            "fix them and adopt again, or take the rest with skip_refused"
        )
        self.table, self.files = table, files


class SchemaRefusedError(RefusedError):
    """A schema, or a change of one, is not allowed."""

    code = "schema_refused"


class RollbackRefusedError(RefusedError):
    """A column name of the snapshot is now the name of another column."""

    code = "rollback_refused"

    def __init__(self, table: str, *, snapshot_id: int, clashes: tuple[str, ...]) -> None:
        super().__init__(
            f"{table} cannot go back to snapshot {snapshot_id}: {'; '.join(clashes)}. "
            "Rename or drop the newer column of that name, then roll back again; nothing was changed"
        )
        self.table, self.snapshot_id, self.clashes = table, snapshot_id, clashes


class TableNotFoundError(RefusedError):
    """No table of that name exists (or it was dropped)."""

    code = "table_not_found"

    def __init__(self, table: str, *, near: tuple[str, ...] = ()) -> None:
        hint = f"did you mean {' or '.join(near)}? Otherwise create it" if near else "create it"
        super().__init__(f"there is no table {table!a}: {hint} first, or list the tables")
        self.table, self.near = table, near


class TableExistsError(RefusedError):
    """The name is taken."""

    code = "table_exists"

    def __init__(self, table: str, *, found: str | None = None) -> None:
        alike = f" as {found}, and names that differ only in case are the same name" if found not in {None, table} else ""
        super().__init__(f"table {table} exists already{alike}: choose another name or drop it")
        self.table, self.found = table, found


class QueryRefusedError(RefusedError):
    """The text is not a single read-only query."""

    code = "query_refused"

    def __init__(self, text: str, *, reason: str) -> None:
        shown = " ".join(text.split())
        super().__init__(f"the query {shown if len(shown) <= _SHOWN_CHARS else shown[:_SHOWN_CHARS] + '...'!a} is refused: {reason}")
        self.reason = reason


class DefinitionRefusedError(RefusedError):
    """A view set's definition cannot be sliced, refers to itself, or Spark cannot analyse it."""

    code = "definition_refused"

    def __init__(self, view: str, *, reason: str) -> None:
        super().__init__(f"{view} cannot be defined: {reason}")
        self.view, self.reason = view, reason


class PartitionNotFoundError(RefusedError):
    """No partition matches exactly."""

    code = "partition_not_found"

    def __init__(self, wanted: str, *, hint: str = "list the partitions of the table") -> None:
        super().__init__(f"no partition matches {wanted}: {hint}")
        self.wanted = wanted


class AnotherCheckpointError(RefusedError):
    """The batch was numbered by another checkpoint than the newest registered batch of the stream."""

    code = "another_checkpoint"

    def __init__(self, table: str, *, app_id: str, batch_id: int, newest: int) -> None:
        why = f"batch {newest} is registered" if batch_id < newest else "this batch is registered for another query id"
        super().__init__(
            f"{table}: batch {batch_id} of stream {app_id!a} comes from another checkpoint: {why}; nothing was written. Continue with the "
            f"first checkpoint, or start over under a new app_id: lake.foreach_batch({table!a}, {app_id + '-2'!a})"
        )
        self.table, self.app_id, self.batch_id, self.newest = table, app_id, batch_id, newest


class AmbiguousPartitionError(RefusedError):
    """Several schemas hold the slice and none was named."""

    code = "ambiguous"

    def __init__(self, wanted: str, *, schema_hashes: tuple[str, ...]) -> None:
        super().__init__(f"{wanted} exists under {len(schema_hashes)} schemas ({', '.join(schema_hashes)}): name the schema_hash to retire")
        self.schema_hashes = schema_hashes


class PartitionStraddlesError(RefusedError):
    """Every partition that overlaps the range to retire extends beyond it; the command line exits 3."""

    code = "partition_straddles"

    def __init__(self, wanted: str, *, straddles: tuple[str, ...], widest: str) -> None:
        more = f" (and {len(straddles) - 1} more)" if len(straddles) > 1 else ""
        super().__init__(
            f"nothing was retired: no partition is wholly inside {wanted}, and {straddles[0]} extends beyond it{more}. "
            f"Widen the range to {widest}, or retire one partition by its own slice with retire_partition_by_metadata"
        )
        self.wanted, self.straddles, self.widest = wanted, straddles, widest


class TooManyPartitionsError(RefusedError):
    """A bulk call would touch more partitions than it was allowed to."""

    code = "too_many_partitions"

    def __init__(self, what: str, *, found: int, allowed: int) -> None:
        super().__init__(
            f"{what} would touch {found} partitions, {allowed} are allowed: preview it, then narrow it or raise max_partitions"
        )
        self.found, self.allowed = found, allowed


class FooterNotFoundError(RefusedError):
    """The registry holds no footer for the path."""

    code = "footer_not_found"

    def __init__(self, path: str) -> None:
        super().__init__(f"the registry holds no footer for {path!a}: the file was never registered, or its deletion is final")
        self.path = path


class RunNotFoundError(RefusedError):
    """No maintenance run has that id."""

    code = "run_not_found"


class OperationNotFoundError(RefusedError):
    """No operation has that id."""

    code = "operation_not_found"

    def __init__(self, op_id: str) -> None:
        super().__init__(f"there is no operation {op_id}: open it before writing a byte")
        self.op_id = op_id


class ClockRegressedError(RefusedError):
    """The table's newest slot is so far ahead of the clock that the clock must have jumped back."""

    code = "clock_regressed"

    def __init__(self, table: str, *, slot: datetime, now: datetime) -> None:
        self.table, self.slot, self.now, self.ahead_s = table, slot, now, (slot - now).total_seconds()
        super().__init__(
            f"the newest slot of {table} is {self.ahead_s:.0f} s ahead of the clock ({slot.isoformat()} against {now.isoformat()}), and nothing "
            f"was changed: if the clock is wrong, set it right and retry; if it is right, run `lakebed repair {table} --execute`"
        )


class ClockSkewedError(RefusedError):
    """The clock of this host differs from the database's by more than five minutes."""

    code = "clock_skewed"

    def __init__(self, *, host: datetime, database: datetime) -> None:
        self.host, self.database, self.ahead_s = host, database, (host - database).total_seconds()
        super().__init__(
            f"the clock of this host says {host.isoformat()}, the database's {database.isoformat()}: they differ by {abs(self.ahead_s):.0f} s, "
            "and 300 s are allowed; nothing was written: correct the wrong one (NTP), then retry"
        )


class SessionRefusedError(RefusedError):
    """The Spark session cannot be started, or lacks what correct files need."""

    code = "session_refused"


class SnapshotNotFoundError(RefusedError):
    """The table has no such snapshot, or it was expired."""

    code = "snapshot_not_found"

    def __init__(self, table: str, snapshot_id: int, *, nearest: int | None, at: str = "") -> None:
        there = "it has none yet" if nearest is None else f"the nearest that is kept is {nearest} of {at}"
        super().__init__(f"{table} keeps no snapshot {snapshot_id}: {there}; list them with `lake.snapshots`")
        self.table, self.snapshot_id, self.nearest = table, snapshot_id, nearest


class TagNotFoundError(RefusedError):
    """The table has no tag of that name that Lakebed wrote."""

    code = "tag_not_found"

    def __init__(self, table: str, tag: str, *, near: tuple[str, ...] = ()) -> None:
        hint = f"did you mean {' or '.join(near)}? Otherwise list" if near else "list"
        super().__init__(f"{table} has no tag {tag!a}: {hint} its snapshots, which show their tags; nothing was changed")
        self.table, self.tag, self.near = table, tag, near


class SparkRefusedError(RefusedError):
    """Spark cannot carry out the query: it does not analyse, or a row makes it fail."""

    code = "spark_refused"


class SubscriptionRefusedError(RefusedError):
    """A component is unknown, lacks a method of a subscriber, or subscribes to other tables than the constant says."""

    code = "subscription_refused"
