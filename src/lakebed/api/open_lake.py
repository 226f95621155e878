"""The resources of an open lake: registry, storage, settings, and Spark once it is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

from lakebed.api.until_closed import until_closed
from lakebed.parquet.cache import FooterCache
from lakebed.registry.files.footers import FooterIndex
from lakebed.registry.registry import Registry
from lakebed.registry.snapshots.waiting import Commits
from lakebed.service.embedded import Embedded
from lakebed.settings import Settings, SparkRequest, load_settings
from lakebed.storage.protocol import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.compaction import Engines
    from lakebed.pipeline.context import Context


class OpenLake:
    """Registry and warehouse, opened together. After `close` every use raises `lake_closed`."""

    registry = until_closed[Registry](doc="The registry, for the functions of `lakebed.registry`.")
    storage = until_closed[Storage](doc="The files of the warehouse.")
    _footers = until_closed[FooterIndex]()
    _embedded = until_closed[Embedded]()
    _is_closed: bool

    def __init__(
        self, registry: Registry, storage: Storage, *, settings: Settings | None = None, requested: SparkRequest | None = None
    ) -> None:
        self._is_closed = False
        self.registry, self.storage = registry, storage
        self._settings, self._requested = settings or load_settings(service="off"), requested or SparkRequest()
        self._cache = FooterCache()
        self._footers = FooterIndex(registry, storage, cache=self._cache)
        registry.back_pressure = replace(registry.back_pressure, timeout_s=self._settings.commit_timeout_s)
        self._embedded = Embedded(registry, storage, timeout_s=self._settings.commit_timeout_s)
        if self._settings.service == "auto":
            registry.add_listener(self._embedded.on_commit)

    @property
    def _url(self) -> str | None:
        """The URL for another process, independent of its working directory."""
        return self.registry.backend.shown_url if self.registry.dialect == "sqlite" else self._settings.registry_url

    def __enter__(self) -> Self:
        _ = self.registry  # a closed lake is refused
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Publish what is pending (at most 5 s), then refuse all further calls (`lake_closed`). The Spark session is left running."""
        if self._is_closed:
            return
        try:
            self._embedded.close()
            if "_context" in self.__dict__:
                self._context.lease.close()
        finally:
            self.registry.close()
            self._is_closed = True

    @property
    def spark(self) -> SparkSession:
        """The Spark session, built or adopted at the first use."""
        return self._context.spark

    @until_closed
    def _context(self) -> Context:
        from lakebed.pipeline.context import Context
        from lakebed.pipeline.spark.session import SparkSource

        url, requested = self._url, self._requested
        source = SparkSource(requested.session, options=requested.options, serves=(url, self.storage.paths.root) if url else None)
        return Context(self.registry, self.storage, source, self._commits, self._settings.metadata_mode, owner=self)

    @until_closed
    def _commits(self) -> Commits:
        """How writers of this lake wait for Iceberg."""
        if self._settings.service == "auto":
            return self._embedded.commits
        return Commits(self.registry, timeout_s=self._settings.commit_timeout_s)

    @property
    def _engines(self) -> Engines:
        """Files that fit this machine are rewritten in this process; Spark starts only for the others."""
        from lakebed.pipeline.views.merge import engines_of

        return engines_of(self._context)
