"""Files that other programs' snapshots reach: read from the catalog, because no group of ours says that they are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.errors import CorruptionError, FileMissingError, PathRefusedError
from lakebed.core.files import Needed
from lakebed.core.names import TableName
from lakebed.iceberg.catalog import looking_at_catalog
from lakebed.iceberg.manifests.cache import ManifestStore
from lakebed.iceberg.metadata.load import TableOpener
from lakebed.iceberg.metadata.ownership import is_our_snapshot
from lakebed.registry.tables.lake_tables import find_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage


def find_foreign_files(registry: Registry, storage: Storage, table_ids: Iterable[int]) -> Needed:
    """Of these tables; everything of one that cannot be read."""
    rows = [find_row(registry, table_id) for table_id in table_ids]
    tables = [row for row in rows if row is not None and row.dropped_at is None]
    paths: set[str] = set()
    unsure: list[str] = []
    with looking_at_catalog(registry, storage) as catalog:
        if catalog is None:
            return Needed(paths=frozenset(), unsure=())
        opener, store = TableOpener(registry, storage, catalog), ManifestStore(storage)
        for row in tables:
            name = TableName(row.database, row.name)
            try:
                paths.update(_list_reached(opener, store, name))
            except (FileMissingError, CorruptionError, PathRefusedError):
                unsure.append(storage.paths.table_directory(row.id, name) + "/")
    return Needed(paths=frozenset(paths), unsure=tuple(unsure))


def _list_reached(opener: TableOpener, store: ManifestStore, name: TableName) -> Iterator[str]:
    base = opener.find(name)
    for snapshot in () if base is None else base.metadata.snapshots:
        if not is_our_snapshot(snapshot):
            yield from store.list_held(snapshot.manifest_list)
