"""One data file as it is offered to the registry."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from lakebed.core.errors import InvalidValueError

if TYPE_CHECKING:
    from datetime import datetime

_HEX_64 = re.compile(r"[0-9a-f]{64}", re.ASCII)


class FileType(StrEnum):
    """Stored: never rename."""

    PARQUET = "parquet"
    JSON = "json"


class ChecksumKind(StrEnum):
    """What the checksum covers. Stored: never rename."""

    WHOLE_FILE = "sha256"
    FOOTER = "footer-sha256"  # object stores: footer beside size and ETag
    NONE = "none"  # registered before checksums were kept


class Verify(StrEnum):
    """How much of a file that others wrote is read before it is registered. An argument of callers: never rename."""

    FOOTER = "footer"  # the footer, and that what it points to is inside the file
    PAGES = "pages"  # every page of every column is decoded, too

    @classmethod
    def parse(cls, value: str) -> Verify:
        try:
            return cls(value)
        except ValueError:
            message = f"invalid verify {value!a}: expected 'footer' or 'pages'"
            raise InvalidValueError(message) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatistics:
    """The statistics of one column of one file, for pruning; bounds are sortable bytes (core.bounds)."""

    field_id: int
    null_count: int | None = None
    value_count: int | None = None
    lower: bytes | None = None
    upper: bytes | None = None
    lower_coordinate: float | None = None
    upper_coordinate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """The raw tail of a Parquet file, `FileMetaData + length + PAR1`, as the file holds it (format version 2)."""

    tail: bytes
    num_rows: int
    checksum: str

    @property
    def length(self) -> int:
        return len(self.tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A finished, durable file that a partition will own. `path` is canonical (storage made it)."""

    path: str
    size_bytes: int
    row_count: int
    checksum: str
    checksum_kind: ChecksumKind = ChecksumKind.WHOLE_FILE
    file_type: FileType = FileType.PARQUET
    partition_path: str = ""
    is_compressed: bool = True
    footer: Footer | None = None
    columns: tuple[ColumnStatistics, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.size_bytes <= 0 or self.row_count <= 0:
            message = f"{self.path}: a file has at least one byte and one row; zero rows make an empty partition"
            raise InvalidValueError(message)
        if not _HEX_64.fullmatch(self.checksum):
            message = f"{self.path}: the checksum is not 64 hexadecimal digits"
            raise InvalidValueError(message)
        if (self.file_type is FileType.PARQUET) != (self.footer is not None):
            message = f"{self.path}: a Parquet file comes with its footer, any other file without"
            raise InvalidValueError(message)
        if self.file_type is not FileType.PARQUET and self.path.endswith(".parquet"):
            message = f"{self.path}: only a Parquet file may be called *.parquet, because planning goes by the name"
            raise InvalidValueError(message)
        if self.footer is not None and self.footer.num_rows != self.row_count:
            message = f"{self.path}: the footer counts {self.footer.num_rows} rows, the caller {self.row_count}"
            raise InvalidValueError(message)
        if "\n" in self.path or "\n" in self.partition_path:
            message = "a path may not contain a line break"
            raise InvalidValueError(message)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedTable:
    """A table whose directory the sweep leaves alone; `reason` says why and what to do."""

    table: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """Paths that the catalog's pointers reach. What is below `unsure` cannot be judged, so all of it counts as needed."""

    paths: frozenset[str] = frozenset()
    unsure: tuple[str, ...] = ()
    skipped: tuple[SkippedTable, ...] = ()

    def holds(self, path: str) -> bool:
        return path in self.paths or path.startswith(self.unsure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A file in the warehouse that no table, queue, open operation or snapshot knows."""

    path: str
    size_bytes: int
    modified_at: datetime
