"""The watcher of system calls itself: it strikes exactly there, and what it strikes notices."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from system_calls import FULL_ONCE, FULL_STAYS, IO_ONCE, IO_STAYS, KILL, Watch, require_watchable, watch_process

if TYPE_CHECKING:
    from system_calls import Fault, Reporter


@pytest.fixture(scope="module", autouse=True)
def watchable() -> None:
    require_watchable()


def write_bytes(report: Reporter, *, where: str) -> None:
    """Ten bytes, one by one; an error ends nothing."""
    descriptor = os.open(where, os.O_WRONLY | os.O_APPEND)
    for number in range(10):
        try:
            os.write(descriptor, b"%d" % number)
        except OSError as exc:
            report(number, exc.errno)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lake" / "file"
    path.parent.mkdir()
    path.touch()
    return path


def watch_writes(file: Path, at: int, fault: Fault) -> tuple[str, list[tuple[int, int]]]:
    course = watch_process(partial(write_bytes, where=str(file)), Watch(roots=(str(file.parent),)), at=at, fault=fault)
    assert course.was_killed == (fault is KILL)
    assert course.struck == f"write {file}"
    return file.read_text(), course.reports


@pytest.mark.parametrize("at", [1, 4, 10])
def test_a_process_killed_at_its_nth_write_has_written_one_less(file: Path, at: int) -> None:
    assert watch_writes(file, at, KILL) == ("0123456789"[: at - 1], [])


def test_an_injected_error_reaches_the_process_and_the_call_does_nothing(file: Path) -> None:
    assert watch_writes(file, 4, IO_ONCE) == ("012456789", [(3, errno.EIO)])


def test_a_disk_without_room_may_have_room_again(file: Path) -> None:
    assert watch_writes(file, 1, FULL_ONCE) == ("123456789", [(0, errno.ENOSPC)])


@pytest.mark.parametrize("fault", [IO_STAYS, FULL_STAYS])
def test_a_fault_that_stays_meets_every_call_behind_it(file: Path, fault: Fault) -> None:
    written, errors = watch_writes(file, 8, fault)

    assert (written, [number for number, _ in errors]) == ("0123456", [7, 8, 9])


def test_an_undisturbed_process_ends_by_itself(file: Path) -> None:
    course = watch_process(partial(write_bytes, where=str(file)), Watch(roots=(str(file.parent),)), at=11, fault=KILL)

    assert (course.exit_code, len(course.calls), course.struck) == (0, 10, None)


def touch_everything(_: Reporter, *, place: str) -> None:
    """Every kind of call, by paths and by descriptors, from a thread and from another process, and some elsewhere."""
    os.chdir(place)
    directory = os.open("lake", os.O_RDONLY)
    Path("lake/below").mkdir()
    descriptor = os.open("one", os.O_WRONLY | os.O_CREAT, dir_fd=directory)
    thread = threading.Thread(target=os.pwrite, args=(descriptor, b"x", 0))
    thread.start()
    thread.join()
    os.writev(descriptor, [b"x"])
    os.ftruncate(descriptor, 0)
    os.posix_fallocate(descriptor, 0, 10)
    os.fdatasync(descriptor)
    os.fsync(descriptor)
    os.close(os.open(f"{place}/lake/one", os.O_RDWR))
    Path("lake/one").rename(f"{place}/two")
    os.replace("two", "one", dst_dir_fd=directory)
    os.link("one", "three", src_dir_fd=directory, dst_dir_fd=directory)
    os.unlink("one", dir_fd=directory)
    Path("elsewhere").write_text("not counted", encoding="ascii")
    subprocess.run([sys.executable, "-c", "import os; os.unlink('lake/three'); os.rmdir('lake/below')"], check=True)


def test_every_kind_of_call_counts_also_in_threads_and_other_processes(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    course = watch_process(partial(touch_everything, place=str(tmp_path)), Watch(roots=(f"{tmp_path}/lake/",)))

    assert course.exit_code == 0
    names = [
        call.removesuffix(str(tmp_path)).replace(f"{tmp_path}/lake/", "").replace("at2", "at").replace("at ", " ") for call in course.calls
    ]
    assert names == [
        "mkdir below",
        "open one",
        "pwrite64 one",
        "writev one",
        "ftruncate one",
        "fallocate one",
        "fdatasync one",
        "fsync one",
        "rename one",
        "rename one",
        "link one",
        "unlink one",
        "unlink three",
        "rmdir below",
    ]


def test_a_full_disk_still_lets_files_go(file: Path) -> None:
    course = watch_process(partial(replace_file, where=str(file)), Watch(roots=(str(file.parent),)), at=1, fault=FULL_STAYS)

    assert course.reports == [("write", errno.ENOSPC), ("unlink", 0)]
    assert not file.exists()


def replace_file(report: Reporter, *, where: str) -> None:
    try:
        Path(where).write_text("x", encoding="ascii")
    except OSError as exc:
        report("write", exc.errno)
    Path(where).unlink()
    report("unlink", 0)
