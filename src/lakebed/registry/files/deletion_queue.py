"""Files on their way out: queued, claimed, deleted outside any transaction, finalized.

A file row and its footer live until the deletion is final, so no reader ever sees one without the other.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.registry.files.range_index import delete_statistics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction

CLAIM_US = 5 * 60 * 1_000_000
_MAX_BACKOFF_US = 3600 * 1_000_000
_FIRST_BACKOFF_US = 10 * 1_000_000
BATCH = 1000
ORPHAN = "orphan"  # stored as a reason: never rename

# Past its grace period and not needed: not live, under no reader's lease, and out of every retained snapshot. A dropped table
# has no snapshot any more: nothing commits to it, and the catalog does not list it.
_DELETABLE = """q.expiration <= :now AND (q.claimed_until IS NULL OR q.claimed_until < :now)
AND (f.id IS NULL OR (f.retired_seq IS NOT NULL
  AND (f.added_group IS NULL OR t.dropped_at IS NOT NULL OR (t.committed_group >= f.removed_group AND NOT EXISTS (
    SELECT 1 FROM table_snapshots s WHERE s.table_id = f.table_id AND s.expired_at IS NULL
    AND s.group_no >= f.added_group AND s.group_no < f.removed_group)))
  AND NOT EXISTS (SELECT 1 FROM lease_numbers n JOIN leases l ON l.name = n.name
    WHERE n.table_id = f.table_id AND l.expires_at > :now AND n.seq < f.retired_seq)))"""
# PostgreSQL expects few of the queue to pass, and would read every file to join them with the queue: LATERAL looks up one by one
_WITH_FILE = {
    "sqlite": "LEFT JOIN table_files f ON f.file_path = q.file_path",
    "postgresql": "LEFT JOIN LATERAL (SELECT * FROM table_files WHERE file_path = q.file_path OFFSET 0) AS f ON true",
}
_FIND = {
    dialect: f"""SELECT q.file_path, q.file_size, q.table_id, q.attempts, f.id, f.retired_seq, q.reason FROM temporary_files q
{with_file} LEFT JOIN tables t ON t.id = q.table_id WHERE {_DELETABLE} ORDER BY q.expiration LIMIT :limit"""
    for dialect, with_file in _WITH_FILE.items()
}
# Between two rows of an answer Python's SQLite releases the interpreter lock, and threads that delete files take it each time: 25 ms
# for a claim instead of 4. So the only writer asks for one row that holds them all.
_FIND_AT_ONCE = (
    f"SELECT json_group_array(json_array(file_path, file_size, table_id, attempts, id, retired_seq, reason)) FROM ({_FIND['sqlite']})"
)
_CLAIM = "UPDATE temporary_files SET claimed_until = :until WHERE file_path IN (:paths*)"
_OURS = "FROM temporary_files WHERE file_path IN (:paths*) AND claimed_until = :token"
_HORIZON = "UPDATE table_seq SET horizon_seq = :seq WHERE table_id = :table_id AND horizon_seq < :seq"
_FAILED = """UPDATE temporary_files SET attempts = attempts + 1, claimed_until = :until
WHERE file_path = :path AND claimed_until = :token"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedFile:
    """`file_id` and `retired_seq` are None where no file row knows the path; a retired row keeps both for as long as it exists."""

    path: str
    size_bytes: int
    table_id: int
    attempts: int
    file_id: int | None
    retired_seq: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Files that this process may delete until the claim runs out; the token proves it is still ours."""

    token: int
    files: tuple[ClaimedFile, ...]


def queue_files(tx: Transaction, table_id: int, files: Mapping[str, int], *, reason: str, grace_us: int) -> None:
    """Queue paths (with sizes) that no file row knows, such as outputs of a lost swap; queued twice, the later expiry wins."""
    sql = """INSERT INTO temporary_files (file_path, file_size, table_id, retired_at, expiration, reason)
VALUES (:path, :size, :table_id, :now, :expiration, :reason) ON CONFLICT (file_path) DO UPDATE SET expiration =
CASE WHEN excluded.expiration > temporary_files.expiration THEN excluded.expiration ELSE temporary_files.expiration END"""
    for path, size in files.items():
        tx.send(sql, {"path": path, "size": size, "table_id": table_id, "now": tx.now, "expiration": tx.now + grace_us, "reason": reason})


def count_deletable(registry: Registry) -> tuple[int, int]:
    """Files and bytes that a clean-up would delete now."""
    sql = f"""SELECT count(*), COALESCE(sum(q.file_size), 0) FROM temporary_files q LEFT JOIN table_files f ON f.file_path = q.file_path
