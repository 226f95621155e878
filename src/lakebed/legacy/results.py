"""What importing an older lake did, or in a dry run would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.core.results import single_result
from lakebed.legacy.plan import LegacyFinding  # noqa: TC001 - `Rows` reads the kind at run time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakebed.core.results import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedViewSet:
    """Counts of one view set. `incompatible` partitions are kept but not read; `known` were imported by an earlier run."""

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
    """`findings` hold every row with a problem, imported or not; every row that was left out has a finding."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """How an older lake is imported.

    `root` is the directory to which its paths are relative, by default the warehouse. `names` maps view sets to tables, `event_times` to
    the column that holds the event time, `serving` to the schema hash that readers see (by default the one written last). `copy` copies
    files instead of linking them. `batch_partitions` partitions are imported per transaction.
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
