"""The registry's tables as a graph, from their declaration: each with its columns, grouped by what they are about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.registry.schema.tables import METADATA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Table

_HEAD = """digraph "registry" {
  graph [rankdir=LR, bgcolor=white, fontname="Helvetica", fontsize=12, nodesep=0.15, ranksep=0.7, pad=0.2]
  node [shape=plain, fontname="Helvetica", fontsize=10]
  edge [color="#5b7083", arrowsize=0.6]
"""
_ROOMS = {
    "lake tables": ("tables", "table_metadata", "table_seq", "table_stats", "serving_history"),
    "partitions and files": ("partition_scopes", "partitions", "table_files", "partition_metadata", "file_columns", "file_ranges"),
    "writes and deletions": ("operations", "temporary_files", "left_out_files"),
    "Iceberg": ("table_groups", "table_snapshots"),
    "journal and delivery": ("change_log", "subscriber_cursor", "dead_letter", "astha_state"),
    "leases, runs, facts": ("leases", "lease_numbers", "runs", "registry_facts"),
}
_OWNERS = {"scope_id": "partition_scopes", "partition_id": "partitions", "file_id": "table_files", "table_id": "tables"}


def render(_: Path) -> str:
    missing = METADATA.tables.keys() - {name for names in _ROOMS.values() for name in names}
    if missing:
        message = f"give these tables a place in {__name__}: {', '.join(sorted(missing))}"
        raise SystemExit(message)
    lines = [_HEAD.rstrip()]
    for number, (room, names) in enumerate(_ROOMS.items()):
        lines += [f"  subgraph cluster_{number} {{", f'    label="{room}"; style="rounded"; color="#b8c4cf"; fontsize=11']
        lines += [f"    {name} [label={_label(METADATA.tables[name])}]" for name in names]
        lines.append("  }")
    return "\n".join([*lines, *sorted(_edges()), "}"]) + "\n"


def _label(table: Table) -> str:
    keys = {column.name for column in table.primary_key}
    head = f'<tr><td bgcolor="#dce6ee" align="left"><b>{table.name}</b>&#160;&#160;&#160;</td></tr>'
    rows = [
        f'<tr><td align="left" port="{c.name}">{f"<u>{c.name}</u>" if c.name in keys else c.name}{"" if c.nullable is False else " ?"}&#160;&#160;&#160;&#160;</td></tr>'
        for c in table.columns
    ]
    return (
        f'<<table border="1" cellborder="0" cellspacing="0" cellpadding="2" color="#5b7083" bgcolor="white">{head}{"".join(rows)}</table>>'
    )


def _edges() -> Iterator[str]:
    """Foreign keys, and columns named after the table that they lead to; of `table_id` only those that others are reached by."""
    for table in METADATA.tables.values():
        declared = {column: key.referred_table.name for key in table.foreign_key_constraints for column in key.column_keys}
        for column in table.columns:
            owner = declared.get(column.name) or _OWNERS.get(column.name)
            is_common = column.name == "table_id" and table.name not in ("partitions", "table_metadata", "table_snapshots")
            if owner is not None and owner != table.name and not is_common:
                yield f"  {table.name}:{column.name} -> {owner}"
