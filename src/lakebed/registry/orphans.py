"""What the registry knows of paths in the warehouse, for the sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.registry.engine import Registry

_INTENTS = "SELECT staging_path FROM operations WHERE state IN ('writing', 'rolling_back') AND staging_path IS NOT NULL"
_KNOWN = """SELECT file_path FROM table_files WHERE file_path IN (:paths*)
UNION ALL SELECT file_path FROM temporary_files WHERE file_path IN (:paths*)"""
_QUEUED = "SELECT file_path FROM temporary_files WHERE file_path IN (:paths*) AND reason = 'orphan'"


def list_unknown(registry: Registry, paths: Sequence[str]) -> set[str]:
    """Those that are neither registered, nor queued, nor part of an open operation.

    Intents are read first: an operation that registers its files in between is then seen by the second statement.
    """
    intents = tuple(f"{row[0].rstrip('/')}/" for row in registry.query(_INTENTS))
    known = {row[0] for row in registry.query(_KNOWN, {"paths": list(paths)})}
    return {path for path in paths if path not in known and not path.startswith(intents)}


def list_swept(registry: Registry, paths: Sequence[str]) -> list[str]:
    """Those that a sweep has queued: they may be deleted at any moment."""
    return [row[0] for row in registry.query(_QUEUED, {"paths": list(paths)})] if paths else []
