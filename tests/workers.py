"""What tests do in other processes: `run("publish", url, ...)` calls the function of that name there."""

from __future__ import annotations

import ctypes
import json
import random
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builders import ORDERS, fake_file, new_partition, operation
from lakebed.core.errors import LakebedError
from lakebed.core.names import TableName
from lakebed.registry.create import open_registry
from lakebed.registry.lake_tables import require_table
from lakebed.registry.publish import publish, publish_partition

if TYPE_CHECKING:
    from lakebed.registry.engine import Registry


def run(function: str, *arguments: Any) -> subprocess.Popen[str]:
    """Start it; `answer` waits for its JSON."""
    command = [sys.executable, __file__, function, json.dumps(arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answer(worker: subprocess.Popen[str]) -> Any:
    out, _ = worker.communicate()
    assert worker.returncode == 0, worker.returncode
    return json.loads(out)


def publish_one(url: str) -> float:
    """When the commit was about to be sent."""
    with closing(open_registry(url)) as registry:
        table = require_table(registry, ORDERS)
        partition, work = new_partition(table, fake_file(1)), operation()
        sys.stdin.readline()
        started = time.time()
        publish_partition(registry, partition, work)
    return started


def publish_with_rollbacks(url: str, tables: list[str], seed: int, threads: int, tries: int) -> dict[str, list[str]]:
    """Paths committed per table by some threads that change their mind every third time."""
    committed: dict[str, list[str]] = {name: [] for name in tables}
    with closing(open_registry(url)) as registry:
        workers = [
            threading.Thread(target=_publish_or_not, args=(registry, tables, random.Random(seed + n), tries, committed))
            for n in range(threads)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return committed


def _publish_or_not(registry: Registry, tables: list[str], rng: random.Random, tries: int, committed: dict[str, list[str]]) -> None:
    for _ in range(tries):
        name = rng.choice(tables)
        table = require_table(registry, TableName.parse(name))
        files = [fake_file(rng.randrange(10**6)) for _ in range(rng.randint(1, 3))]
        try:
            with registry.write([table.name]) as tx:
                publish(tx, new_partition(table, *files), operation())
                _maybe_change_mind(rng)
        except InterruptedError:
            continue
        committed[name].extend(f.path for f in files)


def _maybe_change_mind(rng: random.Random) -> None:
    if rng.random() < 1 / 3:
        raise InterruptedError


def hold_write_lock(url: str, table: str) -> None:
    """Be the writer of the table until told otherwise."""
    with closing(open_registry(url)) as registry, registry.write([TableName.parse(table)]):
        sys.stdout.write("held\n")
        sys.stdout.flush()
        sys.stdin.readline()


def write_without_privileges(url: str) -> str:
    """The code and message of the error that a process without any privilege gets when it writes."""
    _drop_privileges()
    try:
        with closing(open_registry(url)) as registry, registry.write() as tx:
            tx.run("DELETE FROM astha_state")
    except LakebedError as exc:
        return f"{exc.code}: {exc}"
    return "written"


def _drop_privileges() -> None:
    """Root without capabilities obeys permission bits as everybody does; for others nothing changes."""
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    ctypes.CDLL(None).capset(header, none)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.stdout.write(json.dumps(globals()[sys.argv[1]](*json.loads(sys.argv[2]))))
