"""The context of the pipeline: the registry, the warehouse, the Spark session, and the path to Iceberg."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, Protocol

from lakebed.core.errors import InvalidValueError
from lakebed.pipeline.spark.lease import ReaderLease
from lakebed.registry.snapshots.waiting import Commits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.pipeline.spark.session import SparkSource
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage

MetadataMode = Literal["async", "sync"]


class Owner(Protocol):
    """The owner of a context: the lake, which pickles as its settings and reconnects."""

    @property
    def _context(self) -> Context: ...


@dataclass(frozen=True, slots=True)
class Context:
    """`given_commits` and `metadata_mode` belong to the connection: they define what writers wait for unless a call overrides it.

    A pickled context becomes its owner's context in the other process.
    """

    registry: Registry
    storage: Storage
    source: SparkSource
    given_commits: Commits | None = field(default=None, repr=False, compare=False)
    metadata_mode: MetadataMode = "async"
    owner: Owner | None = field(default=None, repr=False, compare=False)
    lease: ReaderLease = field(init=False, repr=False, compare=False)
    commits: Commits = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lease", ReaderLease(self.registry))
        object.__setattr__(self, "commits", self.given_commits or Commits(self.registry))

    @property
    def spark(self) -> SparkSession:
        return self.source.spark

    def __reduce__(self) -> tuple[Any, ...]:
        if self.owner is None:
            message = "this registry and warehouse cannot be opened in another process: open the lake with `lakebed.connect`"
            raise InvalidValueError(message)
        return attrgetter("_context"), (self.owner,)
