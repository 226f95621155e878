"""A few lines of Python per engine, printed or run here."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import InvalidValueError, LakebedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.lake import Lake

_EXTENSIONS = ("avro", "iceberg")
_SPARK = """\
import lakebed

with lakebed.connect({url!r}, warehouse={warehouse!r}, service="off") as lake:
    lake.read({table!r}).show({rows})
"""
_PYICEBERG = """\
from pyiceberg.table import StaticTable

table = StaticTable.from_metadata({location!r})
print(table.scan(limit={rows}).to_arrow().to_pandas())
"""
_POLARS = """\
import polars as pl

print(pl.scan_iceberg({location!r}).head({rows}).collect())
"""
_DUCKDB = """\
import duckdb

connection = duckdb.connect()
{loading}
print(connection.sql("SELECT * FROM iceberg_scan('{escaped}') LIMIT {rows}"))
"""
_TEXTS = {"spark": _SPARK, "pyiceberg": _PYICEBERG, "polars": _POLARS, "duckdb": _DUCKDB}


def snippet_of(engine: str, table: str, location: str | None, *, place: tuple[str, str], rows: int) -> str:
    """Reads the present state of the table: a metadata file never changes, a later snapshot has another. It contains no password."""
    from lakebed.registry.backends.postgres_url import hide_password  # noqa: PLC0415 - imports psycopg

    loading = "\n".join(f"connection.execute({statement!r})" for statement in _load_extensions()) if engine == "duckdb" else ""
    return _TEXTS[engine].format(
        table=table,
        location=location,
        escaped=(location or "").replace("'", "''").replace("\\", "\\\\").replace('"', '\\"'),
        url=hide_password(place[0]),
        warehouse=place[1],
        rows=rows,
        loading=loading,
    )


def first_rows(engine: str, lake: Lake, table: str, location: str | None, *, rows: int) -> list[dict[str, Any]]:
    """The result of the snippet; if an engine is not installed or fails, one sentence reports it."""
    readers: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "spark": lambda: [row.asDict(recursive=True) for row in lake.read(table).limit(rows).collect()],
        "pyiceberg": lambda: _read_pyiceberg(str(location), rows),
        "polars": lambda: _read_polars(str(location), rows),
        "duckdb": lambda: _read_duckdb(str(location), rows),
    }
    try:
        return readers[engine]()
    except LakebedError:
        raise
    except ImportError as exc:
        message = f"{engine} is not installed here ({exc}): run `pip install {engine}`, or print the snippet without --run"
        raise InvalidValueError(message) from exc
    except Exception as exc:  # each engine has its own errors
        message = f"{engine} could not read {table}: {type(exc).__name__}: {str(exc)[:300]}"
        raise UnavailableError(message) from exc


def _read_pyiceberg(location: str, rows: int) -> list[dict[str, Any]]:
    from lakebed.iceberg.metadata.load import read_first_rows  # noqa: PLC0415 - imports pyiceberg

    return read_first_rows(location, rows)


def _read_polars(location: str, rows: int) -> list[dict[str, Any]]:
    polars: Any = importlib.import_module("polars")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its warnings concern planning; only rows were requested
        found: list[dict[str, Any]] = polars.scan_iceberg(location).head(rows).collect().to_dicts()
    return found


def _read_duckdb(location: str, rows: int) -> list[dict[str, Any]]:
    duckdb: Any = importlib.import_module("duckdb")
    connection = duckdb.connect()
    for statement in _load_extensions():
        connection.execute(statement)
    result = connection.execute("SELECT * FROM iceberg_scan(?) LIMIT ?", [location, rows])
    names = [column[0] for column in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def _load_extensions() -> list[str]:
    """From installed wheels if present; otherwise DuckDB downloads them."""
    found = [_find_extension(name) for name in _EXTENSIONS]
    if all(path is not None for path in found):
        return [f"LOAD '{path}'" for path in found]
    return ["INSTALL iceberg", "LOAD iceberg"]


def _find_extension(name: str) -> Path | None:
    try:
        package = importlib.import_module(f"duckdb_extension_{name}")
    except ImportError:
        return None
    return next(Path(str(package.__file__)).parent.rglob(f"{name}.duckdb_extension"), None)
