"""Strikes the action of a scene at its system calls, and says what must be true of the lake afterwards."""

from __future__ import annotations

import signal
import traceback
import zlib
from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from killing import Stage, staged
from scenes import ALL, DONE, UNKNOWN, Scene, ids_of, live, make_old
from system_calls import NO_FAULT, Course, Fault, Watch, watch_process

from builders import ORDERS, seal_pending, write_partition
from ice import open_ice
from lakebed.opening import adopt_migrated
from lakebed.registry.files.footers import migrate_footers
from lakebed.registry.migrate import migrate_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from conftest import Databases
    from lakebed.lake import Lake

NEXT = 90


@contextmanager
def setting(
    databases: Databases, kind: str, directory: Path, name: str, *, after_run: Callable[[], object] = lambda: None
) -> Iterator[Sweep]:
    scene = ALL[name]
    with staged(databases, kind, directory, scene.fill) as new:
        stage = make_old(new, databases.new_empty(kind)) if scene.is_migration else new
        yield Sweep(name, stage, after_run)
        if scene.is_migration:
            databases.drop(stage.url)


@dataclass(slots=True)
class Sweep:
    """Strikes the action of one scene at any of its calls, each time on the same lake."""

    name: str
    stage: Stage
    after_run: Callable[[], object] = lambda: None  # before anything is judged
    tally: Counter[str] = field(default_factory=Counter)

    @property
    def scene(self) -> Scene:
        return ALL[self.name]

    def list_calls(self, *, sends: bool, files: bool = True) -> list[str]:
        """Those of an undisturbed run, in which everything must succeed."""
        with self.stage.again() as url:
            course = self._run(url, sends=sends, files=files)
            assert {outcome for _, outcome, _ in course.reports} == {DONE}, course.reports
            self.judge(course, url)
        return course.calls

    def strike(self, at: int, fault: Fault, *, sends: bool, files: bool = True) -> Course:
        """What is left of the lake must be right, also where there is no such call."""
        with self.stage.again() as url:
            course = self._run(url, at=at, fault=fault, sends=sends, files=files)
            try:
                self.judge(course, url)
            except Exception as exc:
                exc.add_note(f"{self.name}: {fault.name} at call {at}, {course.struck}; reported: {course.reports}")
                raise
        self.tally.update([fault.name, *(f"{what}: {outcome}" for what, outcome, _ in course.reports)] if course.struck else [])
        return course

    def _run(self, url: str, *, at: int = 0, fault: Fault = NO_FAULT, sends: bool, files: bool) -> Course:
        body = partial(live, name=self.name, url=url, warehouse=str(self.stage.warehouse))
        course = watch_process(body, Watch(roots=self._roots(url) if files else (), sends=sends), at=at, fault=fault)
        self.after_run()
        return course

    def judge(self, course: Course, url: str) -> None:
        """The child told the truth, nothing is lost or there twice, and the lake goes on."""
        assert course.exit_code in (0, -signal.SIGKILL), f"the process ended with {course.exit_code}"
        stated: dict[str, str] = {what: outcome for what, outcome, _ in course.reports}
        if self.scene.is_migration:
            migrate_registry(url)
            adopt_migrated(url, str(self.stage.warehouse))
        with self.stage.opened(url, at=self.scene.recovered_at) as lake:
            lake.files.recover()
            found = read_ids(lake)
            self._compare(found, stated)
            require_no_strays(lake)
            write_partition(lake, NEXT)
            require_iceberg_equals(lake, found | ids_of(NEXT))
            migrate_footers(lake.registry)
            report = lake.check(deep=True)
            assert report.clean, report.findings

    def _compare(self, found: frozenset[int], stated: Mapping[str, str]) -> None:
        expected = self._base()
        for what, effect in self.scene.effects.items():
            happened, outcome = effect.is_in(found), stated.get(what)
            if outcome == DONE:
                assert happened, f"{what} was acknowledged and is lost"
            elif outcome not in (None, UNKNOWN):
                assert not happened, f"{what} raised {outcome} and happened"
            if happened:
                expected = (expected | effect.adds) - effect.removes
        assert found == expected

    def _base(self) -> frozenset[int]:
        return ids_of(2) | ids_of(3) | (frozenset() if self.name == "commit" else ids_of(1))

    def _roots(self, url: str) -> tuple[str, ...]:
        """The warehouse, and on SQLite every file of the registry."""
        registry = (url.removeprefix("sqlite:///").removesuffix("db"),) if url.startswith("sqlite") else ()
        return (str(self.stage.warehouse), *registry)

    def __str__(self) -> str:
        return f"{self.name}: " + ", ".join(f"{number} {what}" for what, number in sorted(self.tally.items()))


def strike_everywhere(sweep: Sweep, fault: Fault, *, every: int = 1, sends: bool, files: bool = True) -> None:
    """All failures together: one run of hours should show them all."""
    at, failures, goes_on = 1, list[str](), True
    while goes_on:
        try:
            goes_on = sweep.strike(at, fault, sends=sends, files=files).struck is not None
        except Exception:  # noqa: BLE001 - shown below
            failures.append(traceback.format_exc())
        at += every
    print(f"{sweep} (every {every} calls)")  # noqa: T201 - the figures of a full run
    assert not failures, f"{len(failures)} failures; the first:\n" + "\n\n".join(failures[:3])


def read_ids(lake: Lake) -> frozenset[int]:
    """The rows of the visible files; none may be there twice."""
    found = [value for f in lake.files.list(str(ORDERS)) for value in pq.ParquetFile(f.file_path).read(["id"])["id"].to_pylist()]
    assert len(set(found)) == len(found), "rows are there twice"
    return frozenset(found)


def require_no_strays(lake: Lake) -> None:
    known = {row[0] for row in lake.registry.query("SELECT file_path FROM table_files")}
    assert {str(path) for path in Path(lake.storage.paths.root).rglob("*.parquet")} <= known


def require_iceberg_equals(lake: Lake, wanted: frozenset[int]) -> None:
    seal_pending(lake.registry)
    with closing(open_ice(lake)) as ice:
        ice.committer.advance(ice.table_id())
        verified = ice.committer.verify(ice.table_id())
        assert verified is not None
        assert verified.clean, verified
        found = ice.static().scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
        assert sorted(found) == sorted(wanted)
    assert read_ids(lake) == wanted


def pick(points: int, *, out_of: int, seed: str) -> list[int]:
    """Different numbers from 1 to `out_of`, spread evenly, the same in every run."""
    step = max(1, out_of // max(1, points))
    shift = zlib.crc32(seed.encode()) % step
    return sorted({min(out_of, 1 + shift + step * number) for number in range(points)})
