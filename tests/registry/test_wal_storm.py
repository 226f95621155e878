"""Eight processes that write, read, clean up, purge and checkpoint at once, for a given time: the file stays whole.

SQLite below 3.51.3 can corrupt a database when a checkpoint races with a writer; Lakebed lets checkpoints run under the writers' lock alone.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import secrets
import sqlite3
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from builders import fake_file, fresh_name, make_table, publish, within
from lakebed.check import check
from lakebed.core.files import Footer
from lakebed.core.names import TableName
from lakebed.registry.connect import parse_url
from lakebed.registry.files.deletion_queue import claim_expired, finalize_deleted
from lakebed.registry.journal.changes import purge_journal
from lakebed.registry.open import open_registry
from lakebed.registry.queries.plans import read_plan
from lakebed.registry.tables.lake_tables import require_table
from planning import plan_files
from retiring import retire_by_ids

if TYPE_CHECKING:
    from conftest import Databases
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable

WRITERS = 8
CHECKPOINT_PAGES = 20  # less than one commit writes: each of them tries a checkpoint
STORM_S = float(os.environ.get("TEST_STORM_S", "300"))


def storm(url: str, name: str, seed: int, seconds: float) -> tuple[list[str], int]:
    """Paths that should be live in the end, and how many commits were acknowledged."""
    chance, ends_at, live, commits = random.Random(seed), time.monotonic() + seconds, dict[int, str](), 0
    while time.monotonic() < ends_at:
        with closing(open_registry(url)) as registry:  # the last close checkpoints too, and deletes the WAL
            registry.query(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
            table = require_table(registry, TableName.parse(name))
            for _ in range(chance.randrange(1, 30)):
                if chance.random() < 0.1:
                    gone = set(chance.sample(sorted(live), len(live) // 2))
                    clean_up(registry, table, gone)
                    live = {partition: path for partition, path in live.items() if partition not in gone}
                elif chance.random() < 0.1:
                    write_under_a_reader(registry, table, live, chance)
                else:
                    write(registry, table, live, chance)
                commits += 1
    return sorted(live.values()), commits


def write(registry: Registry, table: LakeTable, live: dict[int, str], chance: random.Random) -> None:
    tail = secrets.token_bytes(chance.choice([500, 5_000, 100_000]))
    file = replace(fake_file(chance.randrange(1000)), footer=Footer(tail=tail, num_rows=100, checksum=hashlib.sha256(tail).hexdigest()))
    live[publish(registry, table, file).partition_id] = file.path


def write_under_a_reader(registry: Registry, table: LakeTable, live: dict[int, str], chance: random.Random) -> None:
    """A checkpoint meanwhile may not go past what the reader still sees."""
    with registry.read() as reader:
        before = read_plan(reader, table.name).paths
        write(registry, table, live, chance)
        assert read_plan(reader, table.name).paths == before


def clean_up(registry: Registry, table: LakeTable, gone: set[int]) -> None:
    within(registry, lambda tx: retire_by_ids(tx, table.name, gone, grace_us=0), table.name)
    claim = claim_expired(registry)
    finalize_deleted(registry, claim, [file.path for file in claim.files])
    purge_journal(registry, table.table_id, cap=100)


@pytest.mark.parametrize("seconds", [6.0, pytest.param(STORM_S, marks=[pytest.mark.long, pytest.mark.timeout(STORM_S + 300)])])
def test_eight_writers_in_a_storm_of_checkpoints_leave_the_file_whole(databases: Databases, seconds: float) -> None:
    url, context = databases.new("sqlite"), multiprocessing.get_context("forkserver")
    with closing(open_registry(url)) as registry:
        names = [str(make_table(registry, fresh_name()).name) for _ in range(WRITERS)]
    context.set_forkserver_preload(["lakebed.check", "lakebed.testing", "pytest"])
    with ProcessPoolExecutor(WRITERS, mp_context=context) as pool:
        running = [pool.submit(storm, url, name, seed, seconds) for seed, name in enumerate(names)]
        outcomes = [each.result() for each in running]

    with closing(sqlite3.connect(parse_url(url))) as direct:
        assert direct.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert direct.execute("PRAGMA foreign_key_check").fetchall() == []
    with closing(open_registry(url)) as registry:
        found = {name: sorted(plan_files(registry, TableName.parse(name)).paths) for name in names}
        assert found == {name: live for name, (live, _) in zip(names, outcomes, strict=True)}
        assert check(registry).clean
    assert min(commits for _, commits in outcomes) > 0
