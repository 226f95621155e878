"""What every part of the pipeline works with: the registry, the warehouse and the Spark session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.pipeline.reading import ReaderLease

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
    lease: ReaderLease = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lease", ReaderLease(self.registry))

    @property
    def spark(self) -> SparkSession:
        return self.source.spark
