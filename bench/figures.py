"""The table "figures to reach", computed from the measurements of one run."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from steps import CATALOGS, WRITERS, Scale

FAIR = 1 / 3  # the slowest writer against the fastest


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row. As `ratio` it counts how many times better than the peer ours is; as `bound`, `ours` itself must stay below."""

    work: str
    kind: Literal["ratio", "bound"]
    unit: str
    ours: float | None
    peer: float | None
    ratio: float | None
    must: float
    steer: float
    limit: float | None
    limit_here: float | None  # bare SQL in the same run
    reached: bool
    note: str = ""


class Measurements:
    """Found by what they measure; the median when several rounds did."""

    def __init__(self, lines: Iterable[Mapping[str, Any]]) -> None:
        self._lines = list(lines)

    def find(self, peer: str, work: str, metric: str, **facts: object) -> float | None:
        wanted = {"peer": peer, "work": work, "metric": metric, **facts}
        values = [line["value"] for line in self._lines if all(line.get(name) == value for name, value in wanted.items())]
        return statistics.median(values) if values else None

    def list_all(self, peer: str, work: str, metric: str, fact: str = "value") -> list[float]:
        """Of every round: a guarantee is not a matter of the median."""
        return [line[fact] for line in self._lines if (line["peer"], line["work"], line["metric"]) == (peer, work, metric)]


