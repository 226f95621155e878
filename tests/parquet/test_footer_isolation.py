from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from footer_samples import framed, people, people_schema, tail_of, write
from hostile_footers import corpus, crash, hog, sample_meta, slow

from lakebed.core.errors import LakebedError, LimitExceededError, RefusedError, UnavailableError, UnreadableFileError
from lakebed.parquet.foreign.protocol import Job, encode_job
from lakebed.parquet.foreign.sandbox import ForeignFile, WorkerLimits, _Worker, inspect_isolated
from lakebed.parquet.inspect import Inspection, ParseLimits, StatisticsSpec, inspect

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_SECONDS = 10  # what starting a process may take on a machine with other work to do
_MEASURE = """
import json, resource, sys
sys.path.insert(0, sys.argv[1])
from footer_samples import people_schema
from hostile_footers import corpus
from lakebed.parquet.foreign.sandbox import ForeignFile, inspect_isolated
files = [ForeignFile(path=name, tail=tail) for name, tail in corpus().items() if name in {"memory", "nested schema", "short statistics"}]
found = inspect_isolated(files, people_schema())
print(json.dumps([resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, [type(one).__name__ for one in found]]))
"""


def foreign(*tails: bytes) -> list[ForeignFile]:
    return [ForeignFile(path=f"file-{number}", tail=tail) for number, tail in enumerate(tails)]


def refused(found: Inspection | LakebedError) -> LakebedError:
    assert isinstance(found, LakebedError), found
    return found


@pytest.fixture(scope="module")
def good() -> bytes:
    return tail_of(write(people()))


def test_the_worker_finds_what_an_inspection_in_process_finds(good: bytes) -> None:
    spec = StatisticsSpec(indexed=frozenset({1}), always=frozenset({2}), first=1)

    found = inspect_isolated(foreign(good, good), people_schema(), spec=spec)

    assert found == [inspect(good, people_schema(), spec=spec)] * 2


def test_an_event_range_and_problems_come_through() -> None:
    table = pa.table({"id": pa.array([5, 6], pa.timestamp("us")), "more": [1, 2]})
    tail = tail_of(write(table))
    spec = StatisticsSpec(require_ids=False)

    assert inspect_isolated(foreign(tail), people_schema(), spec=spec) == [inspect(tail, people_schema(), spec=spec)]


def test_no_file_needs_no_worker() -> None:
    assert inspect_isolated([], people_schema(), limits=WorkerLimits(start_seconds=0)) == []


def test_a_crash_costs_only_the_file_that_caused_it(good: bytes) -> None:
    first, broken, second, again, third = inspect_isolated(foreign(good, crash(), good, crash(), good), people_schema())

    assert first == second == third == inspect(good, people_schema())
    for found, name in ((broken, "file-1"), (again, "file-3")):
        error = refused(found)
        assert isinstance(error, UnreadableFileError)
        assert error.path == name
        assert "SIGABRT" in str(error)


def test_a_file_that_takes_too_long_is_given_up_and_the_next_one_answered(good: bytes) -> None:
    limits = WorkerLimits(seconds=0.5)

    found = inspect_isolated(foreign(slow(megabytes=14), good), people_schema(), limits=limits)

    assert isinstance(found[0], LimitExceededError)
    assert "0.5 s" in str(found[0])
    assert isinstance(found[1], Inspection)


def test_a_file_that_needs_too_much_memory_is_refused_and_the_next_one_answered(good: bytes) -> None:
    found = inspect_isolated(foreign(hog(megabytes=2), good), people_schema(), limits=WorkerLimits(seconds=20))

    assert isinstance(found[0], LimitExceededError)
    assert "512 MiB" in str(found[0])
    assert isinstance(found[1], Inspection)


def test_a_footer_over_the_limit_is_refused_without_a_worker() -> None:
    limits = WorkerLimits(footer_bytes=1000, start_seconds=0)

    (found,) = inspect_isolated(foreign(framed(bytes(1001))), people_schema(), limits=limits)

    assert isinstance(found, LimitExceededError)


