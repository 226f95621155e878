"""The change journal: read in order, decoded once, purged behind the slowest reader."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import JournalGapError, UndecodableChangeError
from lakebed.core.events import ROW_TYPES, ChangeKind, Component, Event, RegistryTable
from lakebed.core.rows import PARTIAL_IMAGE, Row, TableFiles, list_changing_columns, list_columns
from lakebed.core.times import from_micros
from lakebed.registry.codec import decode_row
from lakebed.registry.ids import ID_BITS, ids_of_table

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lakebed.core.rows import Row
    from lakebed.registry.backends.protocol import Queryable, RawRows
    from lakebed.registry.registry import Registry

CHANGE_COLUMNS = "seq, registry_table, operation, row_id, before, after, at"
DEFAULT_CAP = 1_000_000
_PURGE_BATCH = 5000
_READ = f"""SELECT {CHANGE_COLUMNS} FROM change_log
WHERE id > (:table_id << {ID_BITS}) + :after AND id < ((:table_id + 1) << {ID_BITS}) ORDER BY id LIMIT :limit"""
_OF_FILES = f"{ids_of_table()} AND registry_table = 'table_files'"
_FILE_ID = "SELECT id FROM table_files WHERE file_path = :path"
_LAST_ID = f"SELECT row_id FROM change_log WHERE {_OF_FILES} AND operation = 'DELETE' AND before LIKE :pattern ESCAPE '!'"
_READ_OF = f"SELECT {CHANGE_COLUMNS} FROM change_log WHERE {_OF_FILES} AND row_id = :row_id ORDER BY id"
_PURGE = f"DELETE FROM change_log WHERE id > (:table_id << {ID_BITS}) AND id <= (:table_id << {ID_BITS}) + :upto"
_ENDS = "SELECT last_seq, purged_seq FROM table_seq WHERE table_id = :table_id"
_END = "SELECT last_seq FROM table_seq WHERE table_id = :table_id"
_ALL_ENDS = "SELECT table_id, last_seq FROM table_seq"
_SOME_ENDS = f"{_ALL_ENDS} WHERE table_id IN (:ids*)"
_CURSORS = "SELECT component, seq, epoch, needs_refresh FROM subscriber_cursor WHERE table_id = :table_id"
_MARK = """INSERT INTO subscriber_cursor (component, table_id, seq, epoch, needs_refresh, updated_at)
VALUES (:component, :table_id, 0, 1, 1, :now)
ON CONFLICT (component, table_id) DO UPDATE SET epoch = subscriber_cursor.epoch + 1, needs_refresh = 1, updated_at = excluded.updated_at"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far a component has come in one table's journal."""

    component: Component
    seq: int
    epoch: int
    needs_refresh: bool


def read_changes(reader: Queryable, table_id: int, *, after: int, limit: int = 1000) -> list[Event[Row]]:
    """The next changes after `after`, dense and in commit order; a missing number is a typed error, never skipped."""
    rows = reader.query(_READ, {"table_id": table_id, "after": after, "limit": limit})
    expected = after + 1
    for row in rows:
        if row[0] != expected:
            raise JournalGapError(table_id, expected=expected, found=row[0])
        expected += 1
    if not rows:
        _require_nothing_lost(reader, table_id, after)
    return decode_changes(reader, table_id, rows)


def find_change(reader: Queryable, table_id: int, number: int) -> Event[Row] | None:
    """The change of this number, where the journal still holds it."""
    rows = reader.query(_READ, {"table_id": table_id, "after": number - 1, "limit": 1})
    return decode_changes(reader, table_id, rows)[0] if rows and rows[0][0] == number else None


def last_journal_numbers(reader: Queryable, tables: Collection[int] | None = None) -> dict[int, int]:
    """The last number of every table's journal, which the sweep compares with its cursors, or of these tables' alone."""
    rows = reader.query(_ALL_ENDS) if tables is None else reader.query(_SOME_ENDS, {"ids": sorted(tables)})
    return {row[0]: row[1] for row in rows}


def last_journal_number(reader: Queryable, table_id: int) -> int:
    """The number of the table's newest change, as of this snapshot; 0 where there is none."""
    rows = reader.query(_END, {"table_id": table_id})
    return int(rows[0][0]) if rows else 0


def last_and_purged_numbers(reader: Queryable) -> dict[int, tuple[int, int]]:
    """The last number of every table's journal, and the last one that was purged."""
    return {row[0]: (row[1], row[2]) for row in reader.query("SELECT table_id, last_seq, purged_seq FROM table_seq")}


def list_cursors(reader: Queryable, table_id: int) -> dict[Component, Cursor]:
    found = {
        Component(row[0]): Cursor(component=Component(row[0]), seq=row[1], epoch=row[2], needs_refresh=bool(row[3]))
        for row in reader.query(_CURSORS, {"table_id": table_id})
    }
    start = {c: Cursor(component=c, seq=0, epoch=0, needs_refresh=False) for c in Component}
    return start | found