def divide(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def best(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def compare(
    work: str,
    unit: str,
    ours: float | None,
    peer: float | None,
    goals: Sequence[float],
    bare: float | None,
    *,
    allowed: bool = True,
    note: str = "",
) -> Figure:
    """A ratio that must be at least `must`. Rates (`.../s`) are better when higher, times when lower."""
    rate = unit.endswith("/s")
    ratio = divide(ours, peer) if rate else divide(peer, ours)
    here = divide(bare, peer) if rate else divide(peer, bare)
    must, steer, limit = goals
    return Figure(
        work=work,
        kind="ratio",
        unit=unit,
        ours=ours,
        peer=peer,
        ratio=ratio,
        must=must,
        steer=steer,
        limit=limit,
        limit_here=here,
        reached=ratio is not None and ratio >= must and allowed,
        note=note,
    )


def bound(work: str, unit: str, ours: float | None, goals: Sequence[float | None], bare: float | None = None) -> Figure:
    """A value that must be at most `must`."""
    must, steer, limit = goals
    assert must is not None
    assert steer is not None
    return Figure(
        work=work,
        kind="bound",
        unit=unit,
        ours=ours,
        peer=None,
        ratio=None,
        must=must,
        steer=steer,
        limit=limit,
        limit_here=bare,
        reached=ours is not None and ours <= must,
    )


def compute(lines: Iterable[Mapping[str, Any]], scale: Scale) -> list[Figure]:
    found = Measurements(lines)
    return [
        *compute_register(found, scale),
        *compute_concurrent(found, scale),
        *compute_curve(found),
        *compute_plan(found, scale),
        *compute_retire(found, scale),
        *compute_follow(found),
        *compute_footer(found),
        *compute_memory(found),
    ]


def compute_register(found: Measurements, scale: Scale) -> list[Figure]:
    def p50(peer: str, n: int) -> float | None:
        return found.find(peer, "commit_only", "p50", n=n)

    many, few = scale.commits, scale.compared_commits
    ducklake = best(p50(f"ducklake_{catalog}", many) for catalog in CATALOGS)
    ours, bare = p50("lakebed_sqlite", few), p50("sqlite_full", few)
    low, high = scale.growth
    growth = divide(p50("lakebed_sqlite", high), p50("lakebed_sqlite", low))
    growth_postgres = divide(p50("lakebed_postgres", high), p50("lakebed_postgres", low))
    where = f"{high:,} / {low:,} files"
    return [
        compare(
            f"register one of {many:,}, DuckLake's best", "ms", p50("lakebed_sqlite", many), ducklake, (5, 15, 25), p50("sqlite_full", many)
        ),
        compare(
            f"register with capture, of {many:,}, DuckLake's best",
            "ms",
            found.find("lakebed_sqlite", "capture_commit", "p50", n=many),
            ducklake,
            (5, 15, 25),
            p50("sqlite_full", many),
            note="footer, statistics and SHA-256 of the file too",
        ),
        compare(f"register, deltalake at {few:,}", "ms", ours, p50("deltalake", few), (30, 100, 152), bare),
        compare(f"register, PyIceberg add_files at {few:,}", "ms", ours, p50("pyiceberg", few), (200, 800, 1270), bare),
        bound(f"growth of register, {where}, SQLite", "x", growth, (1.15, 1.05, 1.0)),
        bound(f"growth of register, {where}, PostgreSQL", "x", growth_postgres, (1.15, 1.05, 1.0)),
    ]


def compute_concurrent(found: Measurements, scale: Scale) -> list[Figure]:
    peer = found.find("ducklake_postgres", "concurrent", "rate")
    rows = []
    for backend, bare_peer, name, goals in (
        ("sqlite", "sqlite_full", "SQLite", (10, 30, 31)),
        ("postgres", "pg", "PostgreSQL", (8, 26, 26)),
        ("sqlite_capture", "sqlite_full", "SQLite with capture", (10, 30, 31)),
        ("postgres_capture", "pg", "PostgreSQL with capture", (8, 26, 26)),
    ):
        ours = f"lakebed_{backend}"
        lost = sum(found.list_all(ours, "concurrent", "lost"))
        failed = sum(found.list_all(ours, "concurrent", "rate", "failed"))
        doubled = sum(found.list_all(ours, "concurrent", "duplicates"))
        fairness = min(found.list_all(ours, "concurrent", "fairness"), default=0.0)
        bare = found.find(bare_peer, "concurrent", "rate")
        work = f"{scale.writers} writers on {name}, DuckLake on PostgreSQL"
        rate = found.find(ours, "concurrent", "rate")
        note = "" if rate is None else f"lost {lost:.0f}, failed {failed:.0f}, doubled {doubled:.0f}, worst fairness {fairness:.2f}"
        allowed = lost + failed + doubled == 0 and fairness >= FAIR
        rows.append(compare(work, "commits/s", rate, peer, goals, bare, allowed=allowed, note=note))
    return rows


def compute_curve(found: Measurements) -> list[Figure]:
    """Whether throughput holds from 1 to 32 processes: its best over that of the most."""
    rows = []
    for backend, name in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
        rates = {writers: found.find(f"lakebed_{backend}", "curve", "rate", writers=writers) for writers in WRITERS}
        known = {writers: rate for writers, rate in rates.items() if rate is not None}
        row = bound(
            f"best of 1 to {WRITERS[-1]} writers / {WRITERS[-1]} writers, {name}",
            "x",
            divide(max(known.values(), default=None), rates[WRITERS[-1]]),
            (2, 1.2, 1.0),
        )
        rows.append(replace(row, note=", ".join(f"{writers}: {rate:,.0f}/s" for writers, rate in known.items())))
    return rows


def compute_plan(found: Measurements, scale: Scale) -> list[Figure]:
    few, many = scale.plan[0], scale.plan[-1]

    def warm(peer: str, metric: str, n: int = many) -> float | None:
        return found.find(peer, "plan", f"{metric}_warm", n=n)

    ours = "lakebed_sqlite"
    point = {n: found.find(ours, "plan_point", "p50", n=n) for n in (few, many)}
    bare = {n: warm("sqlite_full", "point_rtree", n) for n in (few, many)}
    return [
        bound(f"plan a point of {many:,}, warm", "ms", point[many], (1, 0.3, 0.01), bare[many]),
        bound(f"growth of that, {few:,} to {many:,}", "x", divide(point[many], point[few]), (2, 1.2, 1.0), divide(bare[many], bare[few])),
        *(
            compare(
                f"plan {name} of {many:,}, warm deltalake",
                "ms",
                warm(ours, metric),
                warm("deltalake", metric),
                goals,
                warm("sqlite_full", metric),
            )
            for metric, name, goals in (("partition", "one partition", (15, 30, 35)), ("all", "all", (1.0, 1.5, 1.1)))
        ),
    ]


def compute_retire(found: Measurements, scale: Scale) -> list[Figure]:
    """Beside the peers' own size, half of many: what a nightly retention meets. The goals were set for the small one."""

    def rate(peer: str, metric: str, files: int) -> float | None:
        return found.find(peer, "retire", metric, n=files)

    works = (
        ("metadata", "retire, deltalake", scale.retire, (4, 7, 8)),
        ("physical", "clean up, deltalake's vacuum", scale.retire, (1.2, 1.7, 1.9)),
        ("metadata", f"retire {scale.retire_ours // 2:,}, deltalake", scale.retire_ours, (4, 7, 8)),
        ("physical", f"clean up {scale.retire_ours // 2:,}, deltalake's vacuum", scale.retire_ours, (1.2, 1.7, 1.9)),
    )
    return [
        compare(work, "files/s", rate("lakebed_sqlite", metric, n), rate("deltalake", metric, n), goals, rate("sqlite_full", metric, n))
        for metric, work, n, goals in works
    ]


def compute_follow(found: Measurements) -> list[Figure]:
    rows = []
    for backend, name, peer, way, goals in (
        ("sqlite", "SQLite", "sqlite_full", "poll_1ms", {50: (2, 1, 0.7), 99: (5, 2, 1.2)}),
        ("postgres", "PostgreSQL", "pg", "listen_notify", {50: (3, 1.5, 1.3), 99: (8, 4, 3.0)}),
    ):
        bare = {rank: found.find(peer, "follow", f"{way}_p{rank}") for rank in goals}
        for suffix, since in (("_after_commit", "commit"), ("", "begin of the transaction")):
            for rank, goal in goals.items():
                ours = found.find(f"lakebed_{backend}", "follow", f"p{rank}{suffix}")
                rows.append(bound(f"{since} to consumer p{rank}, {name}", "ms", ours, goal, bare[rank]))
    return rows


def compute_footer(found: Measurements) -> list[Figure]:
    wide = {"cols": 20, "rg": 100}
    ours = found.find("lakebed_sqlite", "footer", "p10", **wide)
    plain = found.find("pyarrow", "footer", "open_plain", **wide)
    bare = found.find("pyarrow", "footer", "open_with_metadata", **wide)
    return [compare("open with the cached footer, pyarrow", "ms", ours, plain, (15, 20, 21), bare)]


def compute_memory(found: Measurements) -> list[Figure]:
    return [
        bound("memory of a committing process", "MB", found.find("lakebed_sqlite", "memory", "commit"), (150, 110, None)),
        bound("memory of planning all", "MB", found.find("lakebed_sqlite", "memory", "plan"), (200, 150, None)),
    ]


def render(figures: Sequence[Figure]) -> str:
    """An aligned table; `here` is what bare SQL reached in the same run."""
    heads = ("work", "unit", "ours", "peer", "ratio", "must", "steer", "limit", "here", "reached", "")
    rows = [heads, *(render_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column in {0, 1, 10} else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def render_row(figure: Figure) -> tuple[str, ...]:
    numbers = (figure.ours, figure.peer, figure.ratio, figure.must, figure.steer, figure.limit, figure.limit_here)
    measured = figure.ratio if figure.kind == "ratio" else figure.ours
    state = "missing" if measured is None else "yes" if figure.reached else "NO"
    return (figure.work, figure.unit, *("-" if number is None else f"{number:,.4g}" for number in numbers), state, figure.note)
