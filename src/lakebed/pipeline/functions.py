"""The list and retire functions as table functions of a Spark session: `SELECT * FROM list_partitions()`.

Lists travel as Arrow. Functions that change something are called row by row, because only such ones
may stand in a lateral join: `FROM list_incompatible_partitions() p, LATERAL retire_partition_by_metadata(p.view_set_name, ...)`.
Such a query should not sort: Spark samples before it sorts, so the first run retires, and the second one finds the list empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.functions import arrow_udtf, udtf
from pyspark.sql.types import BooleanType, DataType, LongType, StringType, StructField, StructType, TimestampType

from lakebed.pipeline.function_answers import FUNCTIONS, Function, answer, bind_arguments, find_function
from lakebed.pipeline.function_workers import answer_arrays, answer_rows, worker_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult, UserDefinedTableFunction

__all__ = ["FUNCTIONS", "Function", "answer", "bind_arguments", "find_function", "register_functions", "worker_environment"]

_TYPES: dict[pa.DataType, DataType] = {
    pa.int64(): LongType(),
    pa.string(): StringType(),
    pa.bool_(): BooleanType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
}


def register_functions(spark: SparkSession) -> tuple[str, ...]:
    """Make every function of `FUNCTIONS` known to the session, by name; the names.

    Their workers need LAKEBED_REGISTRY_URL (and LAKEBED_WAREHOUSE for paths) in their environment: see `worker_environment`.
    Spark may run any of them twice, so each is idempotent.
    """
    for function in FUNCTIONS.values():
        spark.udtf.register(function.name, _row_function(function) if function.changes else _arrow_function(function))
    return tuple(FUNCTIONS)


def spark_schema(function: Function) -> StructType:
    """Nullable throughout: Spark compares the answer with it column by column."""
    return StructType([StructField(field.name, _TYPES[field.type], nullable=True) for field in function.schema])


def _arrow_function(function: Function) -> UserDefinedTableFunction:
    """The handler travels with the plan: it holds the function's name, and finds the rest where it runs."""
    name = function.name

    class ArrowHandler:
        def eval(self, *positional: Any, **named: Any) -> Iterator[Any]:
            yield answer_arrays(name, positional, named)

    made: Any = arrow_udtf(ArrowHandler, returnType=spark_schema(function))
    return made  # type: ignore[no-any-return]


def _row_function(function: Function) -> UserDefinedTableFunction:
    """Spark hands a TIMESTAMP over as local wall time, just as a TIMESTAMP_NTZ: which one it was is known only while it analyses."""
    name, schema = function.name, spark_schema(function)

    class RowHandler:
        def __init__(self, analyzed: Any) -> None:
            self._analyzed = analyzed

        @staticmethod
        def analyze(*positional: AnalyzeArgument, **named: AnalyzeArgument) -> AnalyzeResult:
            from lakebed.pipeline.function_types import tell_types  # noqa: PLC0415 - in the worker

            return tell_types(schema, positional, named)

        def eval(self, *positional: Any, **named: Any) -> Iterator[Any]:
            yield from answer_rows(name, self._analyzed.fix(positional, named))

    made: Any = udtf(RowHandler)
    return made  # type: ignore[no-any-return]
