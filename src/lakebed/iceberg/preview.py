"""Rows of a published table as PyIceberg reads them, from a metadata file alone."""

from __future__ import annotations

from typing import Any

from pyiceberg.table import StaticTable


def read_first(location: str, rows: int) -> list[dict[str, Any]]:
    """The first rows, in no particular order."""
    found: list[dict[str, Any]] = StaticTable.from_metadata(location).scan(limit=rows).to_arrow().to_pylist()
    return found
