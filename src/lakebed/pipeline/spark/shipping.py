"""Functions that run on executors, which need the warehouse and no Lakebed: the modules behind them are pickled by value.

Such a module imports nothing but others of this list, and what every worker of Spark has: the standard library, pyarrow, numpy.
No cache stands around a function in it: `lru_cache` makes pickle look for the function by its name.
"""

from __future__ import annotations

from typing import TypeVar

from pyspark import cloudpickle

from lakebed.core.schema import decimals, murmur3
from lakebed.parquet.rewrite import row_hash, task_writer

Function = TypeVar("Function")

_BY_VALUE = (decimals, murmur3, row_hash, task_writer)


def ship(function: Function) -> Function:
    """`function`, to be handed to Spark; over Spark Connect it is pickled later, so the modules stay registered."""
    for module in _BY_VALUE:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return function
