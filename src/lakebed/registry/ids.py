"""Row ids: each lake table has a range of its own, so that its rows are adjacent in every index."""

from __future__ import annotations

ID_BITS = 40  # ids of one lake table: its number in the upper bits, so that they never collide with another table's


def ids_of_table(alias: str = "") -> str:
    """The condition that a row is one of `:table_id`: a range of its key, so that rows of other tables are not read."""
    return f"{alias}id >= (:table_id << {ID_BITS}) AND {alias}id < ((:table_id + 1) << {ID_BITS})"
