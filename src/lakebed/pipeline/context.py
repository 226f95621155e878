"""What every part of the pipeline works with: the registry, the warehouse and the Spark session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.pipeline.session import SparkSource
    from lakebed.registry.engine import Registry
    from lakebed.storage.access import Storage


@dataclass(frozen=True, slots=True)
class Context:
    registry: Registry
    storage: Storage
    source: SparkSource

    @property
    def spark(self) -> SparkSession:
        return self.source.spark
