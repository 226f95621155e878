"""Which metadata files the catalog's pointers still reach; what cannot be read is never given up."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from lakebed.core.errors import CorruptionError, FileMissingError
from lakebed.core.names import TableName
from lakebed.core.orphans import Needed
from lakebed.iceberg.catalog import open_catalog
from lakebed.iceberg.manifest_store import ManifestStore
from lakebed.iceberg.opening import TableOpener
from lakebed.iceberg.sweeping import list_reachable
from lakebed.registry.lake_tables import list_all_tables
from lakebed.registry.orphans import has_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.core.rows import Tables
    from lakebed.registry.engine import Registry
    from lakebed.storage.access import Storage


def find_needed(registry: Registry, storage: Storage) -> Needed:
    """As of now: a commit that is under way is not among it, which is why only old files may be swept."""
    paths: set[str] = set()
    unsure: list[str] = []
    store = ManifestStore(storage)
    with closing(open_catalog(registry, storage)) as catalog:
        opener = TableOpener(registry, storage, catalog)
        for table in list_all_tables(registry):
            try:
                paths.update(_list_reached(registry, opener, store, table))
            except (FileMissingError, CorruptionError):
                unsure.append(storage.paths.metadata_directory(table.id, TableName(table.database, table.name)) + "/")
    return Needed(paths=frozenset(paths), unsure=tuple(unsure))


def _list_reached(registry: Registry, opener: TableOpener, store: ManifestStore, table: Tables) -> Iterator[str]:
    name = TableName(table.database, table.name)
    base = opener.find(name) if table.dropped_at is None else None
    if base is not None:
        yield from list_reachable(store, base)
    elif table.committed_group and (table.dropped_at is None or has_files(registry, table.id)):
        # its pointer is lost, or whoever opened the table before the drop still reads it
        message = f"the pointer of {name} is lost"
        raise CorruptionError(message)
