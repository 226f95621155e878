"""Rows of Parquet, CSV and JSON files into a table, through Spark."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli.rendering import out, print_json
from lakebed.cli.terminal import URL, WAREHOUSE, AsJson, DryRun, TableName, Url, Warehouse, Yes, confirm, opened, showing
from lakebed.core.errors import InvalidValueError, PathRefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from lakebed.lake import Lake


class InputFormat(StrEnum):
    """What the files hold."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"


class Mode(StrEnum):
    """What becomes of the rows that are there."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    OVERWRITE_PARTITIONS = "overwrite_partitions"


_ENDINGS = {
    ".parquet": InputFormat.PARQUET, ".csv": InputFormat.CSV, ".json": InputFormat.JSON, ".jsonl": InputFormat.JSON, ".ndjson": InputFormat.JSON,
}  # fmt: skip
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".deflate")
_HIDDEN = ("_", ".")
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Parquet, CSV or JSON lines, on this host or in an object store")]
FormatOption = Annotated[InputFormat | None, typer.Option("--input-format", help="what the files hold; by their extension when left out")]
ModeOption = Annotated[
    Mode, typer.Option("--mode", help="append, replace the rows of the instance, or replace the partitions that the files hold")
]
InstanceOption = Annotated[str, typer.Option("--instance", help="the instance that the rows belong to")]
Evolve = Annotated[bool, typer.Option("--evolve", help="add the columns that the table lacks")]
Sync = Annotated[bool, typer.Option("--sync", help="return when an Iceberg snapshot has the rows")]
Header = Annotated[bool, typer.Option("--header/--no-header", help="whether the first line of CSV files names the columns")]


def insert(  # noqa: PLR0913 - one option per choice
    table: TableName,
    files: Files,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    input_format: FormatOption = None,
    mode: ModeOption = Mode.APPEND,
    instance: InstanceOption = "global",
    evolve: Evolve = False,
    sync: Sync = False,
    header: Header = True,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Insert the rows of files, all or none of them. Values of CSV and JSON get the types of the table's columns.

    Example: lakebed insert shop.orders orders.csv more.csv --evolve
    """
    with opened(registry, warehouse, publishes=not dry_run) as lake:
        name = str(lake.table(table).name)
        paths = [_find_file(path, is_named=input_format is not None) for path in files]
        kind = input_format or _format_of(paths)
        if mode is not Mode.APPEND and not dry_run:
            confirm(f"replace rows of {name} by those of {len(paths):,} files?", yes=yes)
        with showing(f"inserting into {name}"):
            df = _read(lake, name, paths, kind, header=header, evolve=evolve)
            facts = _try(lake, name, df, mode, instance, evolve) if dry_run else _insert(lake, name, df, mode, instance, evolve, sync=sync)
    _render(
        {"table": name, "dry_run": dry_run, "input_format": str(kind), "mode": str(mode), "inputs": len(paths), **facts}, as_json=as_json
    )


def _read(lake: Lake, table: str, paths: Sequence[str], kind: InputFormat, *, header: bool, evolve: bool) -> DataFrame:
    from lakebed.pipeline.write.input_files import read_input  # noqa: PLC0415 - brings pyspark

    return read_input(lake._context, lake.table(table), paths, kind=kind.value, header=header, evolve=evolve)  # noqa: SLF001 - Python has Spark


def _insert(lake: Lake, table: str, df: DataFrame, mode: Mode, instance: str, evolve: bool, *, sync: bool) -> dict[str, Any]:  # noqa: FBT001
    done = lake.insert(table, df, mode=mode.value, instance=instance, evolve=evolve, metadata_mode="sync" if sync else "async")
    return {
        "rows": done.rows, "files": done.files, "partition_id": done.partition_id, "group": done.group,
        "journal_number": done.journal_number, "snapshot_id": done.snapshot_id,
    }  # fmt: skip


def _try(lake: Lake, table: str, df: DataFrame, mode: Mode, instance: str, evolve: bool) -> dict[str, Any]:  # noqa: FBT001
    from lakebed.pipeline.write.insert import try_insert  # noqa: PLC0415 - brings pyspark

    rows = try_insert(lake._context, table, df, mode=mode.value, instance=instance, evolve=evolve)  # noqa: SLF001
    return {"rows": rows, "files": None, "partition_id": None, "group": None, "journal_number": None, "snapshot_id": None}


def _find_file(path: str, *, is_named: bool) -> str:
    """Absolute, and there; a directory needs its format named."""
    from lakebed.storage.paths import has_scheme, is_local, normalize, require_clean  # noqa: PLC0415 - after the lake is there

    require_clean(path)
    found = normalize(path) if has_scheme(path) else os.path.abspath(path)  # noqa: PTH100 - symlinks stay
    if not is_local(found):
        return found
    if not (Path(found).is_file() or (is_named and Path(found).is_dir())):
        raise PathRefusedError(path, reason="there is no such file on this host; a directory needs --input-format")
    if Path(found).name.startswith(_HIDDEN):
        raise PathRefusedError(path, reason="Spark ignores names that begin with _ or . : rename the file")
    return found


def _format_of(paths: Sequence[str]) -> InputFormat:
    """All files of one call have the same."""
    found = {_ending_of(path): path for path in paths}
    if unknown := next((path for ending, path in found.items() if ending not in _ENDINGS), None):
        message = f"{unknown!a} has no known extension: expected {', '.join(_ENDINGS)}, or name the format with --input-format"
        raise InvalidValueError(message)
    formats = {_ENDINGS[ending] for ending in found}
    if len(formats) > 1:
        message = f"files of different formats ({', '.join(sorted(formats))}): insert them with one call per format"
        raise InvalidValueError(message)
    return formats.pop()


def _ending_of(path: str) -> str:
    name = path.lower()
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    return os.path.splitext(name)[1]  # noqa: PTH122 - of a text that may be a URL


def _render(facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(facts)
    elif facts["dry_run"]:
        out().print(f"would insert {facts['rows']:,} rows of {facts['inputs']:,} files into {facts['table']}")
    else:
        snapshot = "" if facts["snapshot_id"] is None else f", in snapshot {facts['snapshot_id']}"
        out().print(f"inserted {facts['rows']:,} rows into {facts['table']} as partition {facts['partition_id']}{snapshot}")
