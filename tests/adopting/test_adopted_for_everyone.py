"""What was adopted is read by other engines: files without field ids by name mapping, rewritten ones with their path's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from directories import put, rows
from pyiceberg.table import StaticTable

from lakebed.lake import connect
from legacy_lakes import NEW, OLD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakebed.lake import Lake
    from legacy_lakes import LegacyLake


@pytest.fixture
def lake(url: str, tmp_path: Path) -> Iterator[Lake]:
    """One that publishes by itself."""
    with connect(url, warehouse=str(tmp_path / "warehouse"), service="auto") as opened:
        yield opened


def scan(lake: Lake, name: str) -> list[dict[str, Any]]:
    """As PyIceberg sees the newest snapshot."""
    lake.snapshot(name, timeout_s=60)
    location = lake.registry.query(
        "SELECT metadata_location FROM table_snapshots WHERE table_id = :id ORDER BY sequence_number DESC LIMIT 1",
        {"id": lake.table(name).table_id},
    )[0][0]
    found: list[dict[str, Any]] = StaticTable.from_metadata(location).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def test_a_directory_is_read_by_other_engines(lake: Lake, tmp_path: Path) -> None:
    put(tmp_path / "source/a.parquet", rows(0))
    put(tmp_path / "source/day=7/b.parquet", rows(10))

    lake.tables.adopt("shop.events", str(tmp_path / "source"), event_time="ts")

    found = scan(lake, "shop.events")
    assert [(row["id"], row["name"], row["day"]) for row in found] == [(i, f"n{i}", None if i < 10 else 7) for i in range(20)]
    assert lake.check().clean


def test_an_older_lake_is_read_by_other_engines(lake: Lake, old: LegacyLake) -> None:
    old.add(0, footer="v1")
    old.add(1, instance="tenant", rows=3)
    old.add(2, schema=OLD, updated=-1)
    old.add_empty(3, schema=NEW)

    lake.tables.import_legacy(old.url, root=str(old.root), dry_run=False)

    assert [row["id"] for row in scan(lake, "legacy.spans")] == [0, 1, 2, 3, 4, 1000, 1001, 1002]
    assert lake.check(deep=True).clean


def test_an_adopted_table_can_be_compacted_and_written_to(lake: Lake, tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path / f"source/{number}.parquet", rows(number * 10))
    lake.tables.adopt("shop.events", str(tmp_path / "source"))
    put(tmp_path / "source/3.parquet", rows(30))
    lake.tables.adopt("shop.events", str(tmp_path / "source"))

    done = lake.compact("shop.events")

    assert (done.files_before, done.files_after) == (4, 1)
    assert [row["id"] for row in scan(lake, "shop.events")] == list(range(40))
    assert lake.tables.adopt("shop.events", str(tmp_path / "source")).taken == 0
    assert lake.check().clean
