"""The Spark session: built once when it is first needed, or adopted from the caller and checked."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULTS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default, INT96, has no statistics and no place in Iceberg
    "spark.sql.parquet.fieldId.read.enabled": "false",  # filters are pushed by name: reading by id answers wrongly
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",  # explicit paths are known to exist: no listing job
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class SparkSource:
    """Where the session comes from. Nothing of Spark starts before `spark` is asked for."""

    def __init__(self, given: SparkSession | None = None, *, options: Mapping[str, str] | None = None) -> None:
        self._given, self._options = given, dict(options or {})
        self._built: SparkSession | None = None
        self._guard = threading.Lock()

    @property
    def spark(self) -> SparkSession:
        if self._given is not None:
            return self._given
        with self._guard:
            if self._built is None:
                self._built = self._build()
            return self._built

    def _build(self) -> SparkSession:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName("lakebed")
        for key, value in {"spark.master": "local[*]", **_DEFAULTS, **self._options}.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
