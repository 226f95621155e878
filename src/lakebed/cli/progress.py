"""A bar with rate and remaining time for long work, on standard error, only on a terminal."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from lakebed.cli.rendering import err

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console
    from rich.progress import Task


class _Rate(ProgressColumn):
    """Per second, or per minute if that is less than one."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("")
        return Text(f"{speed:,.1f}/s" if speed >= 1 else f"{speed * 60:,.1f}/min", style="progress.data.speed")


@contextmanager
def bar(what: str, *, total: int | None = None, console: Console | None = None) -> Iterator[Callable[..., None]]:
    """Yields `progress(done, total)`; `total` may be omitted once it is known. Silent if standard error is not a terminal."""
    where = console or err()
    shown = Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), _Rate(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=where, transient=True, disable=not where.is_terminal,
    )  # fmt: skip
    with shown:
        task = shown.add_task(what, total=total)

        def progress(done: int, total: int | None = None) -> None:
            shown.update(task, completed=done, total=total)  # None leaves it unchanged

        yield progress
