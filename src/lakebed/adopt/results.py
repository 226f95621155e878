"""What adopting a directory did, or in a dry run would do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.core.files import Verify
from lakebed.core.names import GLOBAL_INSTANCE
from lakebed.core.results import single_result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakebed.core.results import Rows

# Shown in reports and matched on by programs: never rename
IN_PLACE, LINK, COPY, REWRITE = "in place", "link", "copy", "rewrite"
KNOWN, EMPTY, REFUSED = "known", "empty", "refused"
TAKEN = (IN_PLACE, LINK, COPY, REWRITE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedFile:
    """One file of the directory and how it is adopted; `reason` says why it is refused or rewritten."""

    path: str
    how: str
    row_count: int
    file_size: int
    partition_path: str | None
    reason: str


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """`differences` describe how files differ from the table's columns; `skipped` counts entries that are not data."""

    table: str
    directory: str
    dry_run: bool
    creates_table: bool
    columns: tuple[str, ...]
    partition_by: tuple[str, ...]
    files: Rows[AdoptedFile]
    skipped: Mapping[str, int] = field(default_factory=dict)
    differences: tuple[str, ...] = ()
    partition_ids: tuple[int, ...] = ()
    run_id: int | None = None

    def count(self, *how: str) -> int:
        return sum(1 for file in self.files if file.how in how)

    @property
    def taken(self) -> int:
        return self.count(*TAKEN)

    @property
    def refused(self) -> tuple[AdoptedFile, ...]:
        return tuple(file for file in self.files if file.how == REFUSED)

    @property
    def rows(self) -> int:
        return sum(file.row_count for file in self.files if file.how in TAKEN)

    @property
    def size_bytes(self) -> int:
        return sum(file.file_size for file in self.files if file.how in TAKEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptRequest:
    """How a directory is adopted.

    `partition_by` of a new table defaults to the columns of its paths. `path_types` gives such a column another type than its values
    suggest, or "ignore". `evolve` allows new columns in an existing table; `rewrite` allows files with unsuitable types or ids to be
    rewritten; `copy` copies files instead of linking them; `skip_refused` adopts the other files where some are refused.
    `verify="pages"` decodes every page of every file before the first file is adopted. `batch_files` files become visible at a time.
    """

    event_time: str | None = None
    partition_by: Sequence[str] | None = None
    sort_by: Sequence[str] = ()
    path_types: Mapping[str, str] | None = None
    instance: str = GLOBAL_INSTANCE
    evolve: bool = False
    rewrite: bool = False
    copy: bool = False
    skip_refused: bool = False
    verify: str = Verify.FOOTER
    dry_run: bool = False
    actor: str | None = None
    progress: Callable[[int, int], None] | None = None
    batch_files: int = 500

    def __post_init__(self) -> None:
        Verify.parse(self.verify)
