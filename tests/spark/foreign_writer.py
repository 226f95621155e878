"""Commits to a lake's tables with Iceberg's reference implementation, as another engine would, in a process of its own.

python foreign_writer.py JSON-LIST-OF-PLACES    inserts ten rows into shop.orders of each
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from reference_reader import OPTIONS, Place, reader_of


def main() -> None:
    builder = SparkSession.builder
    for key, value in OPTIONS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for given in json.loads(sys.argv[1]):
        session = reader_of(spark, Place(**given))
        rows = "SELECT id + 900 AS id, current_timestamp() AS ts, 1.0D AS amount, 'FR' AS country FROM range(10)"
        session.sql(f"INSERT INTO lakebed.shop.orders {rows}")


if __name__ == "__main__":
    main()
