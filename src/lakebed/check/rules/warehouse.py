"""The files themselves: present, whole, as registered, and no others beside them.

The registry moves on while files are read, and a snapshot held that long would make it grow without end.
So file rows are paged by short reads, and what looks wrong is looked up again before it is reported.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from lakebed.check.iceberg_reach import find_reach
from lakebed.check.report import Severity
from lakebed.check.rules.footers import RAW_TAIL, unpack
from lakebed.check.scan import PAGE, Pass, Rule, in_batches
from lakebed.check.thrift import TRAILER_BYTES, is_upgrade_of
from lakebed.core.errors import FileMissingError, NotAFileError, PathRefusedError, StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.check.report import Finding
    from lakebed.check.scan import Row, Scan
    from lakebed.storage.protocol import FileFacts, Storage

FILE_MISSING = Rule(name="file_missing")
FILE_PLACE = Rule(name="file_place")
FILE_UNREADABLE = Rule(name="file_unreadable")
FILE_SIZE = Rule(name="file_size")
FILE_TAIL = Rule(name="file_tail")
FILE_CHECKSUM = Rule(name="file_checksum")
FRESH_METADATA = Rule(name="fresh_metadata", severity=Severity.INFO)  # of a commit under way, or of one that just failed
LEFT_OUT = Rule(name="left_out_file", severity=Severity.INFO)  # by an import or an adoption: a person decides
NEWER = Rule(name="newer_file", severity=Severity.WARNING)  # of a history that this registry lost
UNREGISTERED = Rule(name="unregistered_file", severity=Severity.WARNING)

_WORKERS = 8
_FRESH_S = 900.0  # a service deletes them by itself after ten minutes
_CHUNK_BYTES = 1 << 20
_FILES = """SELECT f.id, f.table_id, f.file_path, f.file_size, f.checksum, f.checksum_kind, m.partition_format_version, m.footer_length, m.checksum,
f.partition_id, f.retired_seq FROM table_files f LEFT JOIN partition_metadata m ON m.file_path = f.file_path WHERE f.id > :after ORDER BY f.id LIMIT :size"""
# A claimed file may be gone already: the deletion is final only when its row is
_EXPECTED = """SELECT 1 FROM table_files f LEFT JOIN temporary_files q ON q.file_path = f.file_path
WHERE f.id = :id AND (f.retired_seq IS NULL OR q.claimed_until IS NULL)"""
_STORED_FOOTER = "SELECT metadata FROM partition_metadata WHERE file_path = :path"
_KNOWN = """SELECT file_path FROM table_files WHERE file_path IN (:paths*)
UNION ALL SELECT file_path FROM temporary_files WHERE file_path IN (:paths*)"""
_LEFT_OUT = "SELECT file_path, source, reason FROM left_out_files WHERE file_path IN (:paths*)"
_INTENTS = "SELECT staging_path FROM operations WHERE state IN ('writing', 'rolling_back') AND staging_path IS NOT NULL"
_OPERATIONS = "SELECT op_id FROM operations WHERE op_id IN (:ids*)"
_OPERATION = re.compile(r"/[^/]+-\d+/data/([0-9a-f]{32})/", re.ASCII)
_NEWER = "restore a newer backup, register the files that you need, or give them up with `lakebed repair --give-up-newer`"
_DECIDE = "register it, or give it up with `lakebed files left-out --forget`; until then it stays"
_AGAIN = "restore it from a backup, or retire its partition and write the rows again"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Registered:
    """A file as the registry knows it; those of the footer are None without one."""

    file_id: int
    table_id: int
    path: str
    size_bytes: int
    checksum: str
    checksum_kind: str
    footer_format: int | None
    footer_length: int | None
    footer_checksum: str | None
    partition_id: int
    state: str  # live or retired


@dataclass(frozen=True, slots=True)
class _Verdict:
    rule: Rule
    message: str

    def to_finding(self, table: str | None, file: _Registered) -> Finding:
        return self.rule.broken(table, file.path, self.message, facts=(file.state,), partition_id=file.partition_id)


def find_altered(scan: Scan) -> Iterator[Finding]:
    """Existence, size and tail of every registered file; in a deep check every byte of it."""
    storage = scan.require_storage()
    examine = partial(_examine, storage, deep=scan.deep)
    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="lakebed-check") as pool:
        for page in scan.pages(_FILES, after=0):
            files = [_registered(row) for row in page]
            for file, verdict in zip(files, pool.map(examine, files), strict=True):
                if verdict is not None and _still_holds(scan, storage, file, verdict):
                    yield verdict.to_finding(scan.name(file.table_id), file)


def find_unregistered(scan: Scan) -> Iterator[Finding]:
    """Files that are neither live, nor on their way out, nor part of an operation that is still open."""
    storage = scan.require_storage()
    reach = find_reach(scan)
    for batch in in_batches(storage.list_files(storage.paths.root), PAGE):
        unknown = [facts for facts in _list_unknown(scan, batch) if not reach.holds(facts.path)]
        if any(_is_metadata(facts) for facts in unknown):  # committed since we looked, or being committed now
            reach = find_reach(scan)
        lost, left_out = _list_lost_operations(scan, unknown), _find_left_out(scan, unknown)
        for facts in unknown:
            if not reach.holds(facts.path) and _is_there(storage, facts.path):
                yield left_out.get(facts.path) or _judge_unknown(facts, lost)
        scan.progress.step(len(batch))


def _judge_unknown(facts: FileFacts, lost: set[str]) -> Finding:
    if _find_op_id(facts) in lost:
        message = (
            f"{facts.size_bytes} bytes of an operation that this registry does not know, as after a restore from an older backup: {_NEWER}"
        )
        return NEWER.broken(None, facts.path, message)
    rule = FRESH_METADATA if _is_metadata(facts) and _is_fresh(facts) else UNREGISTERED
    return rule.broken(None, facts.path, _describe(facts))


def _find_left_out(scan: Scan, unknown: Sequence[FileFacts]) -> dict[str, Finding]:
    rows = scan.query(_LEFT_OUT, {"paths": [facts.path for facts in unknown]}) if unknown else []
    return {
        path: LEFT_OUT.broken(None, path, f"{source} left it out ({reason}): {_DECIDE}", facts=(source, reason))
        for path, source, reason in rows
    }


def _find_op_id(facts: FileFacts) -> str | None:
    found = _OPERATION.search(facts.path)
    return found[1] if found else None


def _list_lost_operations(scan: Scan, unknown: Sequence[FileFacts]) -> set[str]:
    """An intent is written before the first byte and never deleted, so every directory of an operation has its row."""
    named = {op_id for facts in unknown if (op_id := _find_op_id(facts)) is not None}
    known = {row[0] for row in scan.query(_OPERATIONS, {"ids": sorted(named)})} if named else set()
    return named - known


def _is_metadata(facts: FileFacts) -> bool:
    return "/metadata/" in facts.path


def _is_fresh(facts: FileFacts) -> bool:
    """By the host's clock, which wrote the file's time where it is local; only the severity of the finding depends on it."""
    return time.time() - facts.modified_micros / 1e6 < _FRESH_S


def _describe(facts: FileFacts) -> str:
    return f"{facts.size_bytes} bytes that no table, queue, open operation or Iceberg snapshot knows: `lakebed clean orphans` deletes them"


def _registered(row: Row) -> _Registered:
    return _Registered(
        file_id=row[0], table_id=row[1], path=row[2], size_bytes=row[3], checksum=row[4], checksum_kind=row[5],
        footer_format=row[6], footer_length=row[7], footer_checksum=row[8], partition_id=row[9],
        state="live" if row[10] is None else "retired",
    )  # fmt: skip


def _examine(storage: Storage, file: _Registered, *, deep: bool) -> _Verdict | None:
    """The first thing that is wrong with a file; a storage that does not answer at all is raised."""
    try:
        with storage.open_input(file.path) as source:
            return _find_difference(source, file, deep=deep)
    except FileMissingError:
        return _Verdict(FILE_MISSING, f"the file is registered but not there: {_AGAIN}")
    except (NotAFileError, PathRefusedError) as exc:
        return _Verdict(FILE_PLACE, f"{exc}; find out who put that there, then {_AGAIN}")
    except (StorageUnavailableError, OSError) as exc:
        if storage.find_marker() is None:
            raise
        return _Verdict(FILE_UNREADABLE, f"the storage says: {exc}; {_AGAIN}")


def _find_difference(source: BinaryIO, file: _Registered, *, deep: bool) -> _Verdict | None:
    size = source.seek(0, os.SEEK_END)
    if size != file.size_bytes:
        return _Verdict(FILE_SIZE, f"the file has {size} bytes, {file.size_bytes} were registered: {_AGAIN}")
    if file.footer_format == RAW_TAIL and file.footer_length is not None:
        tail = _read_tail(source, file, file.footer_length)
        if hashlib.sha256(tail).hexdigest() != file.footer_checksum:
            return _Verdict(FILE_TAIL, f"the end of the file is not its registered footer: {_AGAIN}")
        if file.checksum_kind == "footer-sha256" and file.checksum != file.footer_checksum:
            return _Verdict(FILE_CHECKSUM, f"the end of the file does not match the file's checksum: {_AGAIN}")
    if deep and file.checksum_kind == "sha256" and _hash(source) != file.checksum:
        return _Verdict(FILE_CHECKSUM, f"the content of the file does not match its checksum: {_AGAIN}")
    return None


def _read_tail(source: BinaryIO, file: _Registered, length: int) -> bytes:
    length = min(max(length, 0), file.size_bytes)
    source.seek(file.size_bytes - length)
    return source.read(length)


def _hash(source: BinaryIO) -> str:
    digest = hashlib.sha256()
    source.seek(0)
    while chunk := source.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _still_holds(scan: Scan, storage: Storage, file: _Registered, verdict: _Verdict) -> bool:
    if not scan.query(_EXPECTED, {"id": file.file_id}):
        return False
    return verdict.rule is not FILE_TAIL or not _is_explained(scan, storage, file)


def _is_explained(scan: Scan, storage: Storage, file: _Registered) -> bool:
    """Whether the fault is the footer row's (another rule reports it) or the difference is that of an upgraded footer."""
    rows = scan.query(_STORED_FOOTER, {"path": file.path})
    stored = unpack(bytes(rows[0][0])) if rows else None
    if stored is None:
        return True
    with storage.open_input(file.path) as source:
        if stored == _read_tail(source, file, len(stored)):
            return True
        own_length = int.from_bytes(_read_tail(source, file, TRAILER_BYTES)[:4], "little") + TRAILER_BYTES
        return is_upgrade_of(stored, _read_tail(source, file, own_length))


def _list_unknown(scan: Scan, batch: Sequence[FileFacts]) -> list[FileFacts]:
    """Open intents are read first: an operation that registers its files in between is then seen by the second statement."""
    intents = tuple(f"{row[0].rstrip('/')}/" for row in scan.query(_INTENTS, None))
    known = {row[0] for row in scan.query(_KNOWN, {"paths": [facts.path for facts in batch]})}
    return [facts for facts in batch if facts.path not in known and not facts.path.startswith(intents)]


def _is_there(storage: Storage, path: str) -> bool:
    """Operations end and clean-ups go on while the warehouse is listed."""
    try:
        storage.stat(path)
    except FileMissingError:
        return False
    return True


LONG_PASSES = (
    Pass(rules=(FILE_MISSING, FILE_PLACE, FILE_UNREADABLE, FILE_SIZE, FILE_TAIL, FILE_CHECKSUM), over="table_files", find=find_altered),
    Pass(rules=(UNREGISTERED, NEWER, FRESH_METADATA, LEFT_OUT), over="warehouse", find=find_unregistered),
)
