"""Commits of many files in a process of its own, which says how much memory each took.

python memory_of_commits.py WAREHOUSE-DIRECTORY FILES    prints one JSON object: peaks in bytes, above what the process had before
"""

from __future__ import annotations

import json
import resource
import sys
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

from ice import IceLake, open_ice
from lakebed.lake import connect
from lakebed.testing import multiply_file

if TYPE_CHECKING:
    from collections.abc import Callable


def make_large(ice: IceLake, files: int) -> None:
    """Files that exist as rows and footers alone, over a hundred partition values; Iceberg has none of them."""
    ice.create(partition_by=("country",))
    multiply_file(ice.lake.registry, ice.write(0), files)
    with ice.lake.registry.write([ice.table_id()]) as tx:
        tx.run("UPDATE tables SET committed_group = 0 WHERE id = :id", {"id": ice.table_id()})


def measure(call: Callable[[], object]) -> int:
    """Python's own memory at its peak."""
    tracemalloc.start()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def main(directory: str, files: int) -> None:
    place = Path(directory)
    with connect(f"sqlite:///{place}/lake.db", warehouse=str(place / "warehouse")) as lake:
        ice = open_ice(lake)
        make_large(ice, files)
        table_id = ice.table_id()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ice.committer.advance(table_id)
        found = {"resident": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024}
        found["rebuild"] = measure(lambda: ice.committer.rebuild(table_id))
        found["refresh"] = measure(lambda: ice.committer.refresh(table_id))
        found["verify"] = measure(lambda: ice.committer.verify(table_id))
        sys.stdout.write(json.dumps(found) + "\n")
        ice.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
