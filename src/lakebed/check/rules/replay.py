"""The journal replayed from its first change gives exactly the rows of today."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from lakebed.check.scan import Pass, Rule
from lakebed.core.rows import (
    PARTIAL_IMAGE,
    TableFiles,
    TableMetadata,
    Tables,
    TableSnapshots,
    TableStats,
    list_changing_columns,
    list_columns,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.check.report import Finding
    from lakebed.check.scan import Query, Row, Scan
    from lakebed.core import rows

JOURNAL_REPLAY = Rule(name="journal_replay")

ROWS_AT_ONCE = 250_000  # digests held in memory; more rows take more walks over the journal
_PAGE = 5000
_KINDS: dict[str, type[rows.Row]] = {
    "tables": Tables,
    "table_metadata": TableMetadata,
    "table_files": TableFiles,
    "table_stats": TableStats,
    "table_snapshots": TableSnapshots,
}
_CHANGES_IN = {kind: [column in list_changing_columns(kind) for column in list_columns(kind)] for kind in _KINDS.values()}
_HEXED = "schema"
_Digests = tuple[bytes, bytes]  # of the columns of a row that never change (nothing, where an image leaves them out), and of the others
# Replay needs every change from number 1; other rules report what is missing or too much
_COMPLETE = """SELECT s.table_id FROM table_seq s
LEFT JOIN change_log c ON c.id >= (s.table_id << 40) AND c.id < ((s.table_id + 1) << 40) WHERE s.purged_seq = 0
GROUP BY s.table_id, s.last_seq HAVING count(c.seq) = s.last_seq AND COALESCE(max(c.seq), 0) = s.last_seq"""
_INSERTS = "SELECT count(*) FROM change_log WHERE operation = 'INSERT'"
_CHANGES = """SELECT table_id, seq, registry_table, operation, row_id, before, after FROM change_log
WHERE id > (:table_id << 40) + :seq ORDER BY id LIMIT :size"""


def find_differences(scan: Scan, *, rows_at_once: int = ROWS_AT_ONCE) -> Iterator[Finding]:
    """Each share of the rows on a snapshot of its own, so that none is held for long."""
    shares = -(-int(scan.query(_INSERTS, None)[0][0]) // rows_at_once) or 1
    for share in range(shares):
        with scan.open_snapshot() as query:
            replay = _Replay(scan, query, share=share, shares=shares)
            yield from replay.fold()
            yield from replay.compare()


class _Replay:
    """One walk: the digests of every row whose id falls into this share, as the journal leaves it."""

    def __init__(self, scan: Scan, query: Query, *, share: int, shares: int) -> None:
        self._scan, self._query, self._share, self._shares = scan, query, share, shares
        self._complete = {row[0] for row in query(_COMPLETE, None)}
        self._rows: dict[str, dict[int, _Digests]] = {table: {} for table in _KINDS}

    def fold(self) -> Iterator[Finding]:
        for table_id, seq, table, operation, row_id, before, after in self._changes():
            problem = self._apply(table, operation, row_id, before, after) if row_id % self._shares == self._share else None
            if problem is not None:
                message = f"change {seq} of the journal {problem}: refresh every component from the registry"
                yield JOURNAL_REPLAY.broken(self._scan.name(table_id), f"{table} change {seq}", message)

    def compare(self) -> Iterator[Finding]:
        for table, kind in _KINDS.items():
            replayed = self._rows[table]
            for row in self._current(table, kind):
                if replayed.pop(row[0], None) != _split(kind, _plain(row)):
                    yield self._differs(table, row[0], _owner(table, row), "is not what the journal says")
            for row_id in replayed:
                yield self._differs(table, row_id, _owner_of(table, row_id), "is gone, but the journal says that it exists")

    def _differs(self, table: str, row_id: int, table_id: int | None, how: str) -> Finding:
        message = f"the row {how}: a change was not captured; find out who wrote past the triggers, then refresh every component"
        return JOURNAL_REPLAY.broken(self._scan.name(table_id), f"{table} row {row_id}", message)

    def _changes(self) -> Iterator[Row]:
        table_id, seq = 0, 0
        while page := self._query(_CHANGES, {"table_id": table_id, "seq": seq, "size": _PAGE}):
            table_id, seq = page[-1][:2]
            yield from (row for row in page if row[0] in self._complete)
            self._scan.progress.step(len(page) // self._shares)

    def _apply(self, table: str, operation: str, row_id: int, before: str | None, after: str | None) -> str | None:
        """What is wrong with the change, if anything; its after-image counts from now on either way."""
        try:
            kind, replayed = _KINDS[table], self._rows[table]
            old = None if before is None else _read_image(kind, before)
            new = None if after is None else _read_image(kind, after)
        except (ValueError, KeyError, TypeError) as exc:
            return f"cannot be read ({type(exc).__name__}: {exc})"
        known = replayed.pop(row_id, None)
        if new is not None:
            replayed[row_id] = (new[0] or (known[0] if known else b""), new[1])
        if not _has_images(operation, kind, old, new):
            return f"has not the images of an {operation}"
        if not _agree(known, old) or (operation == "UPDATE" and known and new and new[0] not in (b"", known[0])):
            return f"does not follow the change of row {row_id} before it"
        return None

    def _current(self, table: str, kind: type[rows.Row]) -> Iterator[Row]:
        sql = f"""SELECT {", ".join(list_columns(kind))} FROM {table}
