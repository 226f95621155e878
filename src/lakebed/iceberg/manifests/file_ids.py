"""Which files a manifest may hold, as a few ranges of the registry's file ids: a removal opens the manifests that it must rewrite.

Ids rise in the order of commits and a step adds its files in their order, so the ranges of two manifests rarely meet.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FILE_IDS = "lakebed.file-ids"  # in the header of a manifest list; stored: never rename
_MOST = 8
Ranges = tuple[tuple[int, int], ...]  # first and last, in order and apart


def join_ranges(ranges: Iterable[tuple[int, int]], *, most: int = _MOST) -> Ranges:
    """Ranges that cover them all, at most `most` of them: the smallest gaps are closed."""
    joined: list[list[int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1][1] = max(joined[-1][1], last)
        else:
            joined.append([first, last])
    gaps = sorted(range(1, len(joined)), key=lambda i: joined[i][0] - joined[i - 1][1], reverse=True)
    starts = [0, *sorted(gaps[: most - 1])]
    ends = [*(start - 1 for start in starts[1:]), len(joined) - 1]
    return tuple((joined[start][0], joined[end][1]) for start, end in zip(starts, ends, strict=True)) if joined else ()


def merge_ranges(parts: Sequence[Ranges | None]) -> Ranges | None:
    """Of all parts together; None, which is anything, when one of them is unknown."""
    return None if any(part is None for part in parts) else join_ranges(pair for part in parts for pair in part or ())


def span(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges)


def encode_ranges(lines: Sequence[Ranges | None]) -> str:
    """One entry per line of a manifest list, in its order."""
    return json.dumps(
        [None if ranges is None else [number for pair in ranges for number in pair] for ranges in lines], separators=(",", ":")
    )


def decode_ranges(text: str | None, count: int) -> list[Ranges | None]:
    """Unknown for all where nothing, or nothing that fits the list, is written down: then every manifest is searched."""
    try:
        found = json.loads(text or "null")
        lines = [None if flat is None else _pair(flat) for flat in found]
    except (ValueError, TypeError):
        return [None] * count
    return lines if len(lines) == count else [None] * count


def _pair(flat: Sequence[int]) -> Ranges:
    return tuple(zip(map(int, flat[::2]), map(int, flat[1::2]), strict=True))
