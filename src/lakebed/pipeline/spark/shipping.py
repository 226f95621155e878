"""Functions that run on executors without Lakebed: their modules are pickled by value.

Such a module imports only others of this list and what every Spark worker has: the standard library, pyarrow, numpy.
No function in it has a cache: with `lru_cache`, pickle looks the function up by its name.
"""

from __future__ import annotations

from typing import TypeVar

from pyspark import cloudpickle

from lakebed.core.schema import decimals, murmur3
from lakebed.parquet.rewrite import row_hash, task_writer

Function = TypeVar("Function")

_BY_VALUE = (decimals, murmur3, row_hash, task_writer)


def ship(function: Function) -> Function:
    """`function`, ready to be passed to Spark; over Spark Connect it is pickled later, so the modules stay registered."""
    for module in _BY_VALUE:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return function
