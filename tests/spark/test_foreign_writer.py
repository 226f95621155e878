"""Another engine's commit through the JDBC catalog: Lakebed's advice never destroys it, whatever spelling Java gives its locations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from reference_reader import PACKAGES
from test_reference_reader import tcp_door

from ice import ROWS, open_ice
from lakebed.lake import connect
from maven import require_maven

if TYPE_CHECKING:
    from conftest import Databases
    from lakebed.lake import Lake

pytestmark = [pytest.mark.maven, pytest.mark.timeout(600)]
OLD = timedelta(days=3)


def age(root: Path) -> None:
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))


def follow_all_advice(lake: Lake) -> None:
    age(Path(lake.storage.paths.root))
    lake.files.sweep_orphans(older_than=OLD, dry_run=False)
    lake.repair(dry_run=False, orphans_older_than=timedelta(hours=2))
    lake.registry.transact(lambda tx: tx.run("UPDATE temporary_files SET expiration = 1"), tables=[])
    lake.delete_expired_temporary_files()


def insert_with_spark(places: list[dict[str, Any]]) -> None:
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(here), str(here.parent), os.environ.get("PYTHONPATH", "")))}
    script = [sys.executable, str(here / "foreign_writer.py"), json.dumps(places)]
    done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=580, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_commit_of_the_reference_implementation_survives_all_advice(databases: Databases, tmp_path: Path) -> None:
    require_maven(PACKAGES)
    sqlite, postgres = databases.new("sqlite"), databases.new("postgresql")
    file = Path(sqlite.removeprefix("sqlite:///")).with_suffix(".iceberg.db")
    with ExitStack() as stack:
        lakes = [stack.enter_context(connect(url, warehouse=str(tmp_path / name))) for url, name in ((sqlite, "one"), (postgres, "two"))]
        ices = [stack.enter_context(closing(open_ice(lake))) for lake in lakes]
        for ice in ices:
            ice.create()
            ice.insert(1)
        port, name = stack.enter_context(tcp_door(postgres)), postgres.split("?", maxsplit=1)[0].rpartition("/")[2]
        jdbc = (f"jdbc:sqlite:{file}", f"jdbc:postgresql://127.0.0.1:{port}/{name}?user=postgres")
        insert_with_spark(
            [
                {"url": url, "warehouse": str(tmp_path / directory), "jdbc": uri}
                for url, directory, uri in zip((sqlite, postgres), ("one", "two"), jdbc, strict=True)
            ]
        )

        for ice in ices:
            assert ice.static().scan().to_arrow().num_rows == ROWS + 10
            age(Path(ice.lake.storage.paths.root))
            assert "unregistered_file" not in {finding.rule for finding in ice.lake.check().findings}
            follow_all_advice(ice.lake)
            assert ice.static().scan().to_arrow().num_rows == ROWS + 10
            assert "iceberg_missing" not in {finding.rule for finding in ice.lake.check(deep=True).findings}
    databases.drop(postgres)
