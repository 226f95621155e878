"""Runs of several transactions, runs of processes that died, and runs whose commit got no answer."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from builders import ORDERS, count, make_table
from lakebed import admin
from lakebed.admin.audit import write_down
from lakebed.core.errors import NotAllowedError, RegistryUnavailableError
from lakebed.registry.backends.protocol import CommitUnknownError
from lakebed.registry.connect import open_backend
from lakebed.registry.maintenance.open_runs import OpenRun, close_ended_runs, keeping_run
from lakebed.registry.maintenance.runs import add_run, list_runs
from lakebed.registry.registry import Registry
from lakebed.testing import SteppedBackend, Steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.names import TableName
    from lakebed.registry.backends.protocol import Backend, Connection
    from lakebed.registry.transaction import Transaction

KEY = "INSERT INTO astha_state (key, value, updated_at) VALUES ('k', 'v', 1)"
DIE = """
import os, sys
from lakebed.registry.open import open_registry
from lakebed.registry.maintenance.open_runs import OpenRun, keeping_run
registry = open_registry(sys.argv[1])
run = OpenRun("compact", actor="ann", plan={})
with keeping_run(registry, run):
    with registry.write() as tx:
        run.begin(tx)
    os._exit(1)
"""


def states(registry: Registry) -> list[str]:
    return [run.state for run in list_runs(registry)]


def begin(registry: Registry, run: OpenRun) -> None:
    with registry.write() as tx:
        run.begin(tx)


def do_and_close(registry: Registry, run: OpenRun) -> None:
    with registry.write() as tx:
        run.begin(tx)
        tx.run(KEY)
        run.finish(tx, result={"keys": 1})


def test_a_run_is_opened_with_its_first_transaction_and_closed_with_its_last(registry: Registry) -> None:
    run = OpenRun("compact", actor="ann", plan={})
    with keeping_run(registry, run):
        begin(registry, run)
        assert states(registry) == ["running"]
        do_and_close(registry, run)

    (kept,) = list_runs(registry)
    assert (kept.run_id, kept.state, kept.result, run.is_closed) == (run.run_id, "done", {"keys": 1}, True)


def test_a_call_whose_only_transaction_fails_leaves_a_failed_run_and_what_it_says(registry: Registry) -> None:
    run = OpenRun("compact", actor="ann", plan={"x": 1}, so_far=lambda: {"keys": 0})

    def fail() -> None:
        with keeping_run(registry, run), registry.write() as tx:
            run.begin(tx)
            message = "a name with \udc80"
            raise RuntimeError(message)

    with pytest.raises(RuntimeError):
        fail()

    (kept,) = list_runs(registry)
    assert (kept.state, kept.plan, kept.result) == ("failed", {"x": 1}, {"keys": 0, "error": "RuntimeError: a name with \udc80"})


def test_a_call_that_fails_behind_its_last_transaction_leaves_a_run_that_is_done(registry: Registry) -> None:
    run = OpenRun("compact", actor="ann", plan={})

    def fail_late() -> None:
        with keeping_run(registry, run):
            do_and_close(registry, run)
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        fail_late()

    assert states(registry) == ["done"]


def test_an_actor_that_may_not_change_the_lake_leaves_no_run(registry: Registry) -> None:
    admin.set_administrators(registry, ["ann"], actor="ann")
    run = OpenRun("repair", actor="bob", plan={})
    with pytest.raises(NotAllowedError), keeping_run(registry, run):
        do_and_close(registry, run)

    assert [r.job for r in list_runs(registry)] == ["set_administrators"]


def test_the_run_of_a_killed_process_is_closed_by_recovery(registry: Registry, url: str) -> None:
    assert subprocess.run([sys.executable, "-c", DIE, url], check=False).returncode == 1
    assert states(registry) == ["running"]

    assert close_ended_runs(registry) == 1

    (kept,) = list_runs(registry)
    assert (kept.state, kept.result["error"][:17]) == ("failed", "its process ended")
    assert close_ended_runs(registry) == 0


def test_a_run_that_its_own_process_could_not_close_is_closed_by_recovery_and_an_open_one_is_not(registry: Registry) -> None:
    run = OpenRun("compact", actor="ann", plan={})
    with keeping_run(registry, run):
        begin(registry, run)
        assert close_ended_runs(registry) == 0
    assert states(registry) == ["running"]  # as if the registry had been away when it ended

    assert close_ended_runs(registry) == 1


def test_runs_without_a_process_and_those_of_other_hosts_are_left_alone(registry: Registry) -> None:
    with registry.write() as tx:
        add_run(tx, "compact", actor="ann", plan={})
        add_run(tx, "compact", actor="ann", plan={}, process="elsewhere/1@2.3.4/call-5")

    assert close_ended_runs(registry) == 0


# -- commits without an answer ----------------------------------------------------------------


def lose_answer(what: str) -> None:
    message = f"no answer to {what}"
    raise RegistryUnavailableError(message)


class Unsent(SteppedBackend):
    """Loses the connection on the way to the server: nothing is committed."""

    def commit(self, connection: Connection) -> None:
        try:
            self.steps.reach("commit")
        except RegistryUnavailableError as exc:
            self.rollback(connection)
            raise CommitUnknownError from exc
        super().commit(connection)


def write_key(tx: Transaction) -> None:
    write_down(tx, "configure_table", {"x": 1}, actor="ann")
    tx.run(KEY)


def test_a_lost_answer_is_settled_by_the_run_that_was_written_down(registry: Registry, url: str) -> None:
    steps = Steps(act=lose_answer)
    with closing(Registry(SteppedBackend(open_backend(url), steps))) as other:
        steps.at = next(n for n in range(1, 20) if ends_at(other, steps, n) == "committed")

    assert states(registry) == ["done"]
    assert count(registry, "astha_state") == 1


def ends_at(registry: Registry, steps: Steps, step: int) -> str:
    """The step that it fails at, `committed` when it gets through in spite of it."""
    steps.done.clear()
    steps.at = step
    try:
        registry.transact(write_key, tables=[])
    except RegistryUnavailableError:
        return f"failed at {steps.done[step - 1]}"
    return steps.done[step - 1]


def test_a_lost_commit_is_recognized_and_can_be_repeated(registry: Registry, url: str) -> None:
    make_table(registry)
    wanted: list[list[TableName]] = [[], [ORDERS]]
    for tables in wanted:
        steps = Steps(at=0, act=lose_answer)
        with closing(Registry(Unsent(open_backend(url), steps))) as other:
            other.find_table_id(ORDERS)
            with registry.write() as tx:
                tx.run("DELETE FROM astha_state")
            before = len(states(registry))
            with pytest.raises(RegistryUnavailableError, match=r"lost before run \d+ was committed; nothing was changed: retry"):
                write_until_commit(other, steps, tables)
            assert (len(states(registry)), count(registry, "astha_state")) == (before, 0)

            steps.at = 0
            other.transact(write_key, tables=tables)
            assert (len(states(registry)), states(registry)[0], count(registry, "astha_state")) == (before + 1, "done", 1)


def write_until_commit(other: Registry, steps: Steps, tables: Sequence[TableName]) -> None:
    with other.write(tables) as tx:
        write_key(tx)
        tx.flush()
        steps.at = len(steps.done) + 1


class Late(SteppedBackend):
    """The server carries out the first commit only when another transaction waits for it; the client has lost the line by then."""

    def __init__(self, real: Backend, watcher: Registry) -> None:
        super().__init__(real, Steps())
        self._watcher = watcher
        self.committing: threading.Thread | None = None

    def commit(self, connection: Connection) -> None:
        if self.committing is not None:
            super().commit(connection)
            return
        connection.close = lambda: None  # type: ignore[method-assign]  # the server has not noticed that the client is gone
        self.committing = threading.Thread(target=self._commit_awaited, args=(connection,))
        self.committing.start()
        raise CommitUnknownError

    def _commit_awaited(self, connection: Connection) -> None:
        while not self._watcher.query("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"):
            pass
        super().commit(connection)
        del connection.close


@pytest.mark.parametrize("kind", ["postgresql"])
@pytest.mark.parametrize("is_closing", [False, True], ids=["of a new run", "of an open run"])
def test_a_commit_that_is_under_way_is_waited_for(registry: Registry, url: str, is_closing: bool) -> None:  # noqa: FBT001 - a parameter
    run = OpenRun("compact", actor="ann", plan={})
    late = Late(open_backend(url), registry)
    with closing(Registry(late)) as other, keeping_run(registry, run):
        if is_closing:
            begin(registry, run)
        do_and_close(other, run)
        assert late.committing is not None
        late.committing.join()

    assert states(registry) == ["done"]
    assert count(registry, "astha_state") == 1
