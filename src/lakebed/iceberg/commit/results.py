"""What a committer reports of its work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakebed.iceberg.commit.snapshot import Written
    from lakebed.iceberg.metadata.load import Base
    from lakebed.iceberg.metadata.state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class Advanced:
    """What one commit made true; `snapshot_id` is None when only schema, properties or retention changed.

    `undone` is what another program had changed and is now again as Lakebed wrote it.
    """

    table_id: int
    table: str
    group: int
    snapshot_id: int | None
    operation: str | None
    added: int
    removed: int
    metadata_location: str
    undone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The manifests beside the registry at the group that the table claims; both empty when they agree."""

    group: int
    files: int
    missing: tuple[str, ...]
    extra: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return not self.missing and not self.extra


def describe_commit(state: TableState, after: Base, written: Written | None, *, undone: tuple[str, ...] = ()) -> Advanced:
    snapshot = None if written is None else written.snapshot
    return Advanced(
        table_id=state.table_id,
        table=str(state.name),
        group=state.row.last_group,
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        operation=None if snapshot is None or snapshot.summary is None else snapshot.summary.operation.value,
        added=0 if written is None else written.added,
        removed=0 if written is None else written.removed,
        metadata_location=after.location,
        undone=undone,
    )
