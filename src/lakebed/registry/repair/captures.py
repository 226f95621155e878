"""Write footers and statistics of registered files again, and remove the rows of files that are gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.registry.files.deletion_queue import CLAIM_US, Claim, ClaimedFile, finalize_deleted, is_deletable
from lakebed.registry.files.footers import FOOTER_COLUMNS, footer_row
from lakebed.registry.files.range_index import bins_of_columns
from lakebed.registry.tables.lake_tables import MAX_INDEXED, read_indexed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.files import NewFile
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction

_COLUMNS = """f.id, f.table_id, f.partition_id, f.file_path, f.file_type, f.file_size, f.row_count, f.checksum, f.checksum_kind,
f.schema_hash, f.retired_seq"""
_FIND = f"""SELECT {_COLUMNS}, v.schema, v.partition_by, t.event_time_field FROM table_files f JOIN tables t ON t.id = f.table_id
JOIN table_metadata v ON v.table_id = f.table_id AND v.schema_hash = f.schema_hash WHERE f.file_path IN (:paths*) ORDER BY f.id"""
_STATISTICS_COLUMNS = ("file_id", "field_id", "null_count", "value_count", "lower", "upper")
_RANGE_COLUMNS = ("id", "scope", "level", "prefix")
_EXPIRE = "UPDATE temporary_files SET expiration = :now WHERE file_path = :path AND expiration > :now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A file row with the version that it was written under."""

    file_id: int
    table_id: int
    partition_id: int
    path: str
    file_type: str
    size_bytes: int
    row_count: int
    checksum: str
    checksum_kind: str
    schema_hash: str
    retired_seq: int | None
    schema: bytes
    partition_by: str
    event_time_field: int | None


def find_registered(registry: Registry, paths: Sequence[str]) -> list[Registered]:
    """Those of `paths` that have a file row of a known version."""
    names = tuple(Registered.__dataclass_fields__)
    rows = registry.query(_FIND, {"paths": list(paths)})
    return [Registered(**{**dict(zip(names, row, strict=True)), "schema": bytes(row[11])}) for row in rows]


def replace_capture(tx: Transaction, registered: Registered, captured: NewFile) -> None:
    """Footer, column statistics and range index of one file as they were just read from it."""
    _replace_statistics(tx, registered, captured)
    tx.run("DELETE FROM partition_metadata WHERE file_path = :path", {"path": registered.path})
    if captured.footer is not None:
        values = footer_row(registered.path, captured.footer, table_id=registered.table_id, file_size=registered.size_bytes, now=tx.now)
        tx.insert("partition_metadata", FOOTER_COLUMNS, [values])


def forget_statistics(tx: Transaction, registered: Registered) -> None:
    """No statistics at all: the file is read by every query, which is always right."""
    _replace_statistics(tx, registered, None)


def _replace_statistics(tx: Transaction, registered: Registered, captured: NewFile | None) -> None:
    number, indexed = registered.file_id, read_indexed(tx, registered.table_id)
    tx.run("DELETE FROM file_columns WHERE file_id = :id", {"id": number})
    entries = {"first": number * MAX_INDEXED, "last": number * MAX_INDEXED + MAX_INDEXED - 1}
    tx.run("DELETE FROM file_ranges WHERE id BETWEEN :first AND :last", entries)
    columns = () if captured is None else captured.columns
    if columns:
        rows = [(number, c.field_id, c.null_count, c.value_count, c.lower, c.upper) for c in columns]
        tx.insert("file_columns", _STATISTICS_COLUMNS, rows)
    if bins := bins_of_columns(registered.table_id, number, columns, indexed):
        tx.insert("file_ranges", _RANGE_COLUMNS, bins)


def finalize_missing(registry: Registry, paths: Sequence[str]) -> int:
    """Retired files that are gone already: their rows go too, unless a kept snapshot or a lease still needs them; how many went."""
    found = {r.path: r for r in find_registered(registry, paths)}
    with registry.write() as tx:
        for path in found:
            tx.run(_EXPIRE, {"path": path, "now": tx.now})
    claim = _claim(registry, list(found.values()))
    return finalize_deleted(registry, claim, [f.path for f in claim.files])


def _claim(registry: Registry, files: Sequence[Registered]) -> Claim:
    with registry.write() as tx:
        token = tx.now + CLAIM_US
        taken = [f for f in files if is_deletable(tx, f.path)]
        for f in taken:
            tx.run("UPDATE temporary_files SET claimed_until = :until WHERE file_path = :path", {"until": token, "path": f.path})
    claimed = tuple(
        ClaimedFile(path=f.path, size_bytes=f.size_bytes, table_id=f.table_id, attempts=0, file_id=f.file_id, retired_seq=f.retired_seq)
        for f in taken
    )
    return Claim(token=token, files=claimed)
