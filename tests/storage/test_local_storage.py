"""What only a file system can do to us: links, special files, swapped directories, permissions, power failures."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from lakebed.core.errors import FileConflictError, FileMissingError, LakebedError, NotAFileError, PathRefusedError, StorageUnavailableError
from lakebed.core.names import TableName
from lakebed.storage.open import open_storage
from lakebed.storage.protocol import Deletion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.storage.local import LocalStorage

pytest_plugins = ["storage_fixtures"]

NOBODY = 65534
ORDERS = TableName("shop", "orders")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "secret").write_bytes(b"secret")
    return directory


def make_device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root may make device nodes")


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)  # the name of a socket may have 107 bytes only
        server.bind(path.name)


SPECIAL: dict[str, Callable[[Path], None]] = {"FIFO": os.mkfifo, "device": make_device, "socket": make_socket, "directory": Path.mkdir}


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("call", ["stat", "sha256", "open_input", "sync"])
def test_only_regular_files_are_touched(
    local: LocalStorage, local_operation: str, kind: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    Path(local_operation).mkdir(parents=True)
    SPECIAL[kind](Path(local_operation, "odd"))

    with pytest.raises(NotAFileError) as caught:
        getattr(local, call)(f"{local_operation}/odd")

    assert caught.value.found == kind


@pytest.mark.parametrize("call", ["stat", "sha256", "open_input", "sync"])
def test_a_link_to_a_file_outside_is_not_read(local: LocalStorage, local_operation: str, outside: Path, call: str) -> None:
    Path(local_operation).mkdir(parents=True)
    Path(local_operation, "link").symlink_to(outside / "secret")

    with pytest.raises(NotAFileError) as caught:
        getattr(local, call)(f"{local_operation}/link")

    assert caught.value.found == "symbolic link"


def test_deleting_a_link_leaves_what_it_points_to(local: LocalStorage, local_operation: str, outside: Path) -> None:
    Path(local_operation).mkdir(parents=True)
    Path(local_operation, "link").symlink_to(outside / "secret")

    (outcome,) = local.delete([f"{local_operation}/link"])

    assert outcome.result is Deletion.DELETED
    assert (outside / "secret").read_bytes() == b"secret"


@pytest.mark.parametrize("call", ["stat", "sha256", "open_input", "sync"])
def test_a_linked_directory_is_not_entered(local: LocalStorage, local_operation: str, outside: Path, call: str) -> None:
    Path(local_operation).parent.mkdir(parents=True)
    Path(local_operation).symlink_to(outside)

    with pytest.raises(PathRefusedError, match="symbolic link"):
        getattr(local, call)(f"{local_operation}/secret")


def test_a_file_is_not_created_through_a_linked_directory(local: LocalStorage, local_operation: str, outside: Path) -> None:
    Path(local_operation).parent.mkdir(parents=True)
    Path(local_operation).symlink_to(outside)

    with pytest.raises(PathRefusedError):
        local.create_exclusive(f"{local_operation}/new", b"x")

    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_a_dangling_link_is_a_taken_path(local: LocalStorage, local_operation: str, outside: Path) -> None:
    Path(local_operation).mkdir(parents=True)
    Path(local_operation, "a").symlink_to(outside / "new")

    with pytest.raises(FileConflictError):
        local.create_exclusive(f"{local_operation}/a", b"x")

    assert not (outside / "new").exists()


def test_a_listing_does_not_follow_links(local: LocalStorage, local_operation: str, outside: Path) -> None:
    local.create_exclusive(f"{local_operation}/real", b"x")
    Path(local_operation, "file").symlink_to(outside / "secret")
    Path(local_operation, "directory").symlink_to(outside)
    os.mkfifo(Path(local_operation, "fifo"))

    assert [facts.path for facts in local.list_files(local.paths.root)] == [f"{local_operation}/real"]


def test_a_listing_leaves_out_names_no_path_can_have(local: LocalStorage, local_operation: str) -> None:
    local.create_exclusive(f"{local_operation}/real", b"x")
    for odd in (b"line\nbreak", b"back\\slash", b"\xff\xfe"):
        Path(os.fsdecode(local_operation.encode() + b"/" + odd)).write_bytes(b"")

    assert [facts.path for facts in local.list_files(local_operation)] == [f"{local_operation}/real"]


def test_a_tree_is_deleted_without_following_its_links(local: LocalStorage, local_operation: str, outside: Path) -> None:
    local.create_exclusive(f"{local_operation}/x=1/a", b"x")
    Path(local_operation, "file").symlink_to(outside / "secret")
    Path(local_operation, "x=1", "directory").symlink_to(outside)
    os.mkfifo(Path(local_operation, "fifo"))

    assert local.delete_tree(local_operation)

    assert not Path(local_operation).exists()
    assert (outside / "secret").exists()


def test_a_linked_operation_directory_is_not_deleted_as_a_tree(local: LocalStorage, local_operation: str, outside: Path) -> None:
    Path(local_operation).parent.mkdir(parents=True)
    Path(local_operation).symlink_to(outside)

    with pytest.raises(PathRefusedError):
        local.delete_tree(local_operation)

    assert (outside / "secret").exists()


def test_a_directory_swapped_for_a_link_after_registration_does_not_redirect_a_delete(
    local: LocalStorage, local_operation: str, outside: Path
) -> None:
    local.create_exclusive(f"{local_operation}/secret", b"ours")
    local.stat(f"{local_operation}/secret")
    Path(local_operation).rename(f"{local_operation}-moved")
    Path(local_operation).symlink_to(outside)

    (outcome,) = local.delete([f"{local_operation}/secret"])

    assert outcome.result is Deletion.FAILED
    assert "symbolic link" in outcome.reason
    assert (outside / "secret").exists()


def test_no_delete_escapes_while_a_directory_is_swapped_to_and_fro(local: LocalStorage, local_operation: str, outside: Path) -> None:
    names = [f"{local_operation}/{n}" for n in range(100)]
    Path(local_operation).mkdir(parents=True)
    for name in names:
        Path(name).touch()
        (outside / Path(name).name).touch()
    stop = threading.Event()
    swapper = threading.Thread(target=swap_until, args=(stop, Path(local_operation), outside))
    swapper.start()

    for _ in range(100):
        local.delete(names)
    stop.set()
    swapper.join()

    assert len(list(outside.iterdir())) == 101


def test_no_read_escapes_while_a_file_is_swapped_for_a_link(local: LocalStorage, local_operation: str, outside: Path) -> None:
    path = Path(local_operation, "a")
    local.create_exclusive(str(path), b"ours")
    stop = threading.Event()
    swapper = threading.Thread(target=swap_file_until, args=(stop, path, outside / "secret"))
    swapper.start()
    seen: set[bytes] = set()

    for _ in range(3000):
        with suppress(NotAFileError):
            seen.add(local.read_range(str(path), 0, 99))
    stop.set()
    swapper.join()

    assert seen == {b"ours"}


def swap_file_until(stop: threading.Event, path: Path, target: Path) -> None:
    """The name is always taken, in turn by a file and by a link."""
    link, file = path.with_name("link"), path.with_name("file")
    while not stop.is_set():
        link.symlink_to(target)
        link.replace(path)
        file.write_bytes(b"ours")
        file.replace(path)


def swap_until(stop: threading.Event, directory: Path, target: Path) -> None:
    aside = directory.with_name("aside")
    while not stop.is_set():
        directory.rename(aside)
        directory.symlink_to(target)
        directory.unlink()
        aside.rename(directory)


def test_a_file_that_cannot_be_deleted_stops_none_of_the_others() -> None:
    with open_to_nobody() as (root, operation):
        Path(operation, "stuck").mkdir()
        Path(operation, "stuck", "a").touch()
        Path(operation, "stuck").chmod(0o500)
        Path(operation, "b").touch()
        answers = run_as_nobody(
            f"s.delete([{operation + '/stuck/a'!r}, {operation + '/b'!r}])", show="[[o.result, o.reason] for o in x]", root=root
        )
        left = Path(operation, "stuck", "a").exists()

    assert [result for result, _ in answers] == ["failed", "deleted"]
    assert "Permission denied" in answers[0][1]
    assert "permission" in answers[0][1]
    assert left


@contextmanager
def open_to_nobody() -> Iterator[tuple[str, str]]:
    """A warehouse that an ordinary user owns: root is never denied anything."""
    top = Path(tempfile.mkdtemp(prefix="lakebed-"))
    storage = open_storage(str(top / "warehouse"), create=True)
    operation = Path(storage.paths.operation_directory(7, ORDERS, uuid4().hex))
    operation.mkdir(parents=True)
    if os.getuid() == 0:
        for path in [top, *top.rglob("*")]:
            os.chown(path, NOBODY, NOBODY)
    try:
        yield storage.paths.root, str(operation)
    finally:
        shutil.rmtree(top)


def run_as_nobody(call: str, *, show: str, root: str) -> list[list[str]]:
    program = (
        f"import json, os\nfrom lakebed.storage.open import open_storage\ns = open_storage({root!r}, create=False)\n"
        f"if os.getuid() == 0: os.setuid({NOBODY})\nx = {call}\nprint(json.dumps({show}))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    answer: list[list[str]] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("depth", [0, 2, 4])
def test_a_directory_that_cannot_be_written_is_named_before_anything_is(depth: int) -> None:
    with open_to_nobody() as (root, operation):
        place = Path(root).joinpath(*Path(operation).relative_to(root).parts[:depth])
        if depth < len(Path(operation).relative_to(root).parts):
            shutil.rmtree(next(place.iterdir()) if depth else Path(operation).parents[2])  # so the nearest above it is asked
        place.chmod(0o500)
        program = (
            f"import os\nfrom lakebed.storage.open import open_storage\ns = open_storage({root!r}, create=False)\n"
            f"if os.getuid() == 0: os.setuid({NOBODY})\ns.require_writable({operation!r})"
        )
        refused = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        place.chmod(0o700)
        allowed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (
        f"StorageUnavailableError: the warehouse {root} cannot be written by this process: {str(place)!r} is read-only for it"
        in refused.stderr
    )
    assert (allowed.returncode, allowed.stderr) == (0, "")


def test_a_write_that_fails_in_the_middle_leaves_nothing(local: LocalStorage, local_operation: str) -> None:
    program = (
        "import resource\nfrom lakebed.storage.open import open_storage\n"
        f"s = open_storage({local.paths.root!r}, create=False)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        f"s.create_exclusive({local_operation + '/a'!r}, b'x' * 5000)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert "StorageUnavailableError: cannot create" in done.stderr
    assert list(Path(local_operation).iterdir()) == []


def test_files_and_directories_are_private(local: LocalStorage, local_operation: str) -> None:
    local.create_exclusive(f"{local_operation}/a", b"x")

    assert stat.S_IMODE(Path(local_operation, "a").stat().st_mode) == 0o600
    for directory in [Path(local_operation), *Path(local_operation).parents][:5]:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_stricter_umask_is_honoured(local: LocalStorage) -> None:
    before = os.umask(0o377)
    try:
        local.create_exclusive(f"{local.paths.root}/a", b"x")
    finally:
        os.umask(before)

    assert stat.S_IMODE(Path(local.paths.root, "a").stat().st_mode) == 0o400


def test_a_path_through_a_link_to_the_root_means_the_same_file(local: LocalStorage, local_operation: str, tmp_path: Path) -> None:
    local.create_exclusive(f"{local_operation}/a", b"x")
    (tmp_path / "alias").symlink_to(local.paths.root)

    spelled = f"{tmp_path}/alias/{local.paths.relative(local_operation)}/a"

    assert local.stat(spelled).path == f"{local_operation}/a"
    assert [facts.path for facts in local.list_files(str(tmp_path / "alias"))] == [f"{local_operation}/a"]


def test_a_warehouse_that_was_moved_away_is_unavailable(local: LocalStorage, local_operation: str) -> None:
    local.create_exclusive(f"{local_operation}/a", b"x")
    Path(local.paths.root).rename(f"{local.paths.root}-moved")

    with pytest.raises(StorageUnavailableError):
        local.stat(f"{local_operation}/a")
    assert local.delete([f"{local_operation}/a"])[0].result is Deletion.FAILED


def test_an_unmounted_warehouse_takes_no_new_file(local: LocalStorage, local_operation: str) -> None:
    Path(local.paths.root).rename(f"{local.paths.root}-moved")
    Path(local.paths.root).mkdir()

    with pytest.raises(StorageUnavailableError):
        local.create_exclusive(f"{local_operation}/a", b"x")

    assert list(Path(local.paths.root).iterdir()) == []


def test_a_root_swapped_for_a_link_is_refused(local: LocalStorage, outside: Path) -> None:
    Path(local.paths.root).rename(f"{local.paths.root}-moved")
    Path(local.paths.root).symlink_to(outside)

    with pytest.raises(PathRefusedError):
        local.stat(f"{local.paths.root}/secret")


def test_a_name_longer_than_the_file_system_allows_is_refused(local: LocalStorage, local_operation: str) -> None:
    with pytest.raises(PathRefusedError, match="length"):
        local.create_exclusive(f"{local_operation}/{'a' * 300}", b"x")


def test_a_file_that_vanishes_under_a_missing_parent_is_missing(local: LocalStorage, local_operation: str) -> None:
    with pytest.raises(FileMissingError):
        local.sync(f"{local_operation}/no/such/file")


def test_no_descriptor_is_left_open(local: LocalStorage, local_operation: str) -> None:
    path = f"{local_operation}/a"
    before = count_descriptors()

    local.create_exclusive(path, b"x")
    for target in (path, local_operation, f"{local_operation}/none"):
        for call in (local.stat, local.sha256, local.sync, local.sync_tree, local.delete_tree):
            with suppress(LakebedError):
                call(target)
        local.delete([target])

    assert count_descriptors() == before


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
