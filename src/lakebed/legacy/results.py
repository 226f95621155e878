"""What importing an older lake did, or would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from lakebed.core.results import single_result
from lakebed.legacy.plan import LegacyFinding  # noqa: TC001 - `Rows` reads the kind at run time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakebed.core.results import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedViewSet:
    """Counts of one view set. `incompatible` partitions are kept but not read; `known` came in by an earlier run."""

    view_set_name: str
    table: str
    schema_hash: str
    partitions: int = 0
    empty_partitions: int = 0
    incompatible_partitions: int = 0
    known_partitions: int = 0
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    left_out: int = 0


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyImport:
    """`findings` hold every row that is not what it should be, taken over or not; nothing was dropped without a line there."""

    source: str
    version: int
    root: str
    in_place: bool
    dry_run: bool
    view_sets: Rows[ImportedViewSet]
    findings: Rows[LegacyFinding]
    temporary_files: int = 0
    run_id: int | None = None

    @property
    def partitions(self) -> int:
        return sum(v.partitions + v.empty_partitions + v.incompatible_partitions for v in self.view_sets)


class ImportOptions(TypedDict, total=False):
    """What a caller may choose; see `ImportRequest`."""

    root: str | None
    database: str
    names: Mapping[str, str] | None
    view_sets: Sequence[str]
    event_times: Mapping[str, str] | None
    serving: Mapping[str, str] | None
    copy: bool
    dry_run: bool
    actor: str | None
    progress: Callable[[int, int], None] | None
    batch_partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """How an older lake is imported.

    `root` is where its paths begin; without it, the warehouse. `names` maps view sets to tables, `event_times` to the column that holds
    the event time, `serving` to the schema hash that readers shall see (by default the one written last). `copy` links nothing.
    `batch_partitions` come in per transaction.
    """

    root: str | None = None
    database: str = "legacy"
    names: Mapping[str, str] | None = None
    view_sets: Sequence[str] = ()
    event_times: Mapping[str, str] | None = None
    serving: Mapping[str, str] | None = None
    copy: bool = False
    dry_run: bool = True
    actor: str | None = None
    progress: Callable[[int, int], None] | None = None
    batch_partitions: int = 500
