"""The result of an insert, and the wait for Iceberg."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from lakebed.core.errors import InvalidValueError
from lakebed.core.results import single_result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.core.names import TableName
    from lakebed.parquet.capture import CapturedFile
    from lakebed.pipeline.context import Context
    from lakebed.registry.partitions.publish import Published
    from lakebed.registry.snapshots.waiting import Commits
    from lakebed.staging.write import Staging


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class InsertResult:
    """`group` and `snapshot_id` are known once Iceberg has the rows: after a `sync` insert, or after `wait`.

    `timings` are seconds per stage; they are empty if a repeated batch got its first answer.
    """

    op_id: str
    table: TableName
    partition_id: int
    files: int
    rows: int
    group: int | None
    journal_number: int
    snapshot_id: int | None = None
    is_replay: bool = False
    timings: Mapping[str, float] = field(default_factory=dict, compare=False)
    table_id: int = field(default=0, repr=False)
    file_ids: range = field(default=range(0), repr=False)
    commits: Commits | None = field(default=None, repr=False, compare=False)

    def wait(self, timeout_s: float | None = None) -> Self:
        """Wait until a snapshot holds the rows. Return the same result with `group` and `snapshot_id`.

        It does not wait for rows that enter no snapshot (an empty insert, JSON files). A timeout loses nothing: wait again.
        """
        if timeout_s is not None and timeout_s < 0:
            message = f"a timeout must not be negative, got {timeout_s} s"
            raise InvalidValueError(message)
        if self.commits is None or self.snapshot_id is not None:
            return self
        done = self.commits.wait(self.table_id, self.file_ids, timeout_s=timeout_s)
        return self if done is None else replace(self, group=done.group, snapshot_id=done.snapshot_id)


def result_of(context: Context, work: Staging, table: TableName, published: Published, captured: Sequence[CapturedFile]) -> InsertResult:
    return InsertResult(
        op_id=work.operation.op_id, table=table, partition_id=published.partition_id, files=len(captured),
        rows=sum(c.file.row_count for c in captured), group=published.group, journal_number=published.journal_number,
        timings=work.timings, table_id=published.table_id, file_ids=published.file_ids, commits=context.commits,
    )  # fmt: skip
