"""Tables in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table, and an empty one; nothing at all when there is no row."""
    body = [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *body, ""] if body else []


def number(value: float) -> str:
    """Three digits that matter; large ones whole."""
    if abs(value) >= 100:  # noqa: PLR2004 - from there on fractions are noise
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
