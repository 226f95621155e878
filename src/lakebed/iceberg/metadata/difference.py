"""The manifests of a table beside the registry's files at a group: manifest by manifest, with a few bytes per file."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from lakebed.iceberg.locations import to_path, to_uri
from lakebed.registry.tables.groups import find_at_group, list_ids_at_group

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyiceberg.table.metadata import TableMetadataV2

    from lakebed.iceberg.manifests.cache import ManifestStore
    from lakebed.registry.registry import Registry

_BATCH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """`files` in the manifests; ids of files that are missing there, and locations there that the registry does not have in the group."""

    files: int
    missing: Sequence[int]
    extra: frozenset[str]


def compare(registry: Registry, store: ManifestStore, metadata: TableMetadataV2, *, table_id: int, group: int) -> Difference:
    held, extra, files = array("q"), set[str](), 0
    locations = _read_locations(store, metadata)
    while batch := list(islice(locations, _BATCH)):
        found = {to_uri(path): file_id for path, file_id in find_at_group(registry, table_id, group, list(map(to_path, batch))).items()}
        held.extend(found.values())
        extra.update(set(batch) - found.keys())
        files += len(batch)
    missing = _without(list_ids_at_group(registry, table_id, group), array("q", sorted(held)))
    return Difference(files=files, missing=missing, extra=frozenset(extra))


def _read_locations(store: ManifestStore, metadata: TableMetadataV2) -> Iterator[str]:
    """From the manifests themselves, so that it is what readers see."""
    snapshot = metadata.current_snapshot()
    for manifest in () if snapshot is None else store.load_list(snapshot.manifest_list):
        if manifest.live_files:
            yield from store.read_locations(manifest)


def _without(ids: Sequence[int], known: Sequence[int]) -> array[int]:
    """Both are in order."""
    return array("q", (i for i in ids if (at := bisect_left(known, i)) == len(known) or known[at] != i))
