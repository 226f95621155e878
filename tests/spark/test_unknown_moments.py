"""`read`, `sql` and `explain` refuse an `as_of` that names no state, as `plan` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from builders import ORDERS, make_table, write_partition
from lakebed.core.errors import LakebedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.lake import Lake

NAME = str(ORDERS)
TIMES = {"2013-01-01": "had no file yet", "2999-01-01": "is in the future", "soon": "invalid time"}
NUMBERS: dict[Any, str] = {0: "is not a journal number", 10_000: "cannot be read", 1 << 50: "keeps no snapshot", True: "is not a journal"}


@pytest.fixture
def filled(spark_lake: Lake) -> Lake:
    make_table(spark_lake.registry)
    write_partition(spark_lake, 1)
    return spark_lake


def test_read_refuses_what_names_no_state(filled: Lake) -> None:
    for as_of, message in (TIMES | NUMBERS).items():
        with pytest.raises(LakebedError, match=message):
            filled.read(NAME, as_of=as_of)


@pytest.mark.parametrize("call", [lambda lake: lake.sql, lambda lake: lake.explain], ids=["sql", "explain"])
def test_a_query_refuses_what_names_no_state(filled: Lake, call: Callable[[Lake], Callable[..., object]]) -> None:
    for as_of, message in (TIMES | {0: "only read as of a time", True: "only read as of a time"}).items():
        with pytest.raises(LakebedError, match=message):
            call(filled)(f"SELECT * FROM {NAME}", as_of=as_of)


@pytest.mark.parametrize("as_of", ["2999-01-01", "soon", 3])
def test_a_query_without_a_table_refuses_it_too(filled: Lake, as_of: Any) -> None:
    with pytest.raises(LakebedError, match=r"as_of|invalid time"):
        filled.sql("SELECT 1", as_of=as_of)