WHERE id > :after AND id - (id / :shares) * :shares = :share ORDER BY id LIMIT :size"""
        after = 0
        while page := self._query(sql, {"after": after, "size": _PAGE, "shares": self._shares, "share": self._share}):
            after = page[-1][0]
            yield from (row for row in page if _owner(table, row) in self._complete)


def _owner(table: str, row: Row) -> int:
    return int(row[0] if table == "tables" else row[1])


def _owner_of(table: str, row_id: int) -> int:
    """Of a row that is gone: ids carry their lake table."""
    return row_id if table == "tables" else row_id >> 40


def _read_image(kind: type[rows.Row], image: str) -> _Digests:
    """A whole row, or only the columns of it that may change."""
    values = json.loads(image)
    if len(values) == sum(_CHANGES_IN[kind]):
        return b"", _digest(values)
    return _split(kind, [value.lower() if column == _HEXED else value for column, value in zip(list_columns(kind), values, strict=True)])


def _split(kind: type[rows.Row], values: list[Any]) -> _Digests:
    pairs = list(zip(_CHANGES_IN[kind], values, strict=True))
    return _digest([value for changes, value in pairs if not changes]), _digest([value for changes, value in pairs if changes])


def _has_images(operation: str, kind: type[rows.Row], old: _Digests | None, new: _Digests | None) -> bool:
    """The last image of a row is whole, as the first one is: readers complete the images in between from it."""
    match operation, old, new:
        case ("INSERT", None, (frozen, _)) | ("DELETE", (frozen, _), None):
            return bool(frozen)
        case "UPDATE", (_, _), (frozen, _):
            return bool(frozen) or kind in PARTIAL_IMAGE
        case _:
            return False


def _agree(known: _Digests | None, old: _Digests | None) -> bool:
    """Whether the row stood as the before-image says; what that leaves out cannot have changed."""
    if known is None or old is None:
        return known is old
    return old[1] == known[1] and old[0] in (b"", known[0])


def _plain(row: Row) -> list[Any]:
    """A stored row as an image spells it: bytes as hex."""
    return [bytes(value).hex() if isinstance(value, bytes | memoryview) else value for value in row]


def _digest(values: list[Any]) -> bytes:
    return hashlib.blake2b(repr(values).encode(), digest_size=16).digest()


LONG_PASSES = (Pass(rules=(JOURNAL_REPLAY,), over="change_log", find=find_differences),)
