"""Parquet, CSV and JSON files as a DataFrame for `insert`: CSV and JSON get the types of the table's columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import types as T  # noqa: N812 - everybody's name for it

from lakebed.core.errors import InvalidValueError, PathRefusedError
from lakebed.pipeline.rows.types import to_spark_nullable
from lakebed.pipeline.spark.errors import spark_translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, DataFrameReader

    from lakebed.pipeline.context import Context
    from lakebed.registry.tables.lake_tables import LakeTable

InputFormat = Literal["parquet", "csv", "json"]
_MEANS_SOMETHING = re.compile(r"[{}\[\]*?\\,]")
# A value that is not of its type ends the insert, instead of becoming NULL; a time without a zone is UTC
_STRICT = {"mode": "FAILFAST", "timeZone": "UTC"}
_CSV = {**_STRICT, "multiLine": "true", "escape": '"', "enforceSchema": "false"}  # quotes and line breaks as in RFC 4180


def read_input(
    context: Context, table: LakeTable, paths: Sequence[str], *, kind: InputFormat, header: bool = True, evolve: bool = False
) -> DataFrame:
    """The rows of these files. `header`: the first line of a CSV file names its columns; without it they are the table's, in order.

    `evolve`: columns of a CSV file that the table lacks get the type that all their values have; otherwise they are text.
    """
    spelled = [_spell(path) for path in paths]
    with spark_translated(f"reading {', '.join(paths)[:200]}"):
        match kind:
            case "parquet":
                # without it the columns of one file stand for all
                return context.spark.read.options(mergeSchema="true").parquet(*spelled)
            case "csv":
                return _read_csv(context, table, spelled, header=header, evolve=evolve)
            case "json":
                found = _reader(context, _STRICT).json(spelled).schema
                return _reader(context, _STRICT).schema(_typed_all(found, _wanted(table))).json(spelled)


def _spell(path: str) -> str:
    """Spark takes paths for patterns, and escapes are lost on the way to the readers of CSV and JSON."""
    if _MEANS_SOMETHING.search(path):
        raise PathRefusedError(path, reason="Spark cannot read a path with one of {}[]*?,\\ in it: rename the file")
    return path.replace("s3://", "s3a://", 1) if path.startswith("s3://") else path


def _read_csv(context: Context, table: LakeTable, paths: list[str], *, header: bool, evolve: bool) -> DataFrame:
    found = _reader(context, _CSV, header=header, inferSchema=header and evolve).csv(paths).schema
    wanted = _typed_all(found, _wanted(table)) if header else _first_columns(table, len(found.fields))
    return _reader(context, _CSV, header=header).schema(wanted).csv(paths)


def _reader(context: Context, options: dict[str, str], **more: Any) -> DataFrameReader:
    return context.spark.read.options(**options, **more)


def _wanted(table: LakeTable) -> T.StructType:
    return to_spark_nullable(table.schema)


def _first_columns(table: LakeTable, count: int) -> T.StructType:
    wanted = _wanted(table)
    if count != len(wanted.fields):
        message = f"the file has {count} columns and {table.name} has {len(wanted.fields)}: add a line with their names, and leave out --no-header"
        raise InvalidValueError(message)
    return wanted


def _typed_all(found: T.StructType, wanted: T.StructType) -> T.StructType:
    """The columns that were found, with the types of the table's columns of the same name; the others as they were found."""
    known = {field.name.lower(): field.dataType for field in wanted.fields}
    return T.StructType([T.StructField(f.name, _typed(f.dataType, known.get(f.name.lower()))) for f in found.fields])


def _typed(found: T.DataType, wanted: T.DataType | None) -> T.DataType:
    match found, wanted:
        case _, None:
            return found
        case T.StructType(), T.StructType():
            return _typed_all(found, wanted)
        case T.ArrayType(), T.ArrayType():
            return T.ArrayType(_typed(found.elementType, wanted.elementType))
        case _:
            return wanted
