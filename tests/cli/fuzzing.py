"""Invalid arguments, the same for the same seed."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from shells import NAME, VIEW

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

TEXTS = (
    "", " ", NAME, VIEW, "shop.nothing", "shop", ".", "..", "a.b.c", "../../evil", "shop.or'ders", 'shop."orders"', "shop.orders; DROP TABLE tables",
    "Shop.Orders", "sh\u00f6p.orders", "shop.\u202eorders", "x" * 5000, "shop.orders\n", "\t", "--", "-", "%s", "{}", "$(true)", "*", "null",
    "global", "0" * 64, "\u0000", "\ud83d\ude00.x", "1h", "0s", "iceberg_updater",
)  # fmt: skip
NUMBERS = (
    "-1", "0", "1", "7", "1e3", "1_000", "9" * 40, "0x10", "nan", "inf", "-inf", "1e308", "1.5", "\u0663", "", "x", "9223372036854775807",
    "9223372036854775808", "1000000",
)  # fmt: skip
TIMES = (
    "2026-01-01", "2026-01-01T00:00:00Z", "2100-01-01T00:00:00.123456+05:30", "0001-01-01", "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999999", "9999-12-31T23:59:59-14:00", "10000-01-01", "2026-13-01", "yesterday", "", "1700000000", "2026-02-30",
    "2026-01-01T25:00", "2026-W01-1", "\u0662026-01-01",
)  # fmt: skip
PLACES = (
    "",
    "nowhere",
    "mysql://x/y",
    "sqlite://",
    "sqlite:///",
    "sqlite:///nowhere/lake.db",
    "postgresql://",
    "file:///",
    "\u0000",
    "s3://",
    "x" * 3000,
)
# Spark, or an end that never comes
NEVER = frozenset({"--follow", "-f", "--run", "--install-completion", "--show-completion", "--help"})
ALWAYS = {"views materialize": ["--dry-run"], "views regenerate": ["--dry-run"], "tables drop": ["--dry-run"]}


def draw_words(random: Random, name: str, command: Any, options: list[str]) -> list[str]:
    """The words after the command's name: most of what it needs, some of what it knows, now and then what it does not."""
    words: list[str] = []
    for param in command.params:
        given = [opt for opt in (*param.opts, *param.secondary_opts) if opt not in NEVER]
        if param.param_type_name == "argument":
            words += [_draw(random, param.name) for _ in range(random.choice((0, 1, 1, 1, 1, 1, 2)))]
        elif given and param.name not in {"registry", "warehouse"} and random.random() < (0.9 if param.required else 0.25):
            words += [random.choice(given), *([] if param.is_flag else [_draw(random, param.name)])]
    words += ALWAYS.get(name, [])
    if random.random() < 0.05:
        words.insert(random.randrange(len(words) + 1), random.choice(("--nothing", "-x", "--json=1", "\u0000")))
    return [*words, *_place(random, command, options)]


def draw_arguments(random: Random, parameters: list[str]) -> dict[str, Any]:
    """Of an SQL function: values of any type under names that it mostly knows."""
    names = [name for name in parameters if random.random() < 0.7]
    names += ["nothing"] if random.random() < 0.05 else []
    return {name: _value(random, name) for name in names}


_TEXTUAL = frozenset(
    {"table", "view", "instance", "schema_hash", "tag", "path", "paths", "component", "partition", "window", "directory", "file"}
)
# Right words among the wrong ones, so that half of the calls come further than their first argument
_LIKELY = {
    "table": (NAME, NAME, VIEW), "view": (VIEW,), "engine": ("duckdb", "polars", "pyiceberg"), "component": ("compactor",), "tag": ("audit",),
    **dict.fromkeys(("begin", "insert_begin"), TIMES[:1]), **dict.fromkeys(("end", "insert_end"), TIMES[2:3]), "directory": (".",),
}  # fmt: skip


def _draw(random: Random, name: str | None) -> str:
    text = name or ""
    if random.random() < 0.6:
        likely = _LIKELY.get(text, () if text in _TEXTUAL else ("0", "1", "7"))
        if likely:
            return random.choice(likely)
    pools = [TEXTS, NUMBERS, TIMES]
    if random.random() < 0.75:
        pools = [TIMES] if text in {"begin", "end", "insert_begin", "insert_end", "as_of"} else [TEXTS] if text in _TEXTUAL else [NUMBERS]
    return random.choice(random.choice(pools))


def _place(random: Random, command: Any, options: list[str]) -> list[str]:
    known = {opt for param in command.params for opt in param.opts}
    given = {options[0]: options[1], options[2]: options[3]}
    if random.random() < 0.04:
        given[random.choice(list(given))] = random.choice(PLACES)
    return [word for option, value in given.items() if option in known for word in (option, value)]


def _value(random: Random, name: str) -> Any:
    usual: Mapping[str, Any] = {"view_set_name": NAME, "view_instance_id": "global", "dry_run": True, "atomic": False}
    moments = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1), datetime.max, datetime.min, date(2026, 1, 1), date.max)  # noqa: DTZ001, DTZ901 - what others give
    if name in usual and random.random() < 0.6:
        return usual[name]
    pool: tuple[Any, ...] = random.choice(
        (TEXTS, TIMES, moments, (0, -1, 1, 1 << 70, 2.5, float("nan"), True, False), (None, b"x", [], {}, object(), (1,)))
    )
    return random.choice(pool)
