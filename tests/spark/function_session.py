"""Asks the SQL functions through Spark Connect, in a process of its own, and prints the answers as JSON.

`python function_session.py <remote> <id of the lake> <question>...`
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC

from pyspark.sql import SparkSession

from lakebed.core.errors import SessionRefusedError
from lakebed.pipeline.sql.functions.register import add_functions, register_functions


def open_session(remote: str) -> SparkSession:
    """In a zone that is not UTC: arguments and answers of a function must not depend on it."""
    spark = SparkSession.builder.remote(remote).getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    return spark


def ask(spark: SparkSession, question: str) -> object:
    """Rows as objects, or the sentence in which the error names itself."""
    try:
        return spark.sql(question).toArrow().to_pylist()
    except Exception as exc:  # noqa: BLE001 - Spark wraps what a worker raises
        return next((line for line in str(exc).splitlines() if "lakebed.core.errors" in line), str(exc)[:2000])


def ask_for_another(spark: SparkSession, lake_id: str, question: str) -> list[str]:
    """What a lake that the server does not serve gets: at registration, and at a call of functions that were registered all the same."""
    try:
        register_functions(spark, lake_id)
    except SessionRefusedError as exc:
        add_functions(spark, lake_id)
        return [str(exc), str(ask(spark, question))]
    return []


def main(remote: str, lake_id: str, questions: list[str]) -> None:
    spark = open_session(remote)
    another = ask_for_another(spark, "0" * 32, questions[1])
    names = register_functions(spark, lake_id)
    answers = [ask(spark, question) for question in questions]
    schemas = {name: spark.sql(f"SELECT * FROM {name}()").schema.simpleString() for name in names if name.startswith("list_")}
    told = {"answers": answers, "schemas": schemas, "another": another, "knows_registry": "LAKEBED_REGISTRY_URL" in os.environ}
    print(json.dumps(told, default=lambda moment: moment.astimezone(UTC).isoformat()))  # noqa: T201 - read by the test
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
