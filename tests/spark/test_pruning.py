"""Pruned result == full result filtered: whatever is asked, no file with a wanted row is left out. Real files, no Spark job."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import fresh_name
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.transforms import resolve_transforms
from lakebed.core.schema.types import Field, Primitive
from lakebed.pipeline.context import Context
from lakebed.pipeline.read.planning import ScanRequest, plan_scan, plan_scans
from lakebed.pipeline.spark.session import SparkSource
from lakebed.pipeline.spark.zone import Zone
from lakebed.pipeline.sql.filters import Filter, parse_where, prune_paths
from lakebed.registry.connect import open_backend
from lakebed.registry.registry import Registry
from lakebed.registry.tables.lake_tables import read_table
from lakebed.storage.partition_paths import encode_partition_path
from lakebed.testing import SteppedBackend, Steps
from read_builders import make_events, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.core.names import TableName
    from lakebed.lake import Lake
    from lakebed.registry.tables.lake_tables import LakeTable

SCHEMA = Schema(
    fields=tuple(
        Field(field_id=number, name=name, type=Primitive.parse(kind))
        for number, (name, kind) in enumerate(
            {
                "id": "long",
                "ts": "timestamptz",
                "name": "string",
                "v": "double",
                "d": "date",
                "flag": "boolean",
                "m": "decimal(9,2)",
            }.items(),
            1,
        )
    )
)
START = datetime(2026, 1, 1, tzinfo=UTC)
Row = dict[str, Any]
Predicate = tuple[str, "Callable[[Row], bool]"]


def random_row(rng: random.Random) -> Row:
    row: Row = {
        "id": rng.choice([rng.randint(-20, 20), 2**53 + rng.randint(0, 2), -(2**63)]),
        "ts": START + timedelta(hours=rng.randint(0, 24 * 10), microseconds=rng.choice([0, 0, 1])),
        "name": rng.choice(["", "a", "ab", "abc", "b", "é", "z" * 70, "it's"]),
        "v": rng.choice([0.0, -0.0, 1.5, -3.25, 1e300, float("inf")]),
        "d": date(2026, 1, 1) + timedelta(days=rng.randint(0, 9)),
        "flag": rng.random() < 0.5,
        "m": Decimal(rng.randint(-999, 999)) / 100,
    }
    return {name: None if name != "ts" and rng.random() < 0.1 else value for name, value in row.items()}


@dataclass
class Lakeful:
    """A table and what is in each of its files."""

    lake: Lake
    table: LakeTable
    rows_of: dict[str, list[Row]]

    @property
    def rows(self) -> list[Row]:
        return [row for rows in self.rows_of.values() for row in rows]


def partition_path(row: Row, partition_by: tuple[str, ...]) -> str:
    pairs = []
    for transform, field in resolve_transforms(SCHEMA, partition_by):
        assert isinstance(field.type, Primitive)
        pairs.append((transform.name, transform.apply(row[field.name], field.type)))
    return encode_partition_path(pairs)


def fill(lake: Lake, name: TableName, partition_by: tuple[str, ...], *, seed: int, rows: int = 60) -> Lakeful:
    table, rng = make_events(lake, name, schema=SCHEMA, partition_by=partition_by, index=("id",)), random.Random(seed)
    made = sorted((random_row(rng) for _ in range(rows)), key=lambda row: row["ts"])
    rows_of: dict[str, list[Row]] = {}
    for start in range(0, rows, 20):
        groups: dict[str, list[Row]] = defaultdict(list)
        for number, row in enumerate(made[start : start + 20]):
            groups[partition_path(row, partition_by) or f"file {number // 5}"].append(row)
        files = [{f.name: [row[f.name] for row in group] for f in SCHEMA.fields} for group in groups.values()]
        paths = {number: path for number, path in enumerate(groups) if partition_by}
        done = write_rows(lake, name, *files, paths=paths)
        found = lake.registry.query(
            "SELECT file_path FROM table_files WHERE partition_id = :id ORDER BY file_path", {"id": done.partition_id}
        )
        rows_of |= dict(zip([row[0] for row in found], groups.values(), strict=True))
    return Lakeful(lake, table, rows_of)


PARTITIONED = [(), ("bucket(4, id)",), ("day(ts)", "name"), ("truncate(2, name)", "flag"), ("month(d)", "truncate(10, id)", "m")]


@pytest.fixture
def lakefuls(lake: Lake) -> list[Lakeful]:
    return [fill(lake, fresh_name(), partition_by, seed=number) for number, partition_by in enumerate(PARTITIONED)]


def literal(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case datetime():
            return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case float():
            return f"{value!r}D" if abs(value) < 1e10 else f"{value!r}"
        case _:
            return str(value)


def order(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def compared(name: str, operator: str, value: Any) -> Predicate:
    return f"{name} {operator} {literal(value)}", lambda row: row[name] is not None and COMPARE[operator](order(row[name]), order(value))


def listed(name: str, values: list[Any]) -> Predicate:
    return f"{name} IN ({', '.join(map(literal, values))})", lambda row: row[name] in values and row[name] is not None


def between(name: str, low: Any, high: Any) -> Predicate:
    return (
        f"{name} BETWEEN {literal(low)} AND {literal(high)}",
        lambda row: row[name] is not None and order(low) <= order(row[name]) <= order(high),
    )


def nullness(name: str, is_null: bool) -> Predicate:  # noqa: FBT001 - drawn
    return f"{name} IS {'' if is_null else 'NOT '}NULL", lambda row: (row[name] is None) == is_null


@st.composite
def predicates(draw: st.DrawFn) -> Predicate:
    name = draw(st.sampled_from([f.name for f in SCHEMA.fields]))
    rng = random.Random(draw(st.integers(0, 10**6)))
    known = [value for value in (random_row(rng)[name] for _ in range(12)) if value is not None and value != float("inf")]
    value, other = known[0], known[1]
    kinds = [listed(name, known[: draw(st.integers(1, 3))]), nullness(name, draw(st.booleans())), compared(name, "=", value)]
    if name != "flag":
        kinds += [compared(name, draw(st.sampled_from(["<", "<=", ">", ">="])), value), between(name, value, other)]
    return draw(st.sampled_from(kinds))


@st.composite
def questions(draw: st.DrawFn) -> Predicate:
    """Conjunctions, some with a part that nothing can be pruned by."""
    chosen = draw(st.lists(predicates(), min_size=1, max_size=3))
    either = draw(st.none() | st.tuples(predicates(), predicates()))
    if either is not None:
        (one, is_one), (two, is_two) = either
        chosen = [*chosen, (f"({one} OR {two})", lambda row: is_one(row) or is_two(row))]
    return " AND ".join(text for text, _ in chosen), lambda row: all(holds(row) for _, holds in chosen)


def plan(full: Lakeful, where: str) -> list[str]:
    request = ScanRequest(name=full.table.name, find=lambda table: parse_where(where).find_filter(table.schema, Zone.parse("UTC")))
    with full.lake.registry.read() as reader:
        table = read_table(reader, full.table.name)
        assert table is not None
        return plan_scan(reader, request, table).plan.paths


def shown(rows: list[Row]) -> list[str]:
    return sorted(map(repr, rows))


@settings(max_examples=60)
@given(scan=questions(), which=st.integers(0, len(PARTITIONED) - 1))
def test_the_pruned_result_is_the_full_result_filtered(lakefuls: list[Lakeful], scan: Predicate, which: int) -> None:
    full, (where, holds) = lakefuls[which], scan

    paths = plan(full, where)

    pruned = [row for path in paths for row in full.rows_of[path] if holds(row)]
    assert shown(pruned) == shown([row for row in full.rows if holds(row)]), (where, full.table.metadata.partition_by)


def test_an_exact_value_leaves_the_files_of_its_partition_alone(lakefuls: list[Lakeful]) -> None:
    buckets, days, truncated = lakefuls[1], lakefuls[2], lakefuls[3]

    assert {partition_path(row, ("bucket(4, id)",)) for path in plan(buckets, "id = 7") for row in buckets.rows_of[path]} <= {
        partition_path({"id": 7}, ("bucket(4, id)",))
    }
    assert {row["name"] for path in plan(days, "name IN ('a', 'b')") for row in days.rows_of[path]} <= {"a", "b"}
    assert {row["flag"] for path in plan(truncated, "flag = true AND name = 'abc'") for row in truncated.rows_of[path]} == {True}
    assert all(row["name"] is None for path in plan(days, "name IS NULL") for row in days.rows_of[path])
    assert len(plan(buckets, "id = 7")) < len(buckets.rows_of)


def test_paths_that_cannot_be_read_are_kept() -> None:
    transforms = resolve_transforms(SCHEMA, ("name",))
    conditions = parse_where("name = 'a'").find_filter(SCHEMA, Zone.parse("UTC")).conditions

    assert prune_paths(["name=a", "name=b", "no path", "other=b", ""], transforms, conditions) == ["name=a", "no path", "other=b", ""]
    assert prune_paths(["name=a"], transforms, conditions) is None
    assert prune_paths(["name=b"], transforms, conditions) == []
    assert prune_paths(["name=b"], transforms, Filter().conditions) is None


def test_null_has_a_partition_of_its_own() -> None:
    transforms, paths = resolve_transforms(SCHEMA, ("name",)), [encode_partition_path([("name", value)]) for value in (None, "", "a")]

    def left(where: str) -> list[str] | None:
        return prune_paths(paths, transforms, parse_where(where).find_filter(SCHEMA, Zone.parse("UTC")).conditions)

    assert left("name IS NULL") == paths[:1]
    assert left("name IS NOT NULL") == left("name >= ''") == paths[1:]
    assert left("name = ''") == paths[1:2]


def test_the_lease_is_held_before_anything_is_planned(url: str, lake: Lake) -> None:
    name = fresh_name()
    make_events(lake, name)
    steps = Steps()
    registry = Registry(SteppedBackend(open_backend(url), steps))
    context = Context(registry, lake.storage, SparkSource())

    plan_scans(context, [ScanRequest(name=name)])

    held = next(n for n, step in enumerate(steps.done) if "INTO lease_numbers" in step)
    planned = next(n for n, step in enumerate(steps.done) if "FROM table_files" in step)
    assert held < planned
    context.lease.close()
    registry.close()
