"""Format version 1 to 2: true row counts, and no pointers to page indexes that cannot be used.

Only the bytes that must change are rewritten. Everything else, unknown fields
included, is copied unchanged.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from lakebed.core.errors import FooterRowsError
from lakebed.core.files import Footer
from lakebed.parquet.footer.framing import find_meta, frame
from lakebed.parquet.footer.thrift import (
    I32,
    I64,
    Edit,
    ThriftField,
    ThriftReader,
    apply_edits,
    corrupt,
    encode_header,
    encode_integer,
    is_relative,
    put_integer,
    refuse_truncated,
    require_end,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# FileMetaData, RowGroup and ColumnChunk, as the Parquet specification numbers their fields.
_SCHEMA, _FILE_ROWS, _ROW_GROUPS = 2, 3, 4
_GROUP_COLUMNS, _GROUP_ROWS, _GROUP_SIZE = 1, 3, 6
_INDEXES = {"offset index": (4, 5), "column index": (6, 7)}  # offset and length
_POINTERS = frozenset(field_id for index in _INDEXES.values() for field_id in index)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """What a footer says of its rows: the file level (None when absent) and the sum of the row groups."""

    file_rows: int | None
    row_group_rows: int


class Pointer(NamedTuple):
    """A stretch of the file that a footer names; `column` is the number of a column chunk."""

    what: str
    row_group: int
    column: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointers:
    """What pyarrow does not show of a footer: where page indexes are, and how many bytes each row group claims, where it says so."""

    indexes: list[Pointer] = field(default_factory=list)
    group_sizes: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Survey:
    """One pass over all the metadata, which proves its form: its counts, and the edits that would change it."""

    counts: RowCounts
    strip: list[Edit]
    set_rows: Edit
    pointers: Pointers


def upgrade_v1(blob: bytes, *, registry_rows: int | None) -> Footer:
    """A version 1 footer, however framed, as version 2; `registry_rows` is None once the partition is retired."""
    meta = find_meta(blob)
    survey = _survey(meta)
    rows = _require_rows(survey.counts, registry_rows)
    edits = survey.strip if survey.counts.file_rows else [*survey.strip, survey.set_rows]
    tail = frame(apply_edits(meta, edits))
    return Footer(tail=tail, num_rows=rows, checksum=hashlib.sha256(tail).hexdigest())


def count_rows(meta: bytes) -> RowCounts:
    """Both counts; `meta` is proven to be one well-formed struct that every reader takes for the same."""
    return _survey(meta).counts


def list_pointers(meta: bytes) -> Pointers:
    """The pointers of a footer; its form is proven as by `count_rows`."""
    return _survey(meta).pointers


def _require_rows(counts: RowCounts, registry_rows: int | None) -> int:
    rows = counts.row_group_rows
    if counts.file_rows and counts.file_rows != rows:
        raise FooterRowsError(footer_rows=rows, registry_rows=counts.file_rows, source="its file level")
    if registry_rows is not None and registry_rows != rows:
        raise FooterRowsError(footer_rows=rows, registry_rows=registry_rows)
    return rows


@refuse_truncated
def _survey(meta: bytes) -> _Survey:
    reader = ThriftReader(meta)
    fields: list[ThriftField] = []
    strip: list[Edit] = []
    pointers = Pointers()
    file_rows: int | None = None
    group_rows = 0
    for field_id, kind, start in reader.fields():
        value = reader.position
        if field_id == _FILE_ROWS:
            file_rows = _read_rows(reader, kind)
        elif field_id == _ROW_GROUPS:
            group_rows = sum(_survey_group(reader, strip, pointers, number) for number in reader.structs(kind))
        else:
            reader.skip(kind)
        fields.append(ThriftField(field_id, kind, start, value, reader.position))
    require_end(reader)
    _require_once([field.field_id for field in fields], _SCHEMA, _FILE_ROWS, _ROW_GROUPS)
    counts = RowCounts(file_rows=file_rows, row_group_rows=group_rows)
    return _Survey(counts=counts, strip=strip, set_rows=_rows_edit(meta, fields, group_rows), pointers=pointers)


def _survey_group(reader: ThriftReader, strip: list[Edit], pointers: Pointers, number: int) -> int:
    seen: list[int] = []
    rows = 0
    for field_id, kind, _ in reader.fields():
        seen.append(field_id)
        if field_id == _GROUP_COLUMNS:
            for column in reader.structs(kind):
                found = _survey_chunk(reader, strip)
                pointers.indexes.extend(_indexes(found, number, column) if found else ())
        elif field_id == _GROUP_ROWS:
            rows = _read_rows(reader, kind)
        elif field_id == _GROUP_SIZE:
            pointers.group_sizes[number] = _read_number(reader, kind)
        else:
            reader.skip(kind)
    _require_once(seen, _GROUP_COLUMNS, _GROUP_ROWS)
    if _GROUP_ROWS not in seen:
        raise corrupt("a row group has no row count")
    return rows


def _survey_chunk(reader: ThriftReader, strip: list[Edit]) -> dict[int, int]:
    """The numbers of the chunk's index pointers by field id."""
    found: dict[int, int] = {}
    kept = 0
    is_cut = False
    for field_id, kind, start in reader.fields():
        value = reader.position
        if field_id in _POINTERS:
            found[field_id] = _read_number(reader, kind)
            strip.append(Edit(start, reader.position, b""))
            is_cut = True
            continue
        reader.skip(kind)
        if is_cut and is_relative(reader.buffer[start]):
            strip.append(Edit(start, value, encode_header(field_id, kind, previous=kept)))
        kept, is_cut = field_id, False
    return found


def _indexes(found: dict[int, int], row_group: int, column: int) -> Iterator[Pointer]:
    for what, (offset, length) in _INDEXES.items():
        if offset in found or length in found:
            yield Pointer(what, row_group, column, found.get(offset, 0), found.get(length, 0))


def _read_number(reader: ThriftReader, kind: int) -> int:
    """Zero for what is not a number: every reader passes over a field of another type."""
    if kind in (I32, I64):
        return reader.integer()
    reader.skip(kind)
    return 0


def _read_rows(reader: ThriftReader, kind: int) -> int:
    if kind != I64 or (rows := reader.integer()) < 0:
        raise corrupt("a row count is not a number of rows")
    return rows


def _require_once(seen: list[int], *wanted: int) -> None:
    """Of a field that occurs twice some readers take the first and some the last."""
    if any(seen.count(field_id) > 1 for field_id in wanted):
        raise corrupt("a field occurs twice")


def _rows_edit(meta: bytes, fields: list[ThriftField], rows: int) -> Edit:
    """Write the file-level row count over the old one, or put it where its id belongs."""
    if found := next((field for field in fields if field.field_id == _FILE_ROWS), None):
        return Edit(found.value, found.end, encode_integer(rows))
    return put_integer(meta, fields, _FILE_ROWS, I64, rows, stop=fields[-1].end if fields else 0)
