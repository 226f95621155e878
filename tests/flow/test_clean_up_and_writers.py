"""Administration beside writers, storage that fails in part, and warehouses under many spellings."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from builders import DAILY, ORDERS, START, fake_file, make_table, make_view, promote, publish, stage, write_partition
from lakebed.admin import delete_expired_temporary_files
from lakebed.core.errors import LakebedError
from lakebed.lake import connect
from lakebed.testing import StubbornStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.lake import Lake
    from lakebed.storage.protocol import Storage
    from lakebed.testing import FixedClock

OLD = timedelta(hours=2)
HOUR = timedelta(hours=1)


def retire_all(lake: Lake, *, grace_s: float = 0.0) -> None:
    lake.partitions.retire_expired(retention=timedelta(seconds=1), dry_run=False, grace_s=grace_s)


def test_three_of_a_thousand_deletes_fail_stay_queued_and_go_later(timed_lake: Lake, clock: FixedClock) -> None:
    lake = timed_lake
    table = make_table(lake.registry)
    root = lake.storage.paths.root
    for start in range(0, 1000, 250):
        publish(lake.registry, table, *(fake_file(number, root=root) for number in range(start, start + 250)), hours=(start, start + 1))
    clock.advance(seconds=365 * 86_400)
    retire_all(lake)
    clock.advance(seconds=1)
    paths = sorted(row[0] for row in lake.registry.query("SELECT file_path FROM temporary_files"))
    storage = StubbornStorage(lake.storage, {paths[0], paths[500], paths[-1]})

    first = delete_expired_temporary_files(lake.registry, cast("Storage", storage))
    at_once = delete_expired_temporary_files(lake.registry, cast("Storage", storage))
    queued = lake.registry.query("SELECT file_path, attempts FROM temporary_files ORDER BY file_path")
    storage.refused.clear()
    clock.advance(seconds=3600)
    later = delete_expired_temporary_files(lake.registry, cast("Storage", storage))

    assert (first.deleted, sorted(first.failed)) == (997, sorted({paths[0], paths[500], paths[-1]}))
    assert (at_once.deleted, at_once.failed) == (0, {})  # each pauses before its next attempt: the backlog costs nothing meanwhile
    assert queued == [(paths[0], 1), (paths[500], 1), (paths[-1], 1)]
    assert later.deleted == 3
    assert lake.check().clean


def in_threads(*bodies: Callable[[], None], turns: int) -> list[BaseException]:
    failed: list[BaseException] = []

    def keep_on(body: Callable[[], None]) -> None:
        try:
            for _ in range(turns):
                body()
        except BaseException as exc:  # noqa: BLE001 - told by the test
            failed.append(exc)

    threads = [threading.Thread(target=keep_on, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def test_every_admin_function_may_run_beside_writers(lake: Lake) -> None:
    make_table(lake.registry)
    view = make_view(lake.registry)
    numbers = iter(range(100_000))
    guard = threading.Lock()

    def draw() -> int:
        with guard:
            return next(numbers)

    def write() -> None:
        write_partition(lake, draw())

    def build_view() -> None:
        slot = draw()
        publish(lake.registry, view, hours=(slot, slot + 1))

    def redefine() -> None:
        promote(lake.registry, stage(lake.registry, definition=f"SELECT {draw()}"))
        lake.retire_incompatible_partitions(str(DAILY), dry_run=False, grace_s=0.0)

    def retire() -> None:
        for partition in lake.list_partitions(str(ORDERS), limit=2):
            lake.retire_partitions(
                str(ORDERS), insert_begin=partition.begin_insert_time, insert_end=partition.end_insert_time, dry_run=False, grace_s=0.0
            )
        lake.files.list()
        lake.list_incompatible_partitions()

    def tidy() -> None:
        lake.delete_expired_temporary_files(batch_size=3)
        lake.files.sweep_orphans(older_than=OLD, dry_run=False)
        lake.files.recover()

    def build_once() -> None:
        try:
            build_view()
        except LakebedError as exc:  # the definition it was built under is no longer served
            assert exc.code == "schema_refused"  # noqa: PT017

    failed = in_threads(write, write, build_once, redefine, retire, tidy, tidy, turns=6)

    assert failed == []
    assert lake.check().clean


SPELLINGS: dict[str, Callable[[Path], str]] = {
    "as it was": str,
    "a URI": lambda place: f"file://{place}",
    "short URI": lambda place: f"file:{place}",
    "slashes": lambda place: f"/{place}//",
    "dots": lambda place: f"{place.parent}/./{place.name}/.",
    "a symlink": lambda place: str(place.parent / "link"),
    "a symlink above": lambda place: str(place.parent.parent / "way" / place.name),
    "escapes": lambda place: f"file://{str(place).replace('w', '%77')}",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_verdict_of_a_sweep_is_the_same_under_every_spelling_of_the_warehouse(spelling: str, url: str, tmp_path: Path) -> None:
    place = tmp_path / "in" / "warehouse"
    place.parent.mkdir()
    with connect(url, warehouse=str(place)) as lake:
        make_table(lake.registry)
        write_partition(lake, 1)
        write_partition(lake, 2)
        litter = Path(lake.storage.paths.root) / "shop" / "litter.parquet"
        litter.write_bytes(b"nobody's")
        for path in place.rglob("*"):
            if path.is_file():
                os.utime(path, (1, 1))
    (place.parent / "link").symlink_to(place)
    (tmp_path / "way").symlink_to(place.parent)

    with connect(url, warehouse=SPELLINGS[spelling](place)) as again:
        found = again.files.sweep_orphans(older_than=OLD, dry_run=False)
        again.registry.transact(lambda tx: tx.run("UPDATE temporary_files SET expiration = 1"), tables=[])

        assert [orphan.path for orphan in found.orphans] == [str(litter)]
        assert again.delete_expired_temporary_files().deleted == 1
        assert again.check().clean
        assert len(list(place.rglob("*.parquet"))) == 2


def test_a_reader_that_outlives_the_grace_keeps_its_files_and_only_those(timed_lake: Lake, clock: FixedClock) -> None:
    from lakebed.registry.journal.leases import end_reading, hold_for_reading  # noqa: PLC0415 - only here

    lake = timed_lake
    make_table(lake.registry)
    write_partition(lake, 1, hours=(1, 2))
    early: Any = lake.files.list(str(ORDERS))[0].file_path
    retire_all_of(lake, START + HOUR)
    clock.advance(seconds=1)
    write_partition(lake, 2, hours=(2, 3))
    planned = lake.files.list(str(ORDERS))[0].file_path
    hold_for_reading(lake.registry, "reader/1", [lake.table(str(ORDERS)).table_id], owner="host/1/slow", ttl_us=10 * 3_600_000_000)
    retire_all_of(lake, START + 2 * HOUR)
    clock.advance(seconds=3 * 3600)

    during = lake.delete_expired_temporary_files()
    state = (Path(early).exists(), Path(planned).exists())
    end_reading(lake.registry, "reader/1")
    after = lake.delete_expired_temporary_files()

    assert (during.deleted, state, after.deleted) == (1, (False, True), 1)
    assert lake.check().clean


def retire_all_of(lake: Lake, begin: Any) -> None:
    lake.retire_partitions(str(ORDERS), insert_begin=begin, insert_end=begin + HOUR, dry_run=False, grace_s=60)
