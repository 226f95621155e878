"""The request is valid, but a resource is unavailable: try later."""

from __future__ import annotations

from lakebed.core.errors.families import UnavailableError


class CommitTimeoutError(UnavailableError):
    """The rows are registered and safe, but Iceberg has not reached them within the time given, or it is unknown whether it has."""

    code = "commit_timeout"

    def __init__(
        self,
        table: str,
        *,
        group: int | None,
        committed: int | None,
        timeout_s: float,
        holder: str | None = None,
        reason: str | None = None,
    ) -> None:
        if reason is not None:
            how_far = f"the registry did not say within {timeout_s:g} s whether Iceberg has them ({reason})"
        else:
            whose = f"{holder} publishes" if holder else "no process publishes: keep one open, or run a service"
            how_far = f"Iceberg is at group {committed}, not {group}, after {timeout_s:g} s; {whose}"
        super().__init__(f"{table}: the rows are registered, but {how_far}; wait again, do not insert again")
        self.table, self.group, self.committed, self.holder = table, group, committed, holder


class BackPressureError(UnavailableError):
    """Too many groups of the table wait for Iceberg: nothing was written, another write would only lengthen the queue."""

    code = "back_pressure"

    def __init__(self, table: str, *, backlog: int, limit: int) -> None:
        super().__init__(f"{table}: {backlog} groups wait for their Iceberg commit, the limit is {limit}: nothing was written; try later")
        self.table, self.backlog, self.limit = table, backlog, limit


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


class SparkUnavailableError(UnavailableError):
    """Spark stopped, or lost its working state."""

    code = "spark_unavailable"


class ReadExpiredError(UnavailableError):
    """A registry snapshot was held for too long; open a new one."""

    code = "read_expired"


class OutcomeUnknownError(UnavailableError):
    """The connection was lost during commit and the outcome could not be looked up yet."""

    code = "outcome_unknown"

    def __init__(self, op_id: str, *, run_id: int | None = None) -> None:
        what, how = (f"operation {op_id}", "ask `find_operation`") if run_id is None else (f"run {run_id}", "list the runs")
        super().__init__(f"the outcome of {what} is unknown: {how} when the registry answers; do not retry or clean up before")
        self.op_id, self.run_id = op_id, run_id
