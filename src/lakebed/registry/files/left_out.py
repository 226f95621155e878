"""Files in the warehouse that an import or an adoption did not register: on record until they are registered or given up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - `Rows` reads the types at run time
from typing import TYPE_CHECKING

from lakebed.core.results import Rows
from lakebed.core.times import from_micros
from lakebed.registry.files.deletion_queue import ORPHAN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction

_MANY = 1000
_RECORD = """INSERT INTO left_out_files (file_path, file_size, table_id, source, reason, recorded_at)
SELECT :path, :size, :table_id, :source, :reason, :now
WHERE NOT EXISTS (SELECT 1 FROM table_files WHERE file_path = :path)
ON CONFLICT (file_path) DO UPDATE SET file_size = excluded.file_size, table_id = excluded.table_id, source = excluded.source,
reason = excluded.reason, recorded_at = excluded.recorded_at"""
_UNQUEUE = f"""DELETE FROM temporary_files WHERE file_path IN (:paths*) AND reason = '{ORPHAN}'
AND (claimed_until IS NULL OR claimed_until < :now)"""
_FIND = "SELECT file_path FROM left_out_files WHERE file_path IN (:paths*)"
_FORGET = "DELETE FROM left_out_files WHERE file_path IN (:paths*)"
_LIST = """SELECT l.file_path, l.file_size, t.database, t.name, l.source, l.reason, l.recorded_at
FROM left_out_files l LEFT JOIN tables t ON t.id = l.table_id
WHERE l.file_path > :after AND (:table_id = 0 OR l.table_id = :table_id)
AND NOT EXISTS (SELECT 1 FROM table_files f WHERE f.file_path = l.file_path) ORDER BY l.file_path LIMIT :limit"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutFile:
    """`source` is the call that left the file out, `reason` why it did; `table` is None where no table was made for it."""

    file_path: str
    file_size: int
    table: str | None
    source: str
    reason: str
    recorded_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A file to record."""

    size_bytes: int
    reason: str


def record_left_out(
    registry: Registry,
    files: Mapping[str, LeftOut],
    *,
    source: str,
    table_id: int = 0,
    finish: Callable[[Transaction], object] | None = None,
) -> None:
    """Put files on record, in bounded transactions; one that is registered is passed over, one that a sweep queued leaves the queue.

    `finish` belongs to the last transaction, which there is then even without any file.
    """
    paths = list(files)
    starts = range(0, len(paths) or (1 if finish is not None else 0), _MANY)
    for start in starts:
        with registry.write() as tx:
            _record(tx, {path: files[path] for path in paths[start : start + _MANY]}, source=source, table_id=table_id)
            if finish is not None and start == starts[-1]:
                finish(tx)


def _record(tx: Transaction, files: Mapping[str, LeftOut], *, source: str, table_id: int) -> None:
    tx.run(_UNQUEUE, {"paths": list(files), "now": tx.now})
    for path, file in files.items():
        values = {"path": path, "size": file.size_bytes, "reason": file.reason, "source": source, "table_id": table_id, "now": tx.now}
        tx.run(_RECORD, values)


def find_left_out(reader: Queryable, paths: Iterable[str]) -> set[str]:
    """Those of the paths that are on record."""
    wanted = list(paths)
    batches = (wanted[start : start + _MANY] for start in range(0, len(wanted), _MANY))
    return {row[0] for batch in batches for row in reader.query(_FIND, {"paths": batch})}


def drop_records(tx: Transaction, paths: Sequence[str]) -> int:
    """In the transaction that registers the files, or when they are given up; how many there were."""
    return sum(tx.run(_FORGET, {"paths": list(paths[start : start + _MANY])}) for start in range(0, len(paths), _MANY))


def list_left_out(registry: Registry, *, table_id: int = 0, after: str = "", limit: int) -> Rows[LeftOutFile]:
    """In the order of their paths."""
    rows = registry.query(_LIST, {"after": after, "table_id": table_id, "limit": limit})
    return Rows(
        LeftOutFile,
        [
            LeftOutFile(
                file_path=path,
                file_size=size,
                table=None if database is None else f"{database}.{name}",
                source=source,
                reason=reason,
                recorded_at=from_micros(recorded_at),
            )
            for path, size, database, name, source, reason, recorded_at in rows
        ],
    )
