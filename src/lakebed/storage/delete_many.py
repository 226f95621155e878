"""Deleting many paths: in parallel, in the order of the input, and one failure never stops the others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lakebed.core.errors import PathRefusedError
from lakebed.storage.protocol import DeleteOutcome, Deletion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Verdict = tuple[Deletion, str]  # the result, and why it failed

DELETED: Verdict = (Deletion.DELETED, "")
MISSING: Verdict = (Deletion.MISSING, "")


def delete_each(
    paths: Sequence[str],
    *,
    resolve: Callable[[str], str],
    delete_batch: Callable[[Sequence[str]], list[Verdict]],
    workers: int,
    smallest_batch: int,
) -> list[DeleteOutcome]:
    """`delete_batch` gets canonical paths, neighbours together, and answers one verdict for each."""
    verdicts: list[Verdict] = [(Deletion.FAILED, "it was not tried")] * len(paths)
    targets: list[tuple[str, int]] = []
    for index, path in enumerate(paths):
        try:
            targets.append((resolve(path), index))
        except PathRefusedError as exc:
            verdicts[index] = (Deletion.FAILED, str(exc))
    targets.sort()  # neighbours share their open directories
    batches = list(_split(targets, size=max(smallest_batch, -(-len(targets) // (workers * 4)))))
    for batch, answers in zip(batches, _run(batches, delete_batch, workers=workers), strict=True):
        for (_, index), verdict in zip(batch, answers, strict=True):
            verdicts[index] = verdict
    return [DeleteOutcome(path=path, result=result, reason=reason) for path, (result, reason) in zip(paths, verdicts, strict=True)]


def _run(
    batches: Sequence[Sequence[tuple[str, int]]], delete_batch: Callable[[Sequence[str]], list[Verdict]], *, workers: int
) -> Iterator[list[Verdict]]:
    names = ([path for path, _ in batch] for batch in batches)
    if len(batches) <= 1:
        yield from map(delete_batch, names)
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="lakebed-delete") as pool:
        yield from pool.map(delete_batch, names)


def _split(targets: Sequence[tuple[str, int]], *, size: int) -> Iterator[Sequence[tuple[str, int]]]:
    for start in range(0, len(targets), size):
        yield targets[start : start + size]