def purge_journal(registry: Registry, table_id: int, *, cap: int = DEFAULT_CAP) -> int:
    """Delete what every component has passed; a component more than `cap` behind must refresh and no longer holds back the purge."""
    purged = 0
    with registry.write([table_id]) as tx:
        last, done = tx.query(_ENDS, {"table_id": table_id})[0]
        floor = last
        for cursor in list_cursors(tx, table_id).values():
            if cursor.needs_refresh:
                continue
            if last - cursor.seq > cap:
                tx.run(_MARK, {"component": cursor.component.value, "table_id": table_id, "now": tx.now})
            else:
                floor = min(floor, cursor.seq)
    while done < floor:  # bounded transactions: a long delete would hold up the writers
        upto = min(floor, done + _PURGE_BATCH)
        with registry.write([table_id]) as tx:
            purged += tx.run(_PURGE, {"table_id": table_id, "upto": upto})
            tx.run("UPDATE table_seq SET purged_seq = :upto WHERE table_id = :table_id", {"table_id": table_id, "upto": upto})
        done = upto
    return purged


def _require_nothing_lost(reader: Queryable, table_id: int, after: int) -> None:
    ends = reader.query(_ENDS, {"table_id": table_id})
    if ends and after < ends[0][1]:  # purged past this cursor
        raise JournalGapError(table_id, expected=after + 1, found=ends[0][1] + 1)


def read_changes_of(reader: Queryable, table_id: int, path: str) -> list[Event[Row]]:
    """The changes of one file that the journal still holds. Walks the table's whole journal: for interactive use."""
    escaped = json.dumps(path).replace("!", "!!").replace("%", "!%").replace("_", "!_")
    known = reader.query(_FILE_ID, {"path": path}) or reader.query(_LAST_ID, {"table_id": table_id, "pattern": f"%{escaped}%"})
    return decode_changes(reader, table_id, reader.query(_READ_OF, {"table_id": table_id, "row_id": known[0][0]})) if known else []


_COLUMNS = {kind: list_columns(kind) for kind in ROW_TYPES.values()}
_CHANGING = {kind: list_changing_columns(kind) for kind in ROW_TYPES.values()}
_FILES = f"SELECT {', '.join(_COLUMNS[TableFiles])} FROM table_files WHERE id IN (:ids*)"
_DELETED = "SELECT row_id, before FROM change_log WHERE row_id IN (:ids*) AND registry_table = 'table_files' AND operation = 'DELETE'"


def decode_changes(reader: Queryable, table_id: int, rows: RawRows) -> list[Event[Row]]:
    """Rows of `CHANGE_COLUMNS` as events."""
    files = _find_files(reader, rows)
    return [_decode(table_id, row, files) for row in rows]


def _find_files(reader: Queryable, rows: RawRows) -> dict[int, Sequence[Any]]:
    """The files that UPDATEs refer to, for the columns that never change.

    No snapshot is needed: a row that goes between the two questions has left the image of its deletion by then.
    """
    wanted = {row[3] for row in rows if row[1] == RegistryTable.TABLE_FILES and row[2] == ChangeKind.UPDATE}
    found: dict[int, Sequence[Any]] = {row[0]: row for row in reader.query(_FILES, {"ids": sorted(wanted)})} if wanted else {}
    if gone := wanted - found.keys():
        for row_id, before in reader.query(_DELETED, {"ids": sorted(gone)}):
            with suppress(ValueError, TypeError):  # damaged: the change that needs it reports that
                found[row_id] = json.loads(before)
    return found


def _decode(table_id: int, row: tuple[Any, ...], files: Mapping[int, Sequence[Any]]) -> Event[Row]:
    seq, table_name, operation_name, row_id, before_text, after_text, at = row
    try:
        table, operation = RegistryTable(table_name), ChangeKind(operation_name)
        kind = ROW_TYPES[table]
        after: list[Any] | None = json.loads(after_text) if after_text else None
        before: list[Any] | None = json.loads(before_text) if before_text else None
        if after is not None and before is not None:
            if kind in PARTIAL_IMAGE and len(after) == len(_CHANGING[kind]):
                after = _merge(kind, files[row_id], after)
            before = _merge(kind, after, before)
        return Event(
            table=table,
            operation=operation,
            data=decode_row(kind, before or [] if after is None else after),
            before=None if before is None else decode_row(kind, before),
            table_id=table_id,
            sequence=seq,
            timestamp=from_micros(at),
        )
    except KeyError as exc:
        message = f"change {seq} of table {table_id} is of {table_name} row {row_id}, which is gone without a recorded deletion"
        raise UndecodableChangeError(f"{message}: refresh the component from the registry") from exc
    except (ValueError, TypeError) as exc:
        message = f"change {seq} of table {table_id} does not fit {table_name}: {exc}; the registry and this program differ in version"
        raise UndecodableChangeError(message) from exc


def _merge(kind: type[Row], whole: Sequence[Any], changed: Sequence[Any]) -> list[Any]:
    """What may change from `changed`, the rest from any whole image of the same row."""
    own = dict(zip(_CHANGING[kind], changed, strict=True))
    return [own.get(column, value) for column, value in zip(_COLUMNS[kind], whole, strict=True)]
