"""Many processes at once: nothing overlaps, nothing is lost, nothing is counted twice, and every refused writer gets the reason."""

from __future__ import annotations

import json
import multiprocessing
import random
import threading
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from builders import (
    ORDERS,
    count,
    fake_file,
    insert_hours,
    make_table,
    new_partition,
    operation,
    publish,
    within,
    write_partition,
)
from lakebed.check import check
from lakebed.core.errors import ForkedConnectionError, PartitionConflictError, TableExistsError
from lakebed.core.events import ChangeKind, RegistryTable
from lakebed.core.names import TableName
from lakebed.core.rows import TableFiles
from lakebed.lake import Lake, connect
from lakebed.registry.connect import open_backend
from lakebed.registry.journal.changes import last_journal_numbers
from lakebed.registry.open import open_registry
from lakebed.registry.partitions.publish import update_table_files as publish_within
from lakebed.registry.registry import Registry
from lakebed.registry.tables.lake_tables import require_table
from lakebed.registry.tables.versions import set_properties
from lakebed.testing import Follower, SteppedBackend, Steps
from planning import plan_files
from retiring import retire_by_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.context import ForkServerContext
    from multiprocessing.synchronize import Barrier

TABLES = tuple(TableName("shop", f"t{n}") for n in range(4))
END = TableName("shop", "the_end")


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """New processes from one that has imported everything: each would take a second by itself."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["lakebed.check", "lakebed.testing", "pyarrow.parquet", "pytest"])
    return context


def race(context: ForkServerContext, work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """`work` in one process per tuple, none before all of them are there; an error of any is raised here."""
    barrier = context.Barrier(len(arguments))
    with ProcessPoolExecutor(len(arguments), mp_context=context, initializer=meet, initargs=(barrier,)) as pool:
        return [done.result() for done in [pool.submit(work, *each) for each in arguments]]


def meet(barrier: Barrier) -> None:
    barrier.wait(timeout=60)


# -- two writers of one table: no overlap, no lost row -----------------------------------------


def publish_overlapping(url: str, seed: int) -> tuple[dict[tuple[int, int], int], list[tuple[str, str]]]:
    """Two hundred random windows; the rows of those that were published, and (wanted, found) of the refusals."""
    chance, won, lost = random.Random(seed), {}, []
    with closing(open_registry(url)) as registry:
        table = require_table(registry, ORDERS)
        for _ in range(200):
            begin, rows = chance.randrange(500), chance.randrange(1, 50)
            hours = (begin, begin + chance.randrange(1, 5))
            files = [fake_file(n, rows=rows) for n in range(chance.randrange(2))]
            try:
                publish(registry, table, *files, hours=hours)
                won[hours] = rows * len(files)
            except PartitionConflictError as exc:
                lost.append((exc.wanted, exc.found))
    return won, lost


def test_two_processes_publishing_overlapping_windows_leave_no_overlap_and_lose_no_row(
    registry: Registry, url: str, processes: ForkServerContext
) -> None:
    make_table(registry)

    ((won, lost), (won_too, lost_too)) = race(processes, publish_overlapping, [(url, 1), (url, 2)])

    ranges = sorted(registry.query("SELECT begin_insert_time, end_insert_time FROM partitions"))
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(ranges))
    assert ranges == sorted((insert_hours(*h).begin, insert_hours(*h).end) for h in (won | won_too))
    assert len(won) + len(won_too) + len(lost) + len(lost_too) == 400
    assert count(registry, "partitions") == len(won) + len(won_too)
    ((rows,),) = registry.query("SELECT row_count FROM tables")
    assert rows == sum(won.values()) + sum(won_too.values())
    assert_named({f"shop.orders/global {insert_hours(*h)}" for h in (won | won_too)}, lost + lost_too)
    assert check(registry, None).clean


def assert_named(published: set[str], refusals: list[tuple[str, str]]) -> None:
    """Each refusal names a slice that was published, and that does overlap the wanted one."""
    assert len(refusals) > 50
    for wanted, found in refusals:
        assert found in published
        (low, high), (begin, end) = ends_of(wanted), ends_of(found)
        assert begin < high
        assert low < end


def ends_of(shown: str) -> tuple[str, str]:
    """Begin and end of a slice as people read it; the texts sort as the times do."""
    begin, _, end = shown.partition("[")[2].removesuffix(")").partition(", ")
    return begin, end


# -- many writers that read first --------------------------------------------------------------


def read_then_write(url: str, rounds: int) -> list[int]:
    """Look at a snapshot, then change what was seen; the numbers drawn."""
    drawn = []
    with closing(open_registry(url)) as registry:
        table = require_table(registry, ORDERS)
        for number in range(rounds):
            plan_files(registry, ORDERS)
            with registry.write([ORDERS]) as tx:
                ((text,),) = tx.query("SELECT properties FROM table_metadata WHERE standing = 'serving'")
                drawn.append(json.loads(text).get("counter", 0) + 1)
                set_properties(tx, ORDERS, {"counter": drawn[-1]})
                publish_within(tx, new_partition(table, fake_file(number, rows=3)), operation())
    return drawn


def test_eight_processes_that_read_then_write_never_meet_a_lock_and_lose_no_update(
    registry: Registry, url: str, processes: ForkServerContext
) -> None:
    make_table(registry)

    drawn = race(processes, read_then_write, [(url, 20)] * 8)

    assert sorted(n for each in drawn for n in each) == list(range(1, 161))
    ((rows, files),) = registry.query("SELECT row_count, file_count FROM tables")
    assert (rows, files) == (480, 160)
    assert check(registry, None).clean


# -- sixteen writers with rollbacks, followed from another process ------------------------------


class GivenUpError(Exception):
    """The writer changes its mind in the middle of a transaction."""


def write_or_give_up(registry: Registry, chance: random.Random, committed: list[str]) -> None:
    """One to three partitions in one or two tables, in one transaction that two of five times does not commit."""
    names = chance.sample(TABLES, chance.randrange(1, 3))
    files = [fake_file(chance.randrange(1000)) for _ in range(chance.randrange(1, 4))]
    with registry.write(names) as tx:
        for file in files:
            publish_within(tx, new_partition(require_table(registry, chance.choice(names)), file), operation())
        if chance.random() < 0.4:
            raise GivenUpError
    committed.extend(file.path for file in files)


def write_with_rollbacks(url: str, seed: int) -> list[str]:
    """Four threads; the paths of every transaction that was committed."""
    committed: list[str] = []

    def work(own: int) -> None:
        chance = random.Random(own)
        for _ in range(12):
            with suppress(GivenUpError):
                write_or_give_up(registry, chance, committed)

    with closing(open_registry(url)) as registry, ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4 * seed, 4 * seed + 4)))
    return committed


def follow_to_the_end(url: str, _: int) -> list[tuple[int, int, str | None]]:
    """Table, number, and the path of an added file, for every change until something is added to the table of that name."""
    seen: list[tuple[int, int, str | None]] = []
    with closing(open_registry(url)) as registry, closing(Follower(registry)) as follower:
        end = registry.require_table_id(END)
        for event in follower.follow(threading.Event()):
            is_file = event.table is RegistryTable.TABLE_FILES and event.operation is ChangeKind.INSERT
            seen.append((event.table_id, event.sequence, event.data.file_path if is_file and isinstance(event.data, TableFiles) else None))
            if event.table_id == end and is_file:
                return seen
    raise AssertionError


def test_sixteen_writers_with_rollbacks_deliver_exactly_what_they_committed(
    registry: Registry, url: str, processes: ForkServerContext
) -> None:
    for name in (*TABLES, END):
        make_table(registry, name)
    with ProcessPoolExecutor(1, mp_context=processes) as other:
        following = other.submit(follow_to_the_end, url, 0)
        committed = [path for paths in race(processes, write_with_rollbacks, [(url, seed) for seed in range(4)]) for path in paths]
        publish(registry, require_table(registry, END), last := fake_file(1))
        seen = following.result(timeout=60)

    assert Counter(path for *_, path in seen if path) == Counter([*committed, last.path])
    assert_dense(seen, registry)
    assert check(registry, None).clean


def assert_dense(seen: list[tuple[int, int, str | None]], registry: Registry) -> None:
    """Per table every number once, in order, up to the last; the end marker's own table may go on."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for table_id, number, _ in seen:
        numbers[table_id].append(number)
    assert all(each == list(range(1, len(each) + 1)) for each in numbers.values())
    end = registry.require_table_id(END)
    assert {t: n[-1] for t, n in numbers.items() if t != end} == {t: n for t, n in last_journal_numbers(registry).items() if t != end}


