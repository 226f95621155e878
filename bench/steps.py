"""What is measured, at which scale and in which order."""

from collections.abc import Mapping
from dataclasses import dataclass

BACKENDS = ("sqlite", "postgres")
CATALOGS = ("duckdb", "sqlite", "postgres")
WRITERS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The figures of the experiment. Only `full` is the one that the agreed figures speak of."""

    name: str
    commits: int  # of DuckLake, deltalake and bare SQL
    compared_commits: int  # where deltalake and PyIceberg are compared: the cost of PyIceberg's commit grows with their number
    sizes: tuple[int, ...]  # files in our table when single registrations are timed
    growth: tuple[int, int]  # two of them
    singles: int
    writers: int
    each_ours: int
    each_peer: int
    each_slow: int
    plan: tuple[int, ...]
    retire: int
    retire_ours: int  # half of them are retired
    journal: int
    follow: int
    rounds: int  # of the short groups; the median counts


FULL = Scale(
    name="full",
    commits=2_000,
    compared_commits=500,
    sizes=(10, 100, 500, 2_000, 10_000, 100_000),
    growth=(100, 100_000),
    singles=200,
    writers=8,
    each_ours=200,
    each_peer=50,
    each_slow=25,
    plan=(1_000, 10_000, 100_000),
    retire=1_000,
    retire_ours=200_000,
    journal=10_000,
    follow=400,
    rounds=3,
)
SMALL = Scale(
    name="small",
    commits=200,
    compared_commits=100,
    sizes=(10, 100, 200, 2_000),
    growth=(100, 2_000),
    singles=60,
    writers=8,
    each_ours=40,
    each_peer=10,
    each_slow=5,
    plan=(1_000, 5_000),
    retire=200,
    retire_ours=4_000,
    journal=500,
    follow=100,
    rounds=1,
)
SMOKE = Scale(
    name="smoke",
    commits=10,
    compared_commits=10,
    sizes=(10, 20),
    growth=(10, 20),
    singles=10,
    writers=8,
    each_ours=4,
    each_peer=2,
    each_slow=1,
    plan=(100, 200),
    retire=20,
    retire_ours=40,
    journal=20,
    follow=20,
    rounds=1,
)
SCALES = {scale.name: scale for scale in (FULL, SMALL, SMOKE)}


@dataclass(frozen=True, slots=True)
class Step:
    """One process: `python -m module name DIRECTORY option=value ...`."""

    module: str
    name: str
    options: Mapping[str, object]
    once: bool = False  # too slow, or too far from the figures, to be repeated

    @property
    def arguments(self) -> list[str]:
        return [f"{name}={value}" for name, value in self.options.items()]

    @property
    def label(self) -> str:
        return " ".join([self.module, self.name, *self.arguments])


@dataclass(frozen=True, slots=True)
class Group:
    """Steps that are compared with each other, so they run side by side; every second round in reverse order."""

    name: str
    steps: list[Step]
    rounds: int = 1

    def order(self, round_number: int) -> list[Step]:
        steps = [step for step in self.steps if round_number == 0 or not step.once]
        return steps[::-1] if round_number % 2 else steps


def list_groups(scale: Scale) -> list[Group]:
    return [
        Group("register", list_register(scale)),
        Group("concurrent", list_concurrent(scale), scale.rounds),
        Group("curve", [Step("ours", "curve", {"backend": b, "each": scale.each_ours}) for b in BACKENDS]),
        *(Group(f"plan {files}", list_plan(files)) for files in scale.plan),
        Group("retire", list_retire(scale), scale.rounds),
        Group("journal", [Step("ours", "journal", {"backend": b, "files": scale.journal, "singles": scale.singles}) for b in BACKENDS]),
        Group("follow", list_follow(scale), scale.rounds),
        Group("footer", list_footer(), scale.rounds),
        Group("footer table", [Step("ours", "footer_table", {"backend": b, "files": scale.plan[-1] // 10}) for b in BACKENDS]),
        Group("memory", [Step("ours", "memory", {"backend": b, "files": scale.plan[-1], "singles": scale.singles}) for b in BACKENDS]),
    ]


def list_register(scale: Scale) -> list[Step]:
    commits = {"commits": scale.commits}
    ours = {"sizes": ",".join(map(str, scale.sizes)), "singles": scale.singles}
    return [
        Step("peers.sql", "register", {"backend": "sqlite", **commits}),
        Step("peers.ducklake", "register", {"catalog": "duckdb", **commits}),
        Step("ours", "register", {"backend": "sqlite", **ours}),
        Step("peers.ducklake", "register", {"catalog": "sqlite", **commits}),
        Step("peers.ducklake", "register", {"catalog": "postgres", **commits}),
        Step("ours", "register", {"backend": "postgres", **ours}),
        Step("peers.sql", "register", {"backend": "postgres", **commits}),
        Step("peers.delta", "register", commits),
        Step("peers.iceberg", "register", {"commits": scale.compared_commits}),
    ]


def list_concurrent(scale: Scale) -> list[Step]:
    ours = {"writers": scale.writers, "each": scale.each_ours}
    peer = {"writers": scale.writers, "each": scale.each_peer}
    slow = {"writers": scale.writers, "each": scale.each_slow}
    return [
        Step("peers.sql", "concurrent", {"backend": "sqlite", **ours}),
        Step("ours", "concurrent", {"backend": "sqlite", **ours}),
        Step("peers.ducklake", "concurrent", {"catalog": "postgres", **peer}),
        Step("ours", "concurrent", {"backend": "postgres", **ours}),
        Step("peers.sql", "concurrent", {"backend": "postgres", **ours}),
        Step("ours", "concurrent", {"backend": "sqlite", **ours, "capture": 1}, once=True),
        Step("ours", "concurrent", {"backend": "postgres", **ours, "capture": 1}, once=True),
        Step("peers.delta", "concurrent", peer, once=True),
        Step("peers.iceberg", "concurrent", slow, once=True),
        Step("peers.ducklake", "concurrent", {"catalog": "sqlite", **slow}, once=True),
    ]


def list_plan(files: int) -> list[Step]:
    per_commit = {"files": files, "per_commit": 100 if files <= 10_000 else 1_000}
    return [
        Step("peers.sql", "plan", {"files": files}),
        Step("ours", "plan", {"backend": "sqlite", "files": files}),
        Step("peers.delta", "plan", per_commit),
        Step("ours", "plan", {"backend": "postgres", "files": files}),
        *(Step("peers.ducklake", "plan", {"catalog": catalog, "files": files}) for catalog in CATALOGS),
        Step("peers.iceberg", "plan", per_commit),
    ]


def list_retire(scale: Scale) -> list[Step]:
    files = {"files": scale.retire}
    many = {"files": scale.retire_ours, "tiny": 1}
    return [
        Step("peers.sql", "retire", files),
        Step("ours", "retire", {"backend": "sqlite", **files}),
        Step("peers.delta", "retire", files),
        Step("ours", "retire", {"backend": "postgres", **files}),
        Step("peers.iceberg", "retire", files, once=True),
        *(Step("peers.ducklake", "retire", {"catalog": catalog, **files}, once=True) for catalog in CATALOGS),
        Step("peers.delta", "retire", many, once=True),
        *(Step("ours", "retire", {"backend": backend, **many}, once=True) for backend in BACKENDS),
    ]


def list_follow(scale: Scale) -> list[Step]:
    return [
        Step("peers.follow", "sqlite", {"commits": scale.follow}),
        Step("ours", "follow", {"backend": "sqlite", "commits": scale.follow}),
        Step("peers.follow", "postgres", {"commits": scale.follow}),
        Step("ours", "follow", {"backend": "postgres", "commits": scale.follow}),
    ]


def list_footer() -> list[Step]:
    wide = {"columns": 20, "row_groups": 100}
    return [Step("peers.footers", "open", wide), *(Step("ours", "footer", {"backend": backend, **wide}) for backend in BACKENDS)]
