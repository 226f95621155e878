"""Metadata files that nothing names: what a killed commit left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.iceberg.locations import from_uri

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.iceberg.manifest_store import ManifestStore
    from lakebed.iceberg.opening import Base
    from lakebed.storage.access import FileFacts


def list_reachable(store: ManifestStore, base: Base) -> set[str]:
    """Every metadata file that the table needs: its own, those in its log, and all lists and manifests of kept snapshots."""
    found = {base.location, *(entry.metadata_file for entry in base.metadata.metadata_log)}
    for snapshot in base.metadata.snapshots:
        found.add(snapshot.manifest_list)
        found.update(manifest.manifest_path for manifest in store.load_list(snapshot.manifest_list))
    return {from_uri(location) for location in found}


def list_leftovers(files: Iterable[FileFacts], *, reachable: set[str], queued: set[str], before_us: int) -> list[str]:
    """Old enough, named by nothing, and not on their way out already."""
    return sorted(f.path for f in files if f.modified_micros <= before_us and f.path not in reachable and f.path not in queued)
