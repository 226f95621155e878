"""A registry on a file system that is really full: SQLite finds out at COMMIT, when it writes the WAL."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
_PUBLISHING = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from builders import fake_file, make_table, publish
from lakebed.check import check
from lakebed.core.errors import LakebedError
from lakebed.registry.open import open_registry

place = Path(sys.argv[1])
ballast = place / "ballast"
registry = open_registry(f"sqlite:///{place}/lake.db", create=True)
table = make_table(registry)
ballast.write_bytes(bytes(1 << 20))
acknowledged, codes = 0, []
for number in range(2000):
    try:
        publish(registry, table, fake_file(number))
    except LakebedError as exc:
        codes.append(exc.code)
    else:
        acknowledged += 1
    if len(codes) == 20:
        break
ballast.unlink()
publish(registry, table, fake_file(9999))
((files,),) = registry.query("SELECT count(*) FROM table_files")
print(json.dumps({"codes": codes, "acknowledged": acknowledged, "files": files, "clean": check(registry).clean}))
registry.close()
"""

_MIGRATING = """
import json, os, sys
from pathlib import Path
sys.path[:0] = [sys.argv[2], sys.argv[2] + "/registry"]
from test_migrations import assert_nothing_lost, fill
from lakebed.core.errors import LakebedError
from lakebed.registry.migrate import list_pending, migrate_registry

place = Path(sys.argv[1])
ballast = place / "ballast"
url = f"sqlite:///{place}/lake.db"
(place / "lake.db").touch(mode=0o600)
fill(url, "0001")
codes = []
for free_kb in range(16, 4000, 96):
    room = os.statvfs(place)
    with ballast.open("wb") as file:
        file.write(bytes(max(0, room.f_bavail * room.f_frsize - free_kb * 1024)))
    try:
        migrate_registry(url)
    except LakebedError as exc:
        codes.append(exc.code)
    finally:
        ballast.unlink()
    if not list_pending(url):
        break
migrate_registry(url)
assert_nothing_lost(url)
print(json.dumps({"codes": codes, "pending": list_pending(url)}))
"""


def run_on_small_file_system(place: Path, megabytes: int, child: str) -> dict[str, Any]:
    place.mkdir()
    mounted = f'mount -t tmpfs -o size={megabytes}m,mode=700 tmpfs "$1" && exec "$2" -c "$3" "$1" "$4"'
    command = ["unshare", "-rm", "sh", "-c", mounted, "sh", str(place), sys.executable, child, str(TESTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture
def may_mount() -> None:
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody mount a file system of their own")


@pytest.mark.usefixtures("may_mount")
def test_a_file_system_without_room_is_storage_full_and_the_registry_works_again_once_there_is_room(tmp_path: Path) -> None:
    found = run_on_small_file_system(tmp_path / "small", 4, _PUBLISHING)

    assert found["codes"] == ["storage_full"] * 20
    assert found["files"] == found["acknowledged"] + 1
    assert found["clean"] is True


@pytest.mark.usefixtures("may_mount")
def test_a_migration_without_room_is_storage_full_and_goes_on_once_there_is_room(tmp_path: Path) -> None:
    found = run_on_small_file_system(tmp_path / "small", 16, _MIGRATING)

    assert len(found["codes"]) > 3
    assert set(found["codes"]) == {"storage_full"}
    assert found["pending"] == []
