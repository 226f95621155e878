"""Statistics that are plausible and wrong: found by a deep check, read again by a repair."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders import ORDERS, make_table, write_partition, writing_path
from lakebed.parquet.schema.arrow import to_arrow

if TYPE_CHECKING:
    from lakebed.lake import Lake

WIDE = pa.schema(
    [
        ("small", pa.int32()),
        ("day", pa.date32()),
        ("single", pa.float32()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("yes", pa.bool_()),
        ("price", pa.decimal128(12, 2)),
        ("local", pa.timestamp("us")),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.float64())])),
    ]
)
FALSE_STATISTICS = {
    "a bound above the least value": ("UPDATE file_columns SET lower = upper WHERE field_id = 1", "outside the bounds"),
    "a bound below the greatest time": ("UPDATE file_columns SET upper = lower WHERE field_id = 2", "outside the bounds"),
    "a bound of doubles": ("UPDATE file_columns SET upper = lower WHERE field_id = 3", "outside the bounds"),
    "too few values": ("UPDATE file_columns SET value_count = value_count - 1 WHERE field_id = 1", "its statistics count 49"),
    "NULLs that are not there": ("UPDATE file_columns SET null_count = 1 WHERE field_id = 3", "its statistics count 1"),
}


@pytest.mark.parametrize("change", FALSE_STATISTICS)
def test_plausible_but_false_statistics_are_found_by_a_deep_check_and_repaired(change: str, lake: Lake) -> None:
    make_table(lake.registry)
    write_partition(lake, 1)
    sql, reported = FALSE_STATISTICS[change]
    lake.registry.transact(lambda tx: tx.run(sql), tables=[])

    shallow, deep = lake.check(), lake.check(deep=True)
    done = lake.repair(deep=True, dry_run=False)

    assert shallow.clean
    assert [(f.rule, f.table, reported in f.message) for f in deep.findings] == [("statistics_stale", str(ORDERS), True)]
    assert [(step.remedy, step.outcome) for step in done.steps] == [("recapture", "done")]
    assert lake.check(deep=True).clean


def test_wider_bounds_than_needed_and_no_bounds_are_correct(lake: Lake) -> None:
    make_table(lake.registry)
    write_partition(lake, 1)
    lake.registry.transact(lambda tx: tx.run("UPDATE file_columns SET lower = NULL, upper = NULL WHERE field_id = 1"), tables=[])
    lake.registry.transact(lambda tx: tx.run("UPDATE file_columns SET lower = :low WHERE field_id = 2", {"low": b""}), tables=[])

    assert lake.check(deep=True).clean


def test_statistics_of_every_type_agree_with_their_footers(lake: Lake) -> None:
    table = lake.create_table("shop.wide", WIDE)
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    rows = [
        {
            "small": n - 5,
            "day": moment.date(),
            "single": n / 7 - 0.5,
            "text": "é" * 80 + str(n),
            "raw": b"\xff" * n,
            "yes": n % 2 == 0,
            "price": Decimal(n - 4),
            "local": moment.replace(tzinfo=None),
            "tags": ["a"] * n,
            "place": {"x": -0.0 if n else None},
        }
        for n in range(9)
    ]
    rows.append(dict.fromkeys(WIDE.names))
    with lake.writing("shop.wide") as writing:
        pq.write_table(pa.Table.from_pylist(rows, schema=to_arrow(table.schema)), writing_path(writing.new_path()), row_group_size=3)
        writing.publish()

    assert lake.check(deep=True).clean
