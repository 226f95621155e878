"""The kept results of the benchmark: the newest run of each kind, and what of its aims was missed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from docs_pages.tables import number

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REGISTRY_RUNS = ("registry", "register", "concurrent", "curve", "retire")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One file of results."""

    name: str
    content: dict[str, Any]

    @property
    def figures(self) -> list[dict[str, Any]]:
        figures: list[dict[str, Any]] = self.content.get("figures") or self.content.get("results") or []
        return figures

    @property
    def moment(self) -> tuple[str, str]:
        return self.content.get("date") or "", self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """An aim that the newest run of its work did not reach."""

    work: str
    measured: str
    aim: str
    run: str


def list_runs(root: Path, prefix: str) -> list[Run]:
    """The newest first."""
    paths = (root / "bench/results").glob(f"{prefix}-20*.json")
    return sorted((Run(name=path.name, content=json.loads(path.read_text())) for path in paths), key=lambda run: run.moment, reverse=True)


def newest_run(root: Path, prefix: str) -> Run:
    return list_runs(root, prefix)[0]


def newest_measurements(root: Path) -> dict[str, tuple[Run, dict[str, Any]]]:
    """Of each work in the registry's runs the newest figure; runs of a part count like whole ones."""
    runs = sorted((run for prefix in REGISTRY_RUNS for run in list_runs(root, prefix)), key=lambda run: run.moment)
    return {one["work"]: (run, one) for run in runs for one in run.figures if one.get("ours") is not None}


def list_missed(root: Path) -> list[Missed]:
    return [*_missed_by_registry(root), *_missed_by_spark(root), *_missed_by_delivery(root), *_missed_by_compaction(root)]


def _missed_by_registry(root: Path) -> Iterator[Missed]:
    for work, (run, one) in newest_measurements(root).items():
        if not one["reached"]:
            is_ratio = one["ratio"] is not None
            value, unit = (one["ratio"], "times") if is_ratio else (one["ours"], one["unit"])
            yield Missed(work=work, measured=f"{number(value)} {unit}", aim=f"{one['must']} {unit}", run=run.name)


def _missed_by_spark(root: Path) -> Iterator[Missed]:
    for run in (newest_run(root, prefix) for prefix in ("pipeline", "parted", "service")):
        for one in run.figures:
            if isinstance(one.get("must"), float | int) and one.get("ratio", 0) > one["must"] and one["work"] != "merge":
                yield Missed(work=one["work"], measured=number(one["ratio"]), aim=f"at most {one['must']}", run=run.name)


def _missed_by_delivery(root: Path) -> Iterator[Missed]:
    run = newest_run(root, "astha")
    for one in run.figures:
        if one.get("group") == "latency" and not one["reached"]:
            measured, aim = f"{number(one['p50_ms'])} / {number(one['p99_ms'])} ms", f"{one['must_p50_ms']} / {one['must_p99_ms']} ms"
            yield Missed(work=f"{one['work']}, {one['database']}", measured=measured, aim=aim, run=run.name)


def _missed_by_compaction(root: Path) -> Iterator[Missed]:
    run = newest_run(root, "compaction")
    work = ""
    for one in run.figures:
        if "engine" in one:
            work = f"compact {one['files']:,} files, {one['mb_out']:,.0f} MB"
            continue
        if one["speed_ratio"] < one["speed_must"]:
            aim = f"{one['speed_must']} times {one['best_peer']}"
            yield Missed(work=f"{work}, speed", measured=f"{one['speed_ratio']:.2f} times", aim=aim, run=run.name)
        if one["memory_ratio"] > one["memory_must"]:
            aim = f"at most {one['memory_must']:.2f} times deltalake"
            yield Missed(work=f"{work}, memory", measured=f"{one['memory_ratio']:.2f} times", aim=aim, run=run.name)
