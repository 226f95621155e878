"""What compaction would do and why: files, sizes and reasons, no I/O.

Files are judged per partition path: those of at least half the target stay, smaller ones are packed together. Two of these
never need two files, so packing always leaves fewer.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from lakebed.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

TARGET_BYTES = 128 * 1024 * 1024
_GOOD_SHARE = 2  # a file of at least half the target is good enough to stay
_LEAST_SHARE, _MOST_SHARE = 0.75, 1.8  # of the target: what an output should have


class PackedFile(Protocol):
    """A live file, as far as packing is concerned."""

    @property
    def file_id(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def row_count(self) -> int: ...
    @property
    def file_type(self) -> str: ...
    @property
    def partition_path(self) -> str: ...


FileT = TypeVar("FileT", bound=PackedFile)


class Reason(StrEnum):
    """Why the files of a partition path are taken, or not. Shown and stored: never rename."""

    SMALL = "small"  # taken: several small files become fewer
    JSON = "json"  # taken: files of other formats become Parquet
    GOOD = "good"  # every file has a good size
    ALONE = "alone"  # one small file, and none to join it with
    WAITS = "waits"  # the others are not worth rewriting the largest yet
    HOT = "hot"  # written to a moment ago
    OVER_LIMIT = "over_limit"  # the call's limits are used up
    NOT_ASKED = "not_asked"  # another partition than the one asked for
    DAMAGED = "damaged"  # files that cannot be read
    NEEDS_SPARK = "needs_spark"  # JSON, or partial results to combine, and no Spark at hand

    @property
    def taken(self) -> bool:
        return self in {Reason.SMALL, Reason.JSON}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Generic[FileT]):
    """The files of one partition path in one run of partitions: `chosen` are rewritten, the others stay."""

    partition_path: str
    reason: Reason
    files: tuple[FileT, ...]
    chosen: tuple[FileT, ...] = ()

    @property
    def chosen_bytes(self) -> int:
        return sum(file.size_bytes for file in self.chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One group, for display. Sizes are of what would be rewritten where it is taken, of all files where not."""

    table: str
    instance: str
    begin_insert_time: datetime
    end_insert_time: datetime
    schema_hash: str
    partition_path: str
    taken: bool
    reason: str
    files: int
    size_bytes: int
    rows: int
    files_after: int


@dataclass(slots=True)
class Budget:
    """What is left of a call's limits; None means no limit."""

    files: int | None = None
    size_bytes: int | None = None

    def __post_init__(self) -> None:
        for name, limit in (("max_files", self.files), ("max_bytes", self.size_bytes)):
            if limit is not None and limit < 0:
                message = f"{name}={limit}: a limit cannot be negative"
                raise InvalidValueError(message)

    def take(self, files: Sequence[FileT]) -> list[FileT]:
        """As many of the files, in their order, as the limits leave; what is not worth taking alone is given back."""
        taken: list[FileT] = []
        for file in files:
            if (self.files is not None and self.files < 1) or (self.size_bytes is not None and self.size_bytes < file.size_bytes):
                break
            self._add(-1, file.size_bytes)
            taken.append(file)
        if len(taken) == 1 and taken[0].file_type == "parquet":
            self._add(1, -taken.pop().size_bytes)
        return taken

    def _add(self, files: int, size_bytes: int) -> None:
        if self.files is not None:
            self.files += files
        if self.size_bytes is not None:
            self.size_bytes -= size_bytes


def require_target(target_bytes: int) -> int:
    if target_bytes <= 0:
        message = f"target_bytes={target_bytes}: a file has a positive size"
        raise InvalidValueError(message)
    return target_bytes


def count_outputs(size_bytes: float, *, target_bytes: int, planned: int = 0) -> int:
    """The number of files that these bytes become: each within 75 to 180 % of the target, if there are enough bytes for one.

    A number that was planned stays as long as it keeps to that.
    """
    if planned and _LEAST_SHARE * target_bytes <= size_bytes / planned <= _MOST_SHARE * target_bytes:
        return planned
    count = max(1, -int(-size_bytes // target_bytes))
    if count > 1 and size_bytes / count < _LEAST_SHARE * target_bytes and size_bytes / (count - 1) <= _MOST_SHARE * target_bytes:
        return count - 1
    return count


def choose_small(files: Iterable[FileT], *, target_bytes: int) -> list[FileT]:
    """Files worth rewriting: two or more small ones of a partition path, and all files that are not Parquet."""
    return [file for group in plan_groups(files, target_bytes=target_bytes) for file in group.chosen]


def plan_groups(files: Iterable[FileT], *, target_bytes: int, budget: Budget | None = None, balanced: bool = False) -> list[Group[FileT]]:
    """One group per partition path, in the order of the first file of each.

    `balanced`: a file is rewritten only together with others that are at least as much. So it doubles each time, and however
    often new files arrive, a row is not rewritten more often than a file can double up to the target.
    """
    by_path: dict[str, list[FileT]] = defaultdict(list)
    for file in files:
        by_path[file.partition_path].append(file)
    left = budget or Budget()
    return [_plan_group(path, own, target_bytes, left, balanced=balanced) for path, own in by_path.items()]


def leave(groups: Iterable[Group[FileT]], reason: Reason) -> list[Group[FileT]]:
    """The same groups, none of them taken."""
    return [Group(partition_path=g.partition_path, reason=reason if g.reason.taken else g.reason, files=g.files) for g in groups]


def is_small(file: PackedFile, *, target_bytes: int) -> bool:
    return file.file_type != "parquet" or file.size_bytes < target_bytes // _GOOD_SHARE


def _plan_group(path: str, files: Sequence[FileT], target_bytes: int, budget: Budget, *, balanced: bool) -> Group[FileT]:
    small = [file for file in files if is_small(file, target_bytes=target_bytes)]
    reason = _judge(small)
    worth = _balance(small) if balanced else small
    if reason.taken and not _judge(worth).taken:
        return Group(partition_path=path, reason=Reason.WAITS, files=tuple(files))
    chosen = budget.take(worth) if reason.taken else []
    if reason.taken and not _judge(chosen).taken:
        reason, chosen = Reason.OVER_LIMIT, []
    return Group(partition_path=path, reason=reason, files=tuple(files), chosen=tuple(chosen))


def _balance(small: Sequence[FileT]) -> list[FileT]:
    """Without those that are larger than all smaller ones together; files that are not Parquet stay."""
    whole = sum(file.size_bytes for file in small)
    left: set[int] = set()
    for file in sorted(small, key=lambda f: f.size_bytes, reverse=True):
        if file.file_type == "parquet" and file.size_bytes > whole - file.size_bytes:
            left.add(file.file_id)
            whole -= file.size_bytes
        else:
            break
    return [file for file in small if file.file_id not in left]


def _judge(small: Sequence[PackedFile]) -> Reason:
    if not small:
        return Reason.GOOD
    if any(file.file_type != "parquet" for file in small):
        return Reason.JSON
    return Reason.SMALL if len(small) > 1 else Reason.ALONE
