"""The public face: `connect` opens a registry and its warehouse as a `Lake`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Never

from lakebed.api.administration import Administration
from lakebed.api.groups.administrators import Administrators
from lakebed.api.groups.columns import Columns
from lakebed.api.groups.files import Files
from lakebed.api.groups.partitions import Partitions
from lakebed.api.groups.snapshots import Snapshots
from lakebed.api.groups.tables import Tables
from lakebed.api.groups.views import Views
from lakebed.api.moved import MOVED
from lakebed.api.reads import Reads
from lakebed.api.upkeep import MaintenanceCalls
from lakebed.api.writes import Writes
from lakebed.core.errors import InvalidValueError
from lakebed.core.redaction import strip_password
from lakebed.opening import open_registry_and_storage
from lakebed.settings import SparkRequest, load_settings, restore_password

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from lakebed.core.times import Clock
    from lakebed.pipeline.context import MetadataMode
    from lakebed.settings import ServiceMode


def connect(
    url: str | None = None,
    *,
    warehouse: str | None = None,
    spark: SparkSession | None = None,
    spark_options: Mapping[str, str] | None = None,
    metadata_mode: MetadataMode | None = None,
    service: ServiceMode | None = None,
    commit_timeout_s: float | None = None,
    create: bool = True,
    verify: bool = True,
    timeout_s: float = 30.0,
    clock: Clock | None = None,
    **unknown: Never,
) -> Lake:
    """Open a lake. A setting that is not given comes from the environment (`LAKEBED_*`) or from `lakebed.toml`.

    Args:
        url: The registry: `sqlite:///lake.db` or `postgresql://user@host/database`.
        warehouse: The directory or `s3://bucket/prefix` that holds the files. A registry has one warehouse, which cannot be changed.
        spark: A session to use; it is checked, and used as it is. By default Spark starts when it is first needed.
        spark_options: Settings of the session that Lakebed builds.
        metadata_mode: What inserts wait for: `"async"` for the registry, `"sync"` for the Iceberg snapshot too.
        service: `"auto"` publishes to Iceberg from this process while no other does, `"off"` never.
        commit_timeout_s: How long a call waits for Iceberg.
        create: Create registry and warehouse if there is neither; False refuses (`registry_missing`).
        verify: False opens a registry whose triggers were altered, for `repair`.
        timeout_s: How long a statement waits for the registry.
        clock: Another clock, for tests.
        unknown: Not accepted: an unknown setting is refused, with the nearest known one.

    """
    given: dict[str, Any] = {"metadata_mode": metadata_mode, "service": service, "commit_timeout_s": commit_timeout_s, **unknown}
    settings = load_settings(registry_url=url, warehouse=warehouse, **given)
    if settings.registry_url is None or settings.warehouse is None:
        message = "give the registry and the warehouse: in the call, by LAKEBED_REGISTRY_URL and LAKEBED_WAREHOUSE, or in lakebed.toml"
        raise InvalidValueError(message)
    registry, storage = open_registry_and_storage(
        settings.registry_url, settings.warehouse, clock=clock, timeout_s=timeout_s, create=create, verify=verify
    )
    return Lake(registry, storage, settings=settings, requested=SparkRequest(session=spark, options=spark_options))


class Lake(Writes, Reads, MaintenanceCalls, Administration):
    """One registry and one warehouse. Registry work starts no JVM, and nothing prints.

    Use it as a context manager, or call `close`. `dry_run` defaults to True in the calls that find by themselves what they remove or
    repair, and to False in the others. A pickled lake reconnects where it is unpickled, with the password of that environment.
    """

    @property
    def tables(self) -> Tables:
        """List, drop and configure tables; make tables of files that exist already."""
        return Tables(self)

    @property
    def columns(self) -> Columns:
        """List, add, rename, drop and widen columns."""
        return Columns(self)

    @property
    def partitions(self) -> Partitions:
        """Merge partitions, and retire the old ones."""
        return Partitions(self)

    @property
    def files(self) -> Files:
        """Registered files, their footers and histories; orphaned files."""
        return Files(self)

    @property
    def views(self) -> Views:
        """List view sets and promote their definitions."""
        return Views(self)

    @property
    def snapshots(self) -> Snapshots:
        """List, tag and expire Iceberg snapshots, and return to one: `lake.snapshots("db.t")`, `lake.snapshots.tag(...)`."""
        return Snapshots(self)

    @property
    def administrators(self) -> Administrators:
        """The actors that may change the lake by administrative calls."""
        return Administrators(self)

    def __repr__(self) -> str:
        if self._is_closed:
            return "<Lake, closed>"
        return f"<Lake {self.registry.backend.shown_url}, warehouse {self.storage.paths.root}>"

    def __reduce__(self) -> tuple[Any, ...]:
        known = None if self._url is None else strip_password(self._url)
        return _reconnect, (known, self.storage.paths.root, self._requested.options, self._settings.metadata_mode)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The former names of calls that are grouped now still work, with a warning."""
            if (moved := MOVED.get(name)) is None:
                message = f"{type(self).__name__!r} object has no attribute {name!r}"
                raise AttributeError(message)
            warnings.warn(f"lake.{name} is now lake.{moved.path}", DeprecationWarning, stacklevel=2)
            return moved.bind(self)


def _reconnect(url: str | None, warehouse: str, options: Mapping[str, str] | None, metadata_mode: MetadataMode) -> Lake:
    """For use in another process, which leaves publishing to the first and takes the password from its own environment."""
    url = None if url is None else restore_password(url)
    return connect(url, warehouse=warehouse, spark_options=options, metadata_mode=metadata_mode, service="off", create=False)
