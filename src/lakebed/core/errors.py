"""Every error Lakebed raises: one root, four families, stable codes.

    LakebedError
    ├── RefusedError       fix the request; nothing was changed
    ├── ConflictError      somebody else was first: read again, then retry
    ├── UnavailableError   nothing is wrong with the request: try later
    └── CorruptionError    stop and tell a person

A code is what programs match on: never rename one.
"""

from __future__ import annotations

from typing import ClassVar

_SHOWN_CHARS = 80
_SHOWN_IDS = 10


class LakebedError(Exception):
    """Root of all errors; `code` is stable, the message is for people."""

    code: ClassVar[str] = "error"


class RefusedError(LakebedError):
    """The request cannot be carried out as asked; nothing was changed."""

    code = "refused"


class ConflictError(LakebedError):
    """Another writer was first; read again and retry."""

    code = "conflict"


class UnavailableError(LakebedError):
    """A resource cannot answer now; the same request may succeed later."""

    code = "unavailable"


class CorruptionError(LakebedError):
    """Stored state contradicts itself; stop and look."""

    code = "corruption"


# -- refused -----------------------------------------------------------------------------------


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
        super().__init__(f"{message}; give two aware UTC datetimes with begin < end (half-open)")


class InvalidValueError(RefusedError):
    """An argument has the right type but a value that can never be right."""

    code = "invalid_value"


class PathRefusedError(RefusedError):
    """A path leaves the warehouse, passes a symlink, or is not canonical."""

    code = "path_refused"

    def __init__(self, path: str, *, reason: str) -> None:
        super().__init__(f"path {path!a} is refused: {reason}")
        self.path, self.reason = path, reason


class NotAFileError(RefusedError):
    """The path is there but is no regular file (directory, FIFO, device)."""

    code = "not_a_file"

    def __init__(self, path: str, *, found: str) -> None:
        super().__init__(f"{path!a} is a {found}: only regular files can be registered")
        self.path, self.found = path, found


class FileMissingError(RefusedError):
    """The path names nothing."""

    code = "file_missing"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path!a} does not exist in the warehouse: write the file first")
        self.path = path


class UnreadableFileError(RefusedError):
    """A file is torn or is no Parquet; `path` names it."""

    code = "unreadable_file"

    def __init__(self, path: str, *, reason: str) -> None:
        super().__init__(f"{path!a} cannot be registered: {reason}; write it again")
        self.path, self.reason = path, reason


class LimitExceededError(RefusedError):
    """Reading the input would need more memory, time or size than is allowed."""

    code = "limit_exceeded"

    def __init__(self, path: str, *, limit: str) -> None:
        super().__init__(f"{path!a} is refused: it exceeds the limit of {limit}")
        self.path, self.limit = path, limit


class NotIcebergReadyError(RefusedError):
    """A file could be read but could never become an Iceberg data file."""

    code = "not_iceberg_ready"

    def __init__(self, path: str, *, problems: tuple[str, ...]) -> None:
        super().__init__(f"{path!a} cannot enter an Iceberg table: {'; '.join(problems)}")
        self.path, self.problems = path, problems


class SchemaRefusedError(RefusedError):
    """A schema, or a change of one, is not allowed."""

    code = "schema_refused"


class TableNotFoundError(RefusedError):
    """No table of that name exists (or it was dropped)."""

    code = "table_not_found"

    def __init__(self, table: str) -> None:
        super().__init__(f"there is no table {table!a}: create it first, or list the tables")
        self.table = table


class TableExistsError(RefusedError):
    """The name is taken."""

    code = "table_exists"

    def __init__(self, table: str) -> None:
        super().__init__(f"table {table} exists already: choose another name or drop it")
        self.table = table


class PartitionNotFoundError(RefusedError):
    """No partition matches exactly."""

    code = "partition_not_found"

    def __init__(self, wanted: str, *, hint: str = "list the partitions of the table") -> None:
        super().__init__(f"no partition matches {wanted}: {hint}")
        self.wanted = wanted


class AmbiguousPartitionError(RefusedError):
    """Several schemas hold the slice and none was named."""

    code = "ambiguous"

    def __init__(self, wanted: str, *, schema_hashes: tuple[str, ...]) -> None:
        super().__init__(f"{wanted} exists under {len(schema_hashes)} schemas ({', '.join(schema_hashes)}): name the schema_hash to retire")
        self.schema_hashes = schema_hashes


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
    """The table's newest slot lies so far ahead that the clock must have jumped back."""

    code = "clock_regressed"

    def __init__(self, table: str, *, ahead_s: float) -> None:
        super().__init__(f"the newest slot of {table} is {ahead_s:.0f} s ahead of the clock: set the clock right, then retry")
        self.table, self.ahead_s = table, ahead_s


class RegistryNewerError(RefusedError):
    """The registry was written by a newer program."""

    code = "registry_newer"

    def __init__(self, found: str, *, known: str) -> None:
        super().__init__(
            f"the registry is at revision {found}, this program knows {known}: upgrade Lakebed on this host; nothing was changed"
        )
        self.found, self.known = found, known


class RegistryOlderError(RefusedError):
    """The registry must be migrated first."""

    code = "registry_older"

    def __init__(self, found: str, *, known: str) -> None:
        super().__init__(f"the registry is at revision {found}, this program needs {known}: stop the writers and run `lakebed migrate`")
        self.found, self.known = found, known


class RegistryRefusedError(RefusedError):
    """The registry's place or state is unfit (network drive, foreign database, open permissions)."""

    code = "registry_refused"