def test_more_columns_than_allowed_are_refused_by_limit(good: bytes) -> None:
    (found,) = inspect_isolated(foreign(good), people_schema(), limits=WorkerLimits(parse=ParseLimits(container_items=1)))

    assert isinstance(found, LimitExceededError)
    assert "1 columns" in str(found)


@pytest.mark.parametrize("name", sorted(corpus()))
def test_every_hostile_footer_gets_its_typed_refusal(name: str) -> None:
    hostile = ForeignFile(path=name, tail=corpus()[name])

    (found,) = inspect_isolated([hostile], people_schema())

    assert isinstance(refused(found), UnreadableFileError | LimitExceededError)
    assert ascii(name) in str(found)


def test_the_worker_never_holds_more_than_512_mb() -> None:
    script = [sys.executable, "-c", _MEASURE, str(Path(__file__).parent)]

    measured = subprocess.run(script, check=True, capture_output=True, text=True, timeout=60)

    peak, kinds = json.loads(measured.stdout)
    assert peak <= 512 * 1024 * 1024
    assert kinds[-1] in {"LimitExceededError", "UnreadableFileError"}
    assert len(kinds) == 3


def test_random_bit_flips_never_reach_the_parent() -> None:
    chance = random.Random(20260101)
    meta = sample_meta()
    flipped = [framed(flip(meta, chance)) for _ in range(300)]

    found = inspect_isolated(foreign(*flipped), people_schema())

    assert len(found) == 300
    assert all(isinstance(one, Inspection | RefusedError) for one in found)
    assert sum(isinstance(one, RefusedError) for one in found) > 50


def flip(meta: bytes, chance: random.Random) -> bytes:
    out = bytearray(meta)
    for _ in range(chance.randint(1, 3)):
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)


def test_metadata_cut_anywhere_is_refused(good: bytes) -> None:
    meta = good[:-8]
    cut = [framed(meta[: len(meta) * percent // 100]) for percent in range(100)]

    found = inspect_isolated(foreign(*cut), people_schema())

    assert all(isinstance(one, UnreadableFileError) for one in found)


def test_bytes_before_the_metadata_are_refused(good: bytes) -> None:
    (found,) = inspect_isolated(foreign(b"index" + good), people_schema())

    assert isinstance(found, UnreadableFileError)


def test_a_worker_that_cannot_start_is_not_the_fault_of_a_file(good: bytes) -> None:
    with pytest.raises(UnavailableError, match="did not start"):
        inspect_isolated(foreign(good), people_schema(), limits=WorkerLimits(start_seconds=0.001))


def open_descriptors(pid: int | str = "self") -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def test_no_process_and_no_pipe_is_left_behind(good: bytes) -> None:
    before = open_descriptors(), list_children()

    inspect_isolated(foreign(good, crash(), good), people_schema())

    assert (open_descriptors(), list_children()) == before


def list_children() -> list[str]:
    """Of this process: servers of other tests may be among them."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Worker]:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    monkeypatch.setenv("PYTHONPATH", "/nonexistent")
    limits = WorkerLimits()
    job = Job(schema=people_schema(), spec=StatisticsSpec(), parse=limits.parse, memory_bytes=limits.memory_bytes)
    started = _Worker(encode_job(job), limits.start_seconds)
    yield started
    started.stop()


def test_the_worker_can_open_nothing_and_write_nothing(worker: _Worker) -> None:
    stated = Path(f"/proc/{worker.pid}/limits").read_text()

    limits = {line[:26].strip(): line[26:47].strip() for line in stated.splitlines()}

    assert (limits["Max open files"], limits["Max file size"], limits["Max core file size"]) == ("3", "0", "0")
    assert int(limits["Max address space"]) < 1 << 30
    assert open_descriptors(worker.pid) == 3


def test_the_environment_of_the_parent_does_not_reach_the_worker(worker: _Worker) -> None:
    environment = Path(f"/proc/{worker.pid}/environ").read_bytes()

    assert b"canary" not in environment
    assert b"nonexistent" not in environment


def test_the_worker_ends_when_its_parent_hangs_up(worker: _Worker) -> None:
    assert worker.stop(grace_seconds=_START_SECONDS) == 0
