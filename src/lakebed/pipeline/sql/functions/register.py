"""The list and retire functions as table functions of a Spark session: `SELECT * FROM list_partitions()`.

Lists are passed as Arrow. Functions that change something are called row by row, because only such functions
may stand in a lateral join: `FROM list_incompatible_partitions() p, LATERAL retire_partition_by_metadata(p.view_set_name, ...)`.
Such a query should not sort: Spark samples before it sorts, so the first run retires, and the second one finds the list empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.functions import arrow_udtf, udf, udtf
from pyspark.sql.types import BooleanType, DataType, LongType, StringType, StructField, StructType, TimestampType

from lakebed.core.errors import SessionRefusedError
from lakebed.pipeline.spark.errors import spark_translated
from lakebed.pipeline.sql.functions.answers import FUNCTIONS
from lakebed.pipeline.sql.functions.workers import answer_arrays, answer_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult, UserDefinedTableFunction

    from lakebed.pipeline.sql.functions.binding import Function

_TYPES: dict[pa.DataType, DataType] = {
    pa.int64(): LongType(),
    pa.string(): StringType(),
    pa.bool_(): BooleanType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
}


def register_functions(spark: SparkSession, lake_id: str) -> tuple[str, ...]:
    """Register every function of `FUNCTIONS` with the session, for the lake whose registry has this id. Return their names.

    A session whose workers cannot answer for that lake is refused before anything is registered: see `lakebed.pipeline.spark.environment`.
    Spark may run any of them twice, so each is idempotent.
    """
    with spark_translated("starting a Python worker for the SQL functions"):
        ((obstacle,),) = spark.range(1).select(udf(_worker_check(lake_id), "string", useArrow=False)("id")).collect()
    if obstacle is not None:
        message = (
            "the SQL functions were not registered, because the Python workers of this Spark session cannot answer for this lake: "
            f"{obstacle}; `lake.sql` answers the functions in its own process"
        )
        raise SessionRefusedError(message)
    return add_functions(spark, lake_id)


def add_functions(spark: SparkSession, lake_id: str) -> tuple[str, ...]:
    """`register_functions` without checking the workers. Each call compares the id with the lake that its worker opens."""
    for function in FUNCTIONS.values():
        make = _row_function if function.changes else _arrow_function
        spark.udtf.register(function.name, make(function, lake_id))
    return tuple(FUNCTIONS)


def _worker_check(lake_id: str) -> Callable[[int], str | None]:
    """Pickled by value, because workers may lack Lakebed. Returns why they cannot answer."""

    def check(_: int) -> str | None:
        try:
            from lakebed.pipeline.sql.functions.workers import find_obstacle  # noqa: PLC0415 - in the worker
        except ImportError as exc:
            return (
                f"they cannot import this version of Lakebed ({exc}): install it for their Python, "
                "or set PYSPARK_PYTHON to a Python that has it before the session starts"
            )
        return find_obstacle(lake_id)

    return check


def spark_schema(function: Function) -> StructType:
    """All columns are nullable: Spark compares the answer with this type column by column."""
    return StructType([StructField(field.name, _TYPES[field.type], nullable=True) for field in function.schema])


def _arrow_function(function: Function, lake_id: str) -> UserDefinedTableFunction:
    """The handler is part of the plan: it holds the function's name and the lake's id, and finds everything else where it runs."""
    name = function.name

    class ArrowHandler:
        def eval(self, *positional: Any, **named: Any) -> Iterator[Any]:
            yield answer_arrays(lake_id, name, positional, named)

    made: Any = arrow_udtf(ArrowHandler, returnType=spark_schema(function))
    return made  # type: ignore[no-any-return]


def _row_function(function: Function, lake_id: str) -> UserDefinedTableFunction:
    """Spark passes a TIMESTAMP as local wall time, like a TIMESTAMP_NTZ; which one it is, is known only during analysis."""
    name, schema = function.name, spark_schema(function)

    class RowHandler:
        def __init__(self, analyzed: Any) -> None:
            self._analyzed = analyzed

        @staticmethod
        def analyze(*positional: AnalyzeArgument, **named: AnalyzeArgument) -> AnalyzeResult:
            from lakebed.pipeline.sql.functions.types import describe_types  # noqa: PLC0415 - in the worker

            return describe_types(schema, positional, named)

        def eval(self, *positional: Any, **named: Any) -> Iterator[Any]:
            yield from answer_rows(lake_id, name, self._analyzed.fix(positional, named))

    made: Any = udtf(RowHandler)
    return made  # type: ignore[no-any-return]
