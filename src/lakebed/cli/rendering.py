"""Rendering of results: JSON and CSV for programs, tables that fit the terminal for people."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from dataclasses import asdict
from datetime import date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakebed.core.results import Rows

_LONGEST_GROUPED = 10**15
_PIPED_WIDTH = 10_000  # a file has no width: text that was cut there could not be searched
_LEAST_FOLDED = 24
_GAP = 2
# Headings for columns of the registry
_HEADS = {
    "view_set_name": "table",
    "view_instance_id": "instance",
    "begin_insert_time": "begin",
    "end_insert_time": "end",
    "num_rows": "rows",
    "row_count": "rows",
    "file_count": "files",
    "partition_count": "partitions",
    "file_size": "bytes",
    "size_bytes": "bytes",
    "total_size": "bytes",
    "file_path": "path",
    "is_current": "current",
    "schema_version": "version",
}


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def out() -> Console:
    is_free = "COLUMNS" not in os.environ and not sys.stdout.isatty()
    return Console(highlight=False, emoji=False, width=_PIPED_WIDTH if is_free else None)


def err() -> Console:
    """Standard error, for everything except results. A path with `:car:` in it is shown unchanged."""
    return Console(stderr=True, highlight=False, emoji=False)


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, default=_plain))


def print_rows(rows: Rows[Any], *, output: Format = Format.TABLE, columns: Sequence[str] = (), empty: str = "no rows") -> None:
    """All columns under the rows' own names as JSON or CSV; `columns` of them as a table for people."""
    if output is Format.TABLE:
        shown = columns or rows.columns
        print_table(shown, [{name: getattr(row, name) for name in shown} for row in rows], empty=empty)
    else:
        print_records(rows.columns, [asdict(row) for row in rows], output=output)


def print_records(
    names: Sequence[str], rows: Sequence[Mapping[str, object]], *, output: Format, shown: Sequence[str] = (), empty: str = "no rows"
) -> None:
    """The columns `names` as JSON or CSV, those that are `shown` as a table; the same columns unless given."""
    match output:
        case Format.JSON:
            print_json([{name: row[name] for name in names} for row in rows])
        case Format.CSV:
            print_csv(names, ([row[name] for name in names] for row in rows))
        case Format.TABLE:
            print_table(shown or names, rows, empty=empty)


def print_csv(names: Sequence[str], rows: Iterable[Sequence[object]], *, header: bool = True) -> None:
    """RFC 4180: a header, CRLF, quotes where they are needed; NULL is an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    if header:
        writer.writerow(names)
    writer.writerows([text_of(value) for value in row] for row in rows)
    typer.echo(text.getvalue(), nl=False)


def print_table(columns: Sequence[str], rows: Iterable[Mapping[str, object]], *, empty: str = "no rows") -> None:
    """One line per row where the terminal is wide enough, with long texts folded; else one line per value."""
    print_grid([_HEADS.get(name, name) for name in columns], [[show(row[name]) for name in columns] for row in rows], empty=empty)


def print_grid(heads: Sequence[str], cells: Sequence[Sequence[str]], *, empty: str) -> None:
    console = out()
    if not cells:
        console.print(empty, markup=False)
        return
    widths = [max(cell_len(text) for text in column) for column in zip(heads, *cells, strict=True)]
    needed = sum(min(width, _LEAST_FOLDED) if width > _LEAST_FOLDED else width for width in widths) + _GAP * (len(widths) + 1)
    if needed <= console.width:
        console.print(_as_table(heads, widths, cells))
    else:
        _print_records(console, heads, cells)


def show(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else ""
        case int() if abs(value) < _LONGEST_GROUPED:  # ids of snapshots are not amounts
            return f"{value:,}"
        case float():
            return f"{value:,.1f}"
        case datetime():
            return f"{value:%F %T}"
        case _:
            return str(value)


def _as_table(heads: Sequence[str], widths: Sequence[int], cells: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, _GAP, 0, 0), show_edge=False)
    for number, (head, width) in enumerate(zip(heads, widths, strict=True)):
        is_amount = all(_is_amount(row[number]) for row in cells)
        is_short = width <= _LEAST_FOLDED
        table.add_column(head, justify="right" if is_amount else "left", no_wrap=is_short, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _print_records(console: Console, heads: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """A blank line between two rows; nothing is cut, long values continue on the next line."""
    margin = max(map(cell_len, heads)) + _GAP
    for number, row in enumerate(cells):
        grid = Table.grid(padding=(0, 0))
        grid.add_column(width=margin, no_wrap=True, style="bold")
        grid.add_column(overflow="fold")
        for head, text in zip(heads, row, strict=True):
            grid.add_row(head, Text(text))
        console.print(*([""] if number else []), grid, sep="\n")


def _is_amount(text: str) -> bool:
    return not text or text.replace(",", "").replace(".", "", 1).lstrip("-").isdigit()


def text_of(value: object) -> str:
    """One value as CSV has it: times in ISO 8601, lists and structs as JSON."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return repr(value) if math.isfinite(value) else _name_of(value)
        case dict() | list() | tuple():
            return json.dumps(to_json(value), default=_plain)
        case _:
            return _plain(value)


def to_json(value: Any) -> Any:
    """What JSON can hold: NaN and infinities become text, as Spark writes them, and so do the keys of maps."""
    match value:
        case float() if not math.isfinite(value):
            return _name_of(value)
        case dict():
            return {key if isinstance(key, str) else text_of(key): to_json(each) for key, each in value.items()}
        case list() | tuple():
            return [to_json(each) for each in value]
        case _:
            return value


def _name_of(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _plain(value: object) -> str:
    match value:
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case bytes():
            return value.hex()
        case _:
            return str(value)
