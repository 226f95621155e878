"""A plain model of a registry: tables, partitions and files as Python values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from builders import logical_dump
from lakebed.core.names import TableName
from lakebed.core.partitions import SMALL_FILE_BYTES
from lakebed.core.times import TimeRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakebed.core.errors import LakebedError
    from lakebed.registry.registry import Registry

NAMES = tuple(TableName("shop", name) for name in ("orders", "daily", "returns"))
INSTANCES = ("global", "tenant-7")
PARTITION_PATHS = ("", "day=1", "day=2")
READERS = ("reader/a", "reader/b")
VISIBLE = ("serving", "readable")


class FileShape(NamedTuple):
    """What a file to be published looks like; its path and its place in the order are the history's."""

    rows: int = 1
    partition_path: str = ""
    is_large: bool = False
    is_json: bool = False


class Scope(NamedTuple):
    """Inside one, partitions never overlap."""

    instance: str
    schema_hash: str


@dataclass(slots=True, kw_only=True)
class File:
    file_id: int
    path: str
    shape: FileShape
    schema_hash: str
    partition_id: int
    added_seq: int
    retired_seq: int | None = None
    added_group: int | None = None
    removed_group: int | None = None

    @property
    def size_bytes(self) -> int:
        return SMALL_FILE_BYTES if self.shape.is_large else 20_000


@dataclass(slots=True, kw_only=True)
class Partition:
    partition_id: int
    scope: Scope
    insert_range: TimeRange
    event_range: tuple[int, int] | None


@dataclass(slots=True, kw_only=True)
class Table:
    """One lake table as the design says it must be; `iceberg`, `at_group` and `visible_at` remember instead of computing."""

    name: TableName
    table_id: int
    is_view: bool
    version_states: dict[str, str]
    partitions: dict[int, Partition] = field(default_factory=dict)
    gone: list[int] = field(default_factory=list)
    files: dict[int, File] = field(default_factory=dict)
    finalized: set[int] = field(default_factory=set)
    last_seq: int = 0
    last_slot: int = 0
    last_group: int = 0
    committed_group: int = 0
    iceberg: set[int] = field(default_factory=set)
    at_group: dict[int, frozenset[int]] = field(default_factory=lambda: {0: frozenset()})
    visible_at: dict[int, frozenset[int]] = field(default_factory=dict)
    horizon: int = 0
    snapshots: dict[int, int] = field(default_factory=dict)

    @property
    def serving(self) -> str:
        return next(h for h, state in self.version_states.items() if state == "serving")

    @property
    def staged(self) -> str | None:
        return next((h for h, state in self.version_states.items() if state == "staged"), None)

    def live(self) -> list[File]:
        return [f for f in self.files.values() if f.retired_seq is None]

    def visible(self) -> list[File]:
        return [f for f in self.live() if self.is_readable(f)]

    def is_readable(self, file: File) -> bool:
        return self.version_states[file.schema_hash] in VISIBLE

    def files_of(self, ids: Iterable[int]) -> list[File]:
        wanted = set(ids)
        return [f for f in self.live() if f.partition_id in wanted]

    def allocate_group(self, *, enter: Iterable[File] = (), leave: Iterable[File] = ()) -> int:
        """The next step of the Iceberg history; what it holds from now on is remembered as a set."""
        self.last_group += 1
        for file in enter:
            file.added_group = self.last_group
            self.iceberg.add(file.file_id)
        for file in leave:
            self.iceberg.discard(file.file_id)
        self.at_group[self.last_group] = frozenset(self.iceberg)
        return self.last_group

    def overlaps(self, scope: Scope, wanted: TimeRange, *, apart_from: Iterable[int] = ()) -> bool:
        return any(
            p.scope == scope and p.insert_range.begin < wanted.end and wanted.begin < p.insert_range.end
            for p in self.partitions.values()
            if p.partition_id not in apart_from
        )

    def next_slot(self, now: int) -> TimeRange:
        slot = max(now, self.last_slot + 1)
        return TimeRange(begin=slot, end=slot + 1)

    def drop(self, ids: Iterable[int]) -> None:
        for partition_id in sorted(ids):
            del self.partitions[partition_id]
            self.gone.append(partition_id)

    def forget(self, file: File) -> None:
        """Its deletion is final."""
        del self.files[file.file_id]
        self.finalized.add(file.file_id)
        self.horizon = max(self.horizon, file.retired_seq or 0)


@dataclass(slots=True, kw_only=True)
class Queued:
    table: Table
    file: File
    expiration: int
    attempts: int = 0
    claimed_until: int | None = None


def sums_of(files: Sequence[File]) -> tuple[int, int, int, int]:
    """Rows, files, small files, bytes."""
    small = sum(not f.shape.is_large for f in files)
    return sum(f.shape.rows for f in files), len(files), small, sum(f.size_bytes for f in files)


class Refusal:
    """The block raises the error, and every row of every table is as before."""

    def __init__(self, registry: Registry, error: type[LakebedError]) -> None:
        self._registry, self._error = registry, error

    def __enter__(self) -> None:
        self._before = logical_dump(self._registry)

    def __exit__(self, kind: object, found: BaseException | None, _: object) -> bool:
        assert isinstance(found, self._error), f"{self._error.__name__} was expected, not {found!r}"
        assert logical_dump(self._registry) == self._before
        return True
