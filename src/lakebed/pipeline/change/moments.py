"""Replaces functions such as `now()` in a condition by literals, so that every evaluation gives the same result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlglot
from sqlglot import TokenType
from sqlglot.errors import SqlglotError

from lakebed.core.times import from_micros
from lakebed.pipeline.spark.errors import spark_translated

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlglot import Token

    from lakebed.pipeline.context import Context

_NOW, _TODAY, _LOCAL = "now", "today", "local"
_MEANS = {
    "now": _NOW,
    "current_timestamp": _NOW,
    "current_date": _TODAY,
    "curdate": _TODAY,
    "localtimestamp": _LOCAL,
}
_WITHOUT_CALL = frozenset({"current_timestamp", "current_date", "localtimestamp"})  # the others are columns unless they are called
_ASK = "SELECT unix_micros(current_timestamp()), CAST(current_date() AS STRING), CAST(localtimestamp() AS STRING)"


def freeze(context: Context, where: str, columns: Collection[str]) -> str:
    """The same condition with `now()`, `current_date` and the like as literals; unchanged if it has none."""
    try:
        found = _find(sqlglot.tokenize(where, read="spark"), {column.lower() for column in columns})
    except (SqlglotError, ValueError):
        return where
    if not found:
        return where
    literals = _ask(context)
    pieces, reached = [], 0
    for begin, end, meaning in found:
        pieces += [where[reached:begin], literals[meaning]]
        reached = end + 1
    return "".join([*pieces, where[reached:]])


def _find(tokens: Sequence[Token], columns: Collection[str]) -> list[tuple[int, int, str]]:
    """First and last character of every mention, with its meaning."""
    found: list[tuple[int, int, str]] = []
    for n, token in enumerate(tokens):
        name = token.text.lower()
        if name not in _MEANS or token.token_type in {TokenType.STRING, TokenType.IDENTIFIER} or _is(tokens, n - 1, TokenType.DOT):
            continue
        if _is(tokens, n + 1, TokenType.L_PAREN) and _is(tokens, n + 2, TokenType.R_PAREN):
            found.append((token.start, tokens[n + 2].end, _MEANS[name]))
        elif name in _WITHOUT_CALL and name not in columns and not _is(tokens, n + 1, TokenType.L_PAREN):
            found.append((token.start, token.end, _MEANS[name]))
    return found


def _is(tokens: Sequence[Token], place: int, kind: TokenType) -> bool:
    return 0 <= place < len(tokens) and tokens[place].token_type is kind


def _ask(context: Context) -> dict[str, str]:
    with spark_translated("reading the current time"):
        ((micros, today, local),) = context.spark.sql(_ASK).collect()
    moment = from_micros(micros).replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    return {_NOW: f"TIMESTAMP '{moment}+00:00'", _TODAY: f"DATE '{today}'", _LOCAL: f"TIMESTAMP_NTZ '{local}'"}
