"""What "visible" and "pending" mean, in SQL: written once. Literals, because a partial index serves only a condition that spells its own."""

from __future__ import annotations

from typing import Final

VISIBLE: Final = ("serving", "readable")  # of a version of a table; stored: never rename
_LISTED = ", ".join(f"'{state}'" for state in VISIBLE)


def is_visible(alias: str = "") -> str:
    """The condition on a row of `table_metadata` that files of its version are read."""
    return f"{alias}standing IN ({_LISTED})"


def is_pending(alias: str = "") -> str:
    """The condition on a row of `table_files` that it waits for its group; its version has to be visible, too."""
    return f"{alias}added_group IS NULL AND {alias}retired_seq IS NULL AND {alias}file_type = 'parquet'"


VISIBLE_HASHES = f"SELECT schema_hash FROM table_metadata WHERE table_id = :table_id AND {is_visible()}"