# -- one name, one table ------------------------------------------------------------------------


def test_of_two_that_create_one_name_at_once_the_second_error_has_the_name(registry: Registry, url: str) -> None:
    def overtake(_: str) -> None:
        make_table(registry)

    # on SQLite, where one writes at a time, the last moment is before the transaction; on PostgreSQL it is inside
    steps = Steps(at=1 if registry.dialect == "sqlite" else 2, act=overtake)
    with closing(Registry(SteppedBackend(open_backend(url), steps))) as slower:
        with pytest.raises(TableExistsError, match=r"shop\.orders exists already"):
            make_table(slower)

        assert steps.done[0] == "begin"
        assert require_table(slower, ORDERS) == require_table(registry, ORDERS)
    assert count(registry, "tables") == count(registry, "table_seq") == 1


def create_orders(url: str, _: int) -> int | None:
    with closing(open_registry(url)) as registry:
        try:
            return make_table(registry).table_id
        except TableExistsError:
            return None


def test_of_eight_processes_that_create_one_name_exactly_one_wins(registry: Registry, url: str, processes: ForkServerContext) -> None:
    made = [table_id for table_id in race(processes, create_orders, [(url, n) for n in range(8)]) if table_id is not None]

    assert made == [require_table(registry, ORDERS).table_id]
    assert check(registry, None).clean


