"""The four figures of the README and the aims that were missed, between two markers, from the newest results of the benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docs_pages.results import list_missed, newest_measurements, newest_run
from docs_pages.tables import number, table

if TYPE_CHECKING:
    from pathlib import Path

BEGIN, END = "<!-- figures: written by `make docs` from bench/results -->", "<!-- end of figures -->"
_ROWS, _RATE, _DATABASE = 1_000_000, "50 inserts a second for 60 s", "sqlite"
_DUCKLAKE, _PYICEBERG = "register one of 2,000, DuckLake's best", "register, PyIceberg add_files at 500"
_AREAS = {
    "8 writers": "eight writers at once",
    "best of 1 to 32 writers": "an even rate from 1 to 32 writers",
    "register": "registering a file beside deltalake",
    "retire": "retiring files beside deltalake",
    "clean up": "cleaning up beside deltalake",
    "begin of the transaction": "from the begin of a transaction to the component that hears of it",
    "compact": "compaction beside deltalake and DuckLake",
}
_POINT = "plan a point of 100,000, warm"


def render(root: Path) -> str:
    text = (root / "README.md").read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    return "\n".join([f"{before}{begin}\n", *_figures(root), f"{end}{after}"])


def _figures(root: Path) -> list[str]:
    registry = newest_measurements(root)
    insert = _one(newest_run(root, "pipeline").figures, work="insert", rows=_ROWS)
    lag = _one(newest_run(root, "service").figures, work=_RATE, database=_DATABASE)
    ducklake, pyiceberg, point = registry[_DUCKLAKE][1], registry[_PYICEBERG][1], registry[_POINT][1]
    rows = (
        ("inserting 1,000,000 rows, compared with `df.write.parquet` and fsync", f"{number(insert['ratio'])} times as long"),
        ("from an insert to its Iceberg snapshot, at 50 inserts a second", f"{number(lag['lag_p50_s'])} s (median)"),
        (
            "registering one file, compared with DuckLake and with PyIceberg's `add_files`",
            f"{number(ducklake['ratio'])} and {number(pyiceberg['ratio'])} times as fast",
        ),
        ("choosing the files of a point query among 100,000", f"{number(point['ours'])} ms"),
    )
    return [*table(("SQLite registry, two cores", "measured"), rows), _sentence(root), ""]


def _sentence(root: Path) -> str:
    """Missed aims by area; each with its figures stands on the page about performance."""
    areas: dict[str, list[str]] = {}
    for one in list_missed(root):
        areas.setdefault(_area(one.work), []).append(one.measured)
    listed = "; ".join(f"{area} ({', '.join(measured)})" for area, measured in areas.items())
    return f"Aims that the newest runs missed: {listed}. [Each with its aim](docs/performance.md#aims-that-were-missed)."


def _area(work: str) -> str:
    return next((area for start, area in _AREAS.items() if work.startswith(start)), work)


def _one(figures: list[dict[str, Any]], **wanted: object) -> dict[str, Any]:
    return next(one for one in figures if all(one.get(key) == value for key, value in wanted.items()))
