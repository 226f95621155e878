"""Proofs that every row of a file matches: never claimed wrongly, and claimed where statistics or paths prove it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import LONG, fresh_name, op_id, publish
from lakebed.core.files import ColumnStatistics, Footer, NewFile
from lakebed.core.schema import bounds
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.pipeline.read.planning import ScanRequest, resolve_scan
from lakebed.pipeline.read.strict import find_fully_matching, list_strict_metrics
from lakebed.pipeline.spark.zone import Zone
from lakebed.pipeline.sql.filters import parse_where
from lakebed.registry.partitions.replace import list_holders
from lakebed.registry.queries.plans import read_plan
from lakebed.registry.tables.lake_tables import LakeTable, TableSpec, create_table
from lakebed.registry.tables.view_sets import list_live_files
from lakebed.storage.partition_paths import encode_partition_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.registry.registry import Registry

STRING = Primitive(name="string")
SCHEMA = Schema(fields=(Field(field_id=1, name="n", type=LONG), Field(field_id=2, name="k", type=STRING)))
UTC = Zone.parse("UTC")
Values = list[int | None]
TESTS: dict[str, Callable[[int | None], bool]] = {
    "n < 3": lambda n: n is not None and n < 3,
    "3 > n": lambda n: n is not None and n < 3,
    "n <= 3": lambda n: n is not None and n <= 3,
    "n > 3": lambda n: n is not None and n > 3,
    "n >= 3": lambda n: n is not None and n >= 3,
    "n = 3": lambda n: n == 3,
    "n <=> 3": lambda n: n == 3,
    "n BETWEEN 2 AND 4": lambda n: n is not None and 2 <= n <= 4,
    "n BETWEEN 4 AND 2": lambda _: False,
    "n IN (3)": lambda n: n == 3,
    "n IN (2, 4)": lambda n: n in {2, 4},
    "n IS NULL": lambda n: n is None,
    "n IS NOT NULL": lambda n: n is not None,
    "NOT n IS NULL": lambda n: n is not None,
    "n != 3": lambda n: n is not None and n != 3,
    "NOT n < 3": lambda n: n is not None and n >= 3,
    "n < 2.5": lambda n: n is not None and n < 3,
    "n = 2.5": lambda _: False,
    "n < 2 OR n > 4": lambda n: n is not None and (n < 2 or n > 4),
    "n + 1 < 4": lambda n: n is not None and n < 3,
    "true": lambda _: True,
    "false": lambda _: False,
    "n < NULL": lambda _: False,
}


def file_of(values: Values, key: str | None = None) -> NewFile:
    known = [n for n in values if n is not None]
    low, high = (min(known), max(known)) if known else (None, None)
    statistics = ColumnStatistics(
        field_id=1,
        null_count=len(values) - len(known),
        value_count=len(values),
        lower=None if low is None else bounds.lower_bound(LONG, low),
        upper=None if high is None else bounds.upper_bound(LONG, high),
        lower_coordinate=None if low is None else bounds.coordinate(LONG, low),
        upper_coordinate=None if high is None else bounds.coordinate(LONG, high),
    )
    path = f"/warehouse/shop/t-1/data/{op_id()}/part-0.parquet"
    footer = Footer(tail=b"PAR1", num_rows=len(values), checksum="0" * 64)
    return NewFile(
        path=path, size_bytes=100, row_count=len(values), checksum="0" * 64, footer=footer, columns=(statistics,),
        partition_path="" if key is None else encode_partition_path([("k", key)]),
    )  # fmt: skip


def find(registry: Registry, table: LakeTable, where: str) -> frozenset[str]:
    request = ScanRequest(name=table.name, find=lambda found: parse_where(where).find_filter(found.schema, UTC))
    with registry.read() as reader:
        scan = resolve_scan(reader, request, table)
        plan = read_plan(reader, table.name, ranges=scan.used.ranges, nulls=scan.used.nulls, partition_paths=scan.partition_paths)
        holders = list_holders(reader, table.table_id, plan.paths)
        files = [f for f in list_live_files(reader, [h.partition_id for h in holders]) if f.path in set(plan.paths)] if holders else []
        return find_fully_matching(reader, request, scan, list_strict_metrics(parse_where(where), table, UTC), files)


@settings(max_examples=40)
@given(data=st.data())
def test_a_proven_file_holds_no_row_that_must_stay(registry: Registry, data: st.DataObject) -> None:
    table = create_table(registry, TableSpec(name=fresh_name(), schema=SCHEMA, index=data.draw(st.sampled_from([(), ("n",)]))))
    contents = data.draw(st.lists(st.lists(st.none() | st.integers(0, 6), min_size=1, max_size=4), min_size=1, max_size=5))
    wheres = data.draw(st.lists(st.sampled_from(sorted(TESTS)), min_size=1, max_size=2))
    files = [file_of(values) for values in contents]
    publish(registry, table, *files)

    proven = find(registry, table, " AND ".join(f"({where})" for where in wheres))

    for file, values in zip(files, contents, strict=True):
        if file.path in proven:
            assert all(TESTS[where](n) for where in wheres for n in values)


@pytest.mark.parametrize(
    ("where", "proven"),
    [
        ("n >= 0", {"low", "high", "seven"}),
        ("n < 10", {"low", "seven"}),
        ("n BETWEEN 10 AND 20", {"high"}),
        ("n >= 10 AND n <= 19 AND true", {"high"}),
        ("n IS NOT NULL", {"low", "high", "seven"}),
        ("n IS NULL", {"none"}),
        ("n = 7", {"seven"}),
        ("k = 'a'", {"low", "none"}),
        ("k IN ('a', 'b')", {"low", "high", "none", "seven"}),
        ("k = 'a' AND n < 10", {"low"}),
        ("k >= 'a'", set()),
        ("n >= 0 AND length(k) > 0", set()),
        ("true", {"low", "high", "mixed", "none", "seven"}),
    ],
)
def test_statistics_and_identity_paths_prove_whole_files(registry: Registry, where: str, proven: set[str]) -> None:
    table = create_table(registry, TableSpec(name=fresh_name(), schema=SCHEMA, partition_by=("k",), index=("n",)))
    files = {
        "low": file_of([1, 5, 9], "a"),
        "high": file_of([10, 19], "b"),
        "mixed": file_of([None, 50], "c"),
        "none": file_of([None], "a"),
        "seven": file_of([7, 7], "b"),
    }
    publish(registry, table, *files.values())

    assert {name for name, file in files.items() if file.path in find(registry, table, where)} == proven
