"""From rows of the journal to typed events: images are completed, and decoded once."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import UndecodableChangeError
from lakebed.core.events import ROW_TYPES, Event, Operation, RegistryTable
from lakebed.core.rows import ABRIDGED, Row, TableFiles, list_changing_columns, list_columns
from lakebed.core.times import from_micros
from lakebed.registry.codec import decode_row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.registry.backends.protocol import Rows
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Reader, Transaction

CHANGE_COLUMNS = "seq, registry_table, operation, row_id, before, after, at"
_COLUMNS = {kind: list_columns(kind) for kind in ROW_TYPES.values()}
_CHANGING = {kind: list_changing_columns(kind) for kind in ROW_TYPES.values()}
_FILES = f"SELECT {', '.join(_COLUMNS[TableFiles])} FROM table_files WHERE id IN (:ids*)"
_DELETED = "SELECT row_id, before FROM change_log WHERE row_id IN (:ids*) AND registry_table = 'table_files' AND operation = 'DELETE'"


def decode_changes(reader: Registry | Reader | Transaction, table_id: int, rows: Rows) -> list[Event[Row]]:
    """Rows of `CHANGE_COLUMNS` as events."""
    files = _find_files(reader, rows)
    return [_decode(table_id, row, files) for row in rows]


def _find_files(reader: Registry | Reader | Transaction, rows: Rows) -> dict[int, Sequence[Any]]:
    """The files that UPDATEs tell of, for the columns that never change.

    No snapshot is needed: a row that goes between the two questions has left the image of its deletion by then.
    """
    wanted = {row[3] for row in rows if row[1] == RegistryTable.TABLE_FILES and row[2] == Operation.UPDATE}
    found: dict[int, Sequence[Any]] = {row[0]: row for row in reader.query(_FILES, {"ids": sorted(wanted)})} if wanted else {}
    if gone := wanted - found.keys():
        for row_id, before in reader.query(_DELETED, {"ids": sorted(gone)}):
            with suppress(ValueError, TypeError):  # damaged: told by the change that needs it
                found[row_id] = json.loads(before)
    return found


def _decode(table_id: int, row: tuple[Any, ...], files: Mapping[int, Sequence[Any]]) -> Event[Row]:
    seq, table_name, operation_name, row_id, before_text, after_text, at = row
    try:
        table, operation = RegistryTable(table_name), Operation(operation_name)
        kind = ROW_TYPES[table]
        after: list[Any] | None = json.loads(after_text) if after_text else None
        before: list[Any] | None = json.loads(before_text) if before_text else None
        if after is not None and before is not None:
            if kind in ABRIDGED and len(after) == len(_CHANGING[kind]):
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
        message = f"change {seq} of table {table_id} is of {table_name} row {row_id}, which is gone without a change that tells of it"
        raise UndecodableChangeError(f"{message}: refresh the component from the registry") from exc
    except (ValueError, TypeError) as exc:
        message = f"change {seq} of table {table_id} does not fit {table_name}: {exc}; the registry and this program differ in version"
        raise UndecodableChangeError(message) from exc


def _merge(kind: type[Row], whole: Sequence[Any], changed: Sequence[Any]) -> list[Any]:
    """What may change from `changed`, the rest from any whole image of the same row."""
    own = dict(zip(_CHANGING[kind], changed, strict=True))
    return [own.get(column, value) for column, value in zip(_COLUMNS[kind], whole, strict=True)]
