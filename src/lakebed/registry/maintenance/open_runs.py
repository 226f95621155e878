"""Runs of several transactions: opened with the first, closed with the last, and closed as failed when their call or process ends."""

from __future__ import annotations

import json
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import LakebedError, OutcomeUnknownError
from lakebed.registry.maintenance.runs import PROCESS, add_run, close_if_still, finish_run
from lakebed.registry.processes import is_dead, make_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import CommitProof, Transaction

_RUNNING = "SELECT id, result FROM runs WHERE state = 'running'"
_CALL = "call-"
_here: set[str] = set()  # the calls of this process that have not ended


class OpenRun:
    """The run that a call records; `so_far` gives its result if it fails."""

    def __init__(
        self, job: str, *, actor: str, plan: dict[str, Any], table_id: int | None = None, so_far: Callable[[], dict[str, Any]] = dict
    ) -> None:
        self.run_id: int | None = None
        self._so_far = so_far
        self._job, self._actor, self._plan, self._table_id = job, actor, plan, table_id
        self._is_begun = self.is_closed = False
        self._begun_in: Transaction | None = None
        self._added: CommitProof | None = None
        self.process = make_owner(f"{_CALL}{secrets.token_hex(8)}")

    def begin(self, tx: Transaction) -> int:
        """With the first transaction of the work that is committed; later ones find the run open."""
        if self.run_id is None or not (self._is_begun or self._begun_in is tx):
            self.run_id = add_run(tx, self._job, actor=self._actor, plan=self._plan, table_id=self._table_id, process=self.process)
            self._begun_in, self._added = tx, tx.proof
            tx.after_commit.append(self._note_begun)
        return self.run_id

    def finish(self, tx: Transaction, *, result: dict[str, Any], state: str = "done") -> None:
        """With the last transaction of the work, so that both become true or neither."""
        finish_run(tx, self.begin(tx), state=state, result=result)
        tx.after_commit.append(self._note_closed)

    def fail(self, registry: Registry, exc: BaseException) -> None:
        """Close the open run, or record one that was never begun; the call's own error is the one to raise."""
        result = {**self._so_far(), "error": f"{type(exc).__name__}: {exc}"}
        with suppress(LakebedError), registry.write() as tx:
            if self.run_id is not None and close_if_still(tx, self.run_id, process=self.process, result=result):
                return
            is_there = self._is_begun or (self._added is not None and tx.query(self._added.sql, self._added.params))
            if not is_there and not isinstance(exc, OutcomeUnknownError):
                self.finish(tx, state="failed", result=result)

    def _note_begun(self) -> None:
        self._is_begun = True

    def _note_closed(self) -> None:
        self.is_closed = True


@contextmanager
def keeping_run(registry: Registry, run: OpenRun) -> Iterator[OpenRun]:
    """A block that raises leaves the run failed, unless its last transaction has closed it."""
    _here.add(run.process)
    try:
        yield run
    except BaseException as exc:
        run.fail(registry, exc)
        raise
    finally:
        _here.discard(run.process)


def close_ended_runs(registry: Registry) -> int:
    """Close as failed whatever is still running though its call, or the process of it, is proven to have ended; how many."""
    processes = {row[0]: json.loads(row[1]).get(PROCESS, "") for row in registry.query(_RUNNING)}
    ended = {run_id: process for run_id, process in processes.items() if process and _has_ended(process)}
    if not ended:
        return 0
    result = {"error": "its process ended before it was done; what its earlier transactions changed is changed"}
    with registry.write() as tx:
        return sum(close_if_still(tx, run_id, process=process, result=result) for run_id, process in ended.items())


def _has_ended(process: str) -> bool:
    ours = make_owner(_CALL)
    return is_dead(process) or ("@" in ours and process.startswith(ours) and process not in _here)