class RegistryReadOnlyError(RefusedError):
    """The registry cannot be written by this process."""

    code = "registry_read_only"

    def __init__(self, where: str) -> None:
        super().__init__(f"the registry {where} is read-only for this process: give it write permission on file and directory")


class ForkedConnectionError(RefusedError):
    """A connection was inherited over fork; using it would corrupt the registry."""

    code = "forked_connection"

    def __init__(self) -> None:
        super().__init__("this registry was opened before a fork: open a new one in the child process")


# -- conflict ----------------------------------------------------------------------------------


class PartitionConflictError(ConflictError):
    """Another writer published into the slice between our read and our transaction."""

    code = "partition_conflict"

    def __init__(self, wanted: str, *, found: str) -> None:
        super().__init__(f"{wanted} overlaps {found}, published meanwhile: read again and retry")
        self.wanted, self.found = wanted, found


class VictimsChangedError(ConflictError):
    """A compare-and-swap lost: some of the partitions or files to replace are gone."""

    code = "victims_changed"

    def __init__(self, table: str, *, missing: tuple[int, ...], what: str = "partitions") -> None:
        shown = ", ".join(map(str, missing[:_SHOWN_IDS])) + (", ..." if len(missing) > _SHOWN_IDS else "")
        super().__init__(f"{table}: {what} {shown} were replaced or retired meanwhile: read again and retry")
        self.table, self.missing, self.what = table, missing, what


class FileConflictError(ConflictError):
    """The path is registered already with other content, or was used before."""

    code = "file_conflict"

    def __init__(self, path: str, *, reason: str) -> None:
        super().__init__(f"{path!a}: {reason}; paths are never reused, write to a new one")
        self.path, self.reason = path, reason


class OperationConflictError(ConflictError):
    """The operation is not in the state the step needs."""

    code = "operation_conflict"

    def __init__(self, op_id: str, *, wanted: str, found: str) -> None:
        super().__init__(
            f"operation {op_id} is {found}, not {wanted}: another process finished or recovered it; look it up before you retry"
        )
        self.op_id, self.wanted, self.found = op_id, wanted, found


class LeaseHeldError(ConflictError):
    """Somebody else holds the lease."""

    code = "lease_held"

    def __init__(self, name: str, *, owner: str) -> None:
        super().__init__(f"lease {name} is held by {owner}: wait until it is released or expires")
        self.name, self.owner = name, owner


class LeaseLostError(ConflictError):
    """Our lease expired and a newer epoch was granted: nothing of ours may be written any more."""

    code = "lease_lost"

    def __init__(self, name: str, *, epoch: int) -> None:
        super().__init__(f"lease {name} was lost after epoch {epoch}: acquire it anew and start from the registry")
        self.name, self.epoch = name, epoch


# -- unavailable -------------------------------------------------------------------------------


class RegistryUnavailableError(UnavailableError):
    """The registry's database does not answer."""

    code = "registry_unavailable"


class RegistryLockedError(UnavailableError):
    """Another program holds the registry's lock for longer than the timeout."""

    code = "registry_locked"


class StorageFullError(UnavailableError):
    """No room is left for the registry or the warehouse."""

    code = "storage_full"


class StorageUnavailableError(UnavailableError):
    """The file system or object store failed."""

    code = "storage_unavailable"


class OutcomeUnknownError(UnavailableError):
    """The connection was lost during commit and the outcome could not be looked up yet."""

    code = "outcome_unknown"

    def __init__(self, op_id: str) -> None:
        super().__init__(
            f"the outcome of operation {op_id} is unknown: ask `find_operation` when the registry answers; do not retry or clean up before"
        )
        self.op_id = op_id


# -- corruption --------------------------------------------------------------------------------


class FooterCorruptError(CorruptionError):
    """A stored footer is no Parquet metadata, or does not match its checksum."""

    code = "footer_corrupt"


class FooterRowsError(CorruptionError):
    """Row groups and registry (or the footer's own file level) disagree about the number of rows."""

    code = "footer_rows_disagree"

    def __init__(self, *, footer_rows: int, registry_rows: int, told_by: str = "the registry") -> None:
        super().__init__(f"the footer's row groups hold {footer_rows} rows, {told_by} says {registry_rows}: run `lakebed check`")
        self.footer_rows, self.registry_rows = footer_rows, registry_rows


class FileChangedError(CorruptionError):
    """A file is not what was registered."""

    code = "file_changed"

    def __init__(self, path: str, *, reason: str) -> None:
        super().__init__(f"{path!a} changed after it was written: {reason}")
        self.path, self.reason = path, reason


class JournalGapError(CorruptionError):
    """A journal number is missing: changes were lost, only a refresh can help."""

    code = "journal_gap"

    def __init__(self, table_id: int, *, expected: int, found: int) -> None:
        super().__init__(f"the journal of table {table_id} goes from {expected - 1} to {found}: refresh the component from the registry")
        self.table_id, self.expected, self.found = table_id, expected, found


class TriggersChangedError(CorruptionError):
    """The journal's triggers are not the ones this program generated."""

    code = "triggers_changed"

    def __init__(self, *, missing: tuple[str, ...], changed: tuple[str, ...]) -> None:
        super().__init__(
            f"the journal's triggers were altered (missing: {', '.join(missing) or 'none'}; changed: {', '.join(changed) or 'none'}): "
            "stop the writers and run `lakebed repair`; writes are refused until then",
        )
        self.missing, self.changed = missing, changed


class UndecodableChangeError(CorruptionError):
    """A journal image does not fit the row type."""

    code = "undecodable_change"