LEFT JOIN tables t ON t.id = q.table_id WHERE {_DELETABLE}"""
    files, size = registry.query(sql, {"now": registry.now()})[0]
    return int(files), int(size)


def is_deletable(tx: Transaction, path: str) -> bool:
    """Whether a clean-up might delete the file now."""
    sql = f"""SELECT 1 FROM temporary_files q LEFT JOIN table_files f ON f.file_path = q.file_path
LEFT JOIN tables t ON t.id = q.table_id WHERE q.file_path = :path AND {_DELETABLE}"""
    return bool(tx.query(sql, {"path": path, "now": tx.now}))


def claim_expired(registry: Registry, *, limit: int = BATCH, claim_us: int = CLAIM_US) -> Claim:
    """Take up to `limit` deletable files for ourselves; any number of processes may do so at once."""
    with registry.write() as tx:
        params = {"now": tx.now, "limit": limit}
        if tx.dialect == "postgresql":
            rows = tx.query(f"{_FIND['postgresql']} FOR UPDATE OF q SKIP LOCKED", params)
        else:
            rows = json.loads(tx.query(_FIND_AT_ONCE, params)[0][0])
        token = tx.now + claim_us
        if rows:
            tx.run(_CLAIM, {"until": token, "paths": [row[0] for row in rows]})
    files = tuple(
        ClaimedFile(
            path=path, size_bytes=size, table_id=table_id, attempts=attempts, file_id=file_id, retired_seq=retired_seq, reason=reason
        )
        for path, size, table_id, attempts, file_id, retired_seq, reason in rows
    )
    return Claim(token=token, files=files)


def finalize_deleted(registry: Registry, claim: Claim, paths: Sequence[str]) -> int:
    """The objects are gone: remove file rows, footers, statistics and queue entries together; how many were still ours."""
    by_table: dict[int, list[ClaimedFile]] = defaultdict(list)
    claimed = {f.path: f for f in claim.files}
    for path in paths:
        by_table[claimed[path].table_id].append(claimed[path])
    done = 0
    for table_id, own in sorted(by_table.items()):
        for start in range(0, len(own), BATCH):
            with registry.write([table_id] if table_id else []) as tx:  # 0: queued before tables were kept with it
                done += _finalize(tx, table_id, own[start : start + BATCH], claim.token)
    return done


def release_needed(registry: Registry, claim: Claim, paths: Sequence[str]) -> int:
    """These turned out to be needed: they leave the queue, and nothing else changes; how many were still ours."""
    if not paths:
        return 0
    with registry.write() as tx:
        return tx.run(f"DELETE {_OURS}", {"paths": list(paths), "token": claim.token})


def release_failed(registry: Registry, claim: Claim, paths: Sequence[str]) -> None:
    """Storage refused these: they stay queued, each with one more attempt and a longer pause."""
    if not paths:
        return
    attempts = {f.path: f.attempts for f in claim.files}
    with registry.write() as tx:
        for path in paths:
            pause = min(_MAX_BACKOFF_US, _FIRST_BACKOFF_US << min(attempts[path], 20))
            tx.send(_FAILED, {"path": path, "token": claim.token, "until": tx.now + pause})


def _delete_entries(tx: Transaction, paths: list[str], token: int) -> set[str]:
    """The entries that were still ours. Mostly all of them: what the only writer has counted need not come back row by row."""
    params = {"paths": paths, "token": token}
    if tx.dialect == "sqlite" and tx.query(f"SELECT count(*) {_OURS}", params)[0][0] == len(paths):
        tx.run(f"DELETE {_OURS}", params)
        return set(paths)
    return {row[0] for row in tx.query(f"DELETE {_OURS} RETURNING file_path", params)}


def _finalize(tx: Transaction, table_id: int, files: Sequence[ClaimedFile], token: int) -> int:
    """The process that removes the queue entries under the claim's token owns the rest."""
    taken = _delete_entries(tx, [f.path for f in files], token)
    rows = sorted((f.file_id, f.retired_seq or 0, f.path) for f in files if f.file_id is not None and f.path in taken)
    if rows:
        ids = [row[0] for row in rows]
        tx.send("DELETE FROM partition_metadata WHERE file_path IN (:paths*)", {"paths": [row[2] for row in rows]})
        delete_statistics(tx, table_id, ids)
        tx.send("DELETE FROM table_files WHERE id IN (:ids*)", {"ids": ids})
        tx.send(_HORIZON, {"seq": max(row[1] for row in rows), "table_id": table_id})
    return len(taken)