# -- fork ---------------------------------------------------------------------------------------


def in_a_forked_child(body: Callable[[], None]) -> int:
    """Zero when `body` ended without an error; the child inherits everything, as `os.fork` has it."""
    child = multiprocessing.get_context("fork").Process(target=body)
    child.start()
    child.join(30)
    assert child.exitcode is not None
    return child.exitcode


def test_a_registry_used_in_a_forked_child_is_refused_and_the_parent_works_on(registry: Registry) -> None:
    table = make_table(registry)

    def use() -> None:
        for attempt in (lambda: require_table(registry, ORDERS), lambda: publish(registry, table, fake_file(1))):
            with pytest.raises(ForkedConnectionError, match="open a new one in the child process"):
                attempt()

    assert in_a_forked_child(use) == 0
    publish(registry, table, fake_file(2))
    assert (count(registry, "partitions"), check(registry, None).clean) == (1, True)


def test_closing_an_inherited_registry_leaves_the_connections_of_the_parent_alone(registry: Registry) -> None:
    table = make_table(registry)

    assert in_a_forked_child(registry.close) == 0

    publish(registry, table, fake_file(1))
    assert count(registry, "partitions") == 1


def test_a_forked_child_works_with_a_registry_of_its_own(registry: Registry, url: str) -> None:
    table = make_table(registry)

    def publish_too() -> None:
        with closing(open_registry(url)) as own:
            publish(own, table, fake_file(1))

    assert in_a_forked_child(publish_too) == 0
    publish(registry, table, fake_file(2))
    assert count(registry, "partitions") == 2


# -- two clean-ups ------------------------------------------------------------------------------


def clean_up(url: str, warehouse: str) -> tuple[int, int]:
    with connect(url, warehouse=warehouse) as lake:
        cleaned = lake.delete_expired_temporary_files(batch_size=5)
    assert not cleaned.failed
    return cleaned.deleted, cleaned.bytes_freed


@pytest.fixture
def retired(lake: Lake) -> list[Path]:
    """Sixty real files past their grace."""
    make_table(lake.registry)
    ids = {write_partition(lake, n, files=6).partition_id for n in range(0, 100, 10)}
    paths = [Path(f.file_path) for f in lake.files.list(str(ORDERS))]
    within(lake.registry, lambda tx: retire_by_ids(tx, ORDERS, ids, grace_us=0))
    return paths


def test_two_clean_ups_at_once_delete_and_count_every_file_once(
    lake: Lake, retired: list[Path], url: str, processes: ForkServerContext
) -> None:
    size = sum(path.stat().st_size for path in retired)

    done = race(processes, clean_up, [(url, str(lake.storage.paths.root))] * 2)

    assert (sum(files for files, _ in done), sum(freed for _, freed in done)) == (60, size)
    assert not any(path.exists() for path in retired)
    assert [count(lake.registry, t) for t in ("table_files", "temporary_files", "partition_metadata")] == [0, 0, 0]
    assert lake.check().clean
