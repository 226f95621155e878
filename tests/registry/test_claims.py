"""Files are claimed by one of many at once, and a claim that ran out counts nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from queued_files import queue_fakes

from builders import (
    count,
    logical_dump,
)
from lakebed.registry.files.deletion_queue import claim_expired, finalize_deleted, release_failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.registry.registry import Registry
    from lakebed.testing import FixedClock


def test_two_threads_never_claim_the_same_file(registry: Registry, another: Callable[[], Registry]) -> None:
    queue_fakes(registry, 300)
    claimed: list[str] = []

    def work(own: Registry) -> None:
        while files := claim_expired(own, limit=7).files:
            claimed.extend(f.path for f in files)

    threads = [threading.Thread(target=work, args=(own,)) for own in (registry, another(), another())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(claimed) == len(set(claimed)) == 300


_CLEANER = """
import sys
from lakebed.registry.open import open_registry
from lakebed.registry.files.deletion_queue import claim_expired, finalize_deleted
registry = open_registry(sys.argv[1])
done = 0
while (claim := claim_expired(registry, limit=10)).files:
    done += finalize_deleted(registry, claim, [f.path for f in claim.files])
print(done)
"""


def test_processes_cleaning_at_once_count_every_file_once(registry: Registry, url: str) -> None:
    queue_fakes(registry, 300)
    workers = [subprocess.Popen([sys.executable, "-c", _CLEANER, url], stdout=subprocess.PIPE, text=True) for _ in range(3)]

    counted = [int(worker.communicate()[0]) for worker in workers]

    assert sum(counted) == 300
    assert [count(registry, t) for t in ("table_files", "temporary_files", "partition_metadata")] == [0, 0, 0]


def test_a_claim_that_ran_out_counts_nothing(timed_registry: Registry, clock: FixedClock) -> None:
    queue_fakes(timed_registry, 3)
    slow = claim_expired(timed_registry)
    clock.advance(seconds=301)
    quick = claim_expired(timed_registry)
    paths = [f.path for f in quick.files]

    assert [f.path for f in slow.files] == paths
    assert finalize_deleted(timed_registry, slow, paths) == 0
    assert finalize_deleted(timed_registry, quick, paths) == 3
    assert finalize_deleted(timed_registry, quick, paths) == 0


def test_a_failure_reported_under_a_claim_that_ran_out_changes_nothing(timed_registry: Registry, clock: FixedClock) -> None:
    queue_fakes(timed_registry, 1)
    slow = claim_expired(timed_registry)
    clock.advance(seconds=301)
    claim_expired(timed_registry)
    before = logical_dump(timed_registry)

    release_failed(timed_registry, slow, [slow.files[0].path])

    assert logical_dump(timed_registry) == before
