"""Another writer committed first: read again, then retry."""

from __future__ import annotations

from lakebed.core.errors.families import ConflictError

_SHOWN_IDS = 10


class PartitionConflictError(ConflictError):
    """Another writer published into the slice between our read and our transaction."""

    code = "partition_conflict"

    def __init__(self, wanted: str, *, found: str) -> None:
        super().__init__(f"{wanted} overlaps {found}, published meanwhile: read again and retry")
        self.wanted, self.found = wanted, found


class VictimsChangedError(ConflictError):
    """A compare-and-swap failed: some of the partitions or files to replace are gone."""

    code = "victims_changed"

    def __init__(self, table: str, *, missing: tuple[int, ...], what: str = "partitions") -> None:
        shown = ", ".join(map(str, missing[:_SHOWN_IDS])) + (", ..." if len(missing) > _SHOWN_IDS else "")
        super().__init__(f"{table}: {what} {shown} were replaced or retired meanwhile: read again and retry")
        self.table, self.missing, self.what = table, missing, what


class SourceChangedError(ConflictError):
    """The source rows of a view set's slice changed before the slice could be published."""

    code = "source_changed"

    def __init__(self, wanted: str, *, source: str) -> None:
        super().__init__(f"{wanted} was built from rows of {source} that changed meanwhile: materialize it again")
        self.wanted, self.source = wanted, source


class SchemaChangedError(ConflictError):
    """The schema of the table changed while rows were written under the previous one."""

    code = "schema_changed"

    def __init__(self, table: str) -> None:
        super().__init__(f"the schema of {table} was changed meanwhile: read the table again and retry")
        self.table = table


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
    """Another owner holds the lease."""

    code = "lease_held"

    def __init__(self, name: str, *, owner: str) -> None:
        super().__init__(f"lease {name} is held by {owner}: wait until it is released or expires")
        self.name, self.owner = name, owner


class LeaseLostError(ConflictError):
    """Our lease expired and a newer epoch was granted: this holder may not write any more."""

    code = "lease_lost"

    def __init__(self, name: str, *, epoch: int) -> None:
        super().__init__(f"lease {name} was lost after epoch {epoch}: acquire it again and start from the registry")
        self.name, self.epoch = name, epoch
