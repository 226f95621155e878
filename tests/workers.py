"""What tests do in other processes: `run("publish", url, ...)` calls the function of that name there."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from builders import ORDERS, fake_file, new_partition, operation
from lakebed.registry.open import open_registry
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.tables.lake_tables import require_table


def run(function: str, *arguments: Any) -> subprocess.Popen[str]:
    """Start it; `answer` waits for its JSON."""
    command = [sys.executable, __file__, function, json.dumps(arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answer(worker: subprocess.Popen[str]) -> Any:
    out, _ = worker.communicate()
    assert worker.returncode == 0, worker.returncode
    return json.loads(out)


def publish_one(url: str) -> str:
    """After a line from the process that started this."""
    with closing(open_registry(url)) as registry:
        table = require_table(registry, ORDERS)
        partition, work = new_partition(table, fake_file(1)), operation()
        sys.stdin.readline()
        publish_partition(registry, partition, work)
    return "published"


def write_nothing(url: str) -> str:
    """Open, write and close, as the last process of the day would."""
    with closing(open_registry(url)) as registry, registry.write() as tx:
        tx.run("DELETE FROM astha_state")
    return "written"


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.stdout.write(json.dumps(globals()[sys.argv[1]](*json.loads(sys.argv[2]))))
