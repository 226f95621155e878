"""Opening a warehouse, and knowing that it is ours."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakebed.core.errors import (
    CorruptionError,
    FileMissingError,
    LakebedError,
    PathRefusedError,
    StorageFullError,
    StorageUnavailableError,
)
from lakebed.storage.errors import translate
from lakebed.storage.open import mark_warehouse, open_storage, read_marker

if TYPE_CHECKING:
    from lakebed.storage.protocol import Storage
    from lakebed.storage.s3 import ObjectStorage

pytest_plugins = ["storage_fixtures"]

RACE = """
import sys
from lakebed.core.errors import FileConflictError
from lakebed.storage.open import mark_warehouse, open_storage, read_marker
root, files = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
storage = open_storage(root, create=True)
print(read_marker(storage).warehouse_id)
for n in range(files):
    try:
        storage.create_exclusive(f"{storage.paths.root}/race/{n}", b"%d" % n)
    except FileConflictError:
        continue
    print(n)
"""


def reopen(storage: Storage, *, create: bool = False) -> Storage:
    return open_storage(storage.paths.root, create=create)


def damage_marker(storage: Storage, content: bytes) -> None:
    if storage.paths.warehouse.is_local:
        Path(storage.paths.marker).write_bytes(content)
        return
    with storage.client.open_output_stream(storage.paths.marker.removeprefix("s3://")) as sink:  # type: ignore[attr-defined]
        sink.write(content)


def race(root: str, *, processes: int, files: int) -> list[list[str]]:
    """What each process printed, all let go at once after their imports."""
    racers = [
        subprocess.Popen([sys.executable, "-c", RACE, root, str(files)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    return [racer.communicate("go\n")[0].split() for racer in racers]


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_eight_processes_agree_on_one_identity_and_each_file_has_one_winner(kind: str, tmp_path: Path, unused_prefix: str) -> None:
    root = str(tmp_path / "new" / "warehouse") if kind == "local" else unused_prefix

    printed = race(root, processes=8, files=12)

    assert len({lines[0] for lines in printed}) == 1
    assert Counter(n for lines in printed for n in lines[1:]) == {str(n): 1 for n in range(12)}


def test_a_warehouse_keeps_its_identity(storage: Storage) -> None:
    first = read_marker(storage)

    assert read_marker(reopen(storage)) == first == read_marker(reopen(storage, create=True))
    assert len(first.warehouse_id) == 32
    assert json.loads(storage.find_marker() or b"") == {"warehouse_id": first.warehouse_id, "format": 1}


def test_a_marker_that_another_process_made_at_the_same_time_counts(storage: Storage) -> None:
    theirs = read_marker(storage)

    mark_warehouse(storage, registry_id=None)

    assert read_marker(storage) == theirs


def test_a_place_without_a_warehouse_is_refused_unless_one_is_to_be_created(tmp_path: Path, unused_prefix: str) -> None:
    for place in (str(tmp_path / "none"), unused_prefix):
        with pytest.raises(PathRefusedError, match="lakebed init"):
            open_storage(place, create=False)

    assert not (tmp_path / "none").exists()


def test_a_place_with_other_files_is_not_taken(storage: Storage) -> None:
    foreign = f"{storage.paths.root}/foreign"
    storage.create_exclusive(f"{foreign}/file.csv", b"x")

    with pytest.raises(PathRefusedError, match="empty place"):
        open_storage(foreign, create=True)

    assert storage.read_range(f"{foreign}/file.csv", 0, 9) == b"x"
    assert [facts.path for facts in storage.list_files(foreign)] == [f"{foreign}/file.csv"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"warehouse_id": "zz", "format": 1}', b'{"warehouse_id": 7, "format": 1}', b"\xff\xfe"]
)
def test_a_damaged_marker_is_corruption(storage: Storage, content: bytes) -> None:
    damage_marker(storage, content)

    with pytest.raises(CorruptionError, match="backup"):
        reopen(storage, create=True)


def test_a_newer_warehouse_is_refused_with_what_to_do(storage: Storage) -> None:
    damage_marker(storage, b'{"warehouse_id": "00112233445566778899aabbccddeeff", "format": 2}')

    with pytest.raises(PathRefusedError, match="upgrade Lakebed"):
        reopen(storage)


def test_every_spelling_of_a_local_root_is_the_same_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = open_storage("ware house", create=True)
    (tmp_path / "link").symlink_to(tmp_path)
    root = str(tmp_path / "ware house")

    for spelled in (root, f"{root}/", "./ware house", "link/ware house", "file://" + root.replace(" ", "%20")):
        assert open_storage(spelled, create=False) == first


def test_every_spelling_of_a_bucket_is_the_same_warehouse(objects: ObjectStorage) -> None:
    spelled = objects.paths.root.replace("s3://", "s3a://") + "/"

    assert open_storage(spelled, create=False).paths == objects.paths


@pytest.mark.parametrize(
    "place",
    ["", "/", "a\nb", "a\x00b", "gs://bucket/x", "s3://", "s3://k:SECRET@bucket/x", "file://host/x", "s3://bucket/x?secret_key=SECRET"],
)
def test_a_place_that_can_be_no_warehouse_is_refused(place: str) -> None:
    with pytest.raises(PathRefusedError) as caught:
        open_storage(place, create=True)

    assert "SECRET" not in str(caught.value)


def test_a_file_is_refused_as_a_warehouse(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    for create in (True, False):
        with pytest.raises(PathRefusedError, match="not a directory"):
            open_storage(str(tmp_path / "file"), create=create)


@pytest.mark.parametrize(
    "endpoint", ["http://192.0.2.1:9000", "http://k:SECRET@127.0.0.1", "ftp://127.0.0.1", "http://127.0.0.1/path", "https://"]
)
def test_an_endpoint_that_would_leak_is_refused(endpoint: str) -> None:
    with pytest.raises(PathRefusedError) as caught:
        open_storage("s3://bucket/x", create=False, endpoint_override=endpoint)

    assert "SECRET" not in str(caught.value)


def test_a_bucket_that_is_not_there_is_refused(s3_endpoint: str) -> None:
    with pytest.raises(PathRefusedError, match="bucket does not exist"):
        open_storage("s3://no-such-bucket/x", create=True, endpoint_override=s3_endpoint)


def test_a_store_that_does_not_answer_is_unavailable(s3_endpoint: str) -> None:
    assert s3_endpoint

    with pytest.raises(StorageUnavailableError, match="try again"):
        open_storage("s3://bucket/x", create=True, endpoint_override="http://127.0.0.1:1")


def test_without_credentials_in_the_environment_a_taken_object_is_still_a_conflict(objects: ObjectStorage) -> None:
    cautious = type(objects)(paths=objects.paths, client=objects.client, writer=None)
    path = f"{objects.paths.root}/a"
    cautious.create_exclusive(path, b"first")

    with pytest.raises(LakebedError, match="already"):
        cautious.create_exclusive(path, b"second")

    assert cautious.read_range(path, 0, 9) == b"first"


@pytest.mark.parametrize(
    ("number", "expected", "advice"),
    [
        (errno.ENOSPC, StorageFullError, "free some"),
        (errno.EDQUOT, StorageFullError, "free some"),
        (errno.EACCES, StorageUnavailableError, "permission"),
        (errno.EPERM, StorageUnavailableError, "permission"),
        (errno.EIO, StorageUnavailableError, "system log"),
        (errno.EROFS, StorageUnavailableError, "writable"),
        (errno.EMFILE, StorageUnavailableError, "limit of open files"),
        (errno.ETIMEDOUT, StorageUnavailableError, "try again"),
        (errno.ENOENT, FileMissingError, "write the file first"),
        (errno.ENAMETOOLONG, PathRefusedError, "length"),
    ],
)
def test_a_failure_of_the_system_says_on_which_path_and_what_to_do(number: int, expected: type[LakebedError], advice: str) -> None:
    error = translate(OSError(number, os.strerror(number)), "/lake/a", doing="read")

    assert type(error) is expected
    assert "/lake/a" in str(error)
    assert advice in str(error)


def test_what_a_process_left_that_died_while_it_marked_the_place_is_cleared_away(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "w"), create=True)
    scratch = Path(storage.paths.root) / ".0123456789abcdef.lakebed-tmp"
    scratch.write_bytes(b"half a mark")

    storage.clear_scratch()

    assert [path.name for path in Path(storage.paths.root).iterdir()] == [Path(storage.paths.marker).name]
