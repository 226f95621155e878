"""Footers that `migrate-footers` upgraded differ from their file's tail in two known ways; this proves that there are no other differences.

A reader of the compact protocol of its own, for that comparison alone.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

MAGIC = b"PAR1"
TRAILER_BYTES = 8
_MAX_DEPTH = 32
_LONG_LIST = 15
_DOUBLE_BYTES = 8

# Of FileMetaData, RowGroup and ColumnChunk, as the Parquet specification numbers their fields
_FILE_ROWS, _ROW_GROUPS = 3, 4
_GROUP_COLUMNS, _GROUP_ROWS = 1, 3
_INDEX_POINTERS = frozenset({4, 5, 6, 7})

Struct = dict[int, Any]


class _Kind(IntEnum):
    TRUE = 1
    FALSE = 2
    BYTE = 3
    I16 = 4
    I32 = 5
    I64 = 6
    DOUBLE = 7
    BINARY = 8
    LIST = 9
    SET = 10
    MAP = 11
    STRUCT = 12


def is_upgrade_of(stored: bytes, tail: bytes) -> bool:
    """Whether `stored` is `tail` without page-index pointers, and with the row count that its row groups add up to."""
    try:
        upgraded, original = _read(stored), _read(tail)
        groups = original[_ROW_GROUPS]
        for group in groups:
            group[_GROUP_COLUMNS] = [{k: v for k, v in chunk.items() if k not in _INDEX_POINTERS} for chunk in group[_GROUP_COLUMNS]]
        original[_FILE_ROWS] = sum(group[_GROUP_ROWS] for group in groups)
    except (ValueError, LookupError, TypeError, AttributeError):
        return False
    return upgraded == original


def read_footer(tail: bytes) -> Struct | None:
    """The fields of a framed footer by their numbers; None when it cannot be read."""
    try:
        return _read(tail)
    except (ValueError, LookupError, TypeError):
        return None


def _read(tail: bytes) -> Struct:
    length = len(tail) - TRAILER_BYTES
    if not tail.endswith(MAGIC) or int.from_bytes(tail[length : length + 4], "little") != length:
        message = "no frame"
        raise ValueError(message)
    reader = _Compact(tail[:length])
    struct = reader.struct(0)
    if reader.position != length:
        message = "bytes after the end"
        raise ValueError(message)
    return struct


class _Compact:
    def __init__(self, data: bytes) -> None:
        self._data, self.position = data, 0

    def struct(self, depth: int) -> Struct:
        self._require_depth(depth)
        fields: Struct = {}
        field_id = 0
        while header := self._byte():
            field_id = field_id + (header >> 4) if header >> 4 else self._zigzag()
            kind = _Kind(header & 15)
            fields[field_id] = kind is _Kind.TRUE if kind <= _Kind.FALSE else self._value(kind, depth)
        return fields

    def _value(self, kind: _Kind, depth: int) -> Any:
        match kind:
            case _Kind.TRUE | _Kind.FALSE | _Kind.BYTE:
                return self._byte()
            case _Kind.I16 | _Kind.I32 | _Kind.I64:
                return self._zigzag()
            case _Kind.DOUBLE:
                return self._read_bytes(_DOUBLE_BYTES)
            case _Kind.BINARY:
                return self._read_bytes(self._varint())
            case _Kind.LIST | _Kind.SET:
                return self._list(depth)
            case _Kind.MAP:
                return self._map(depth)
            case _Kind.STRUCT:
                return self.struct(depth + 1)

    def _require_depth(self, depth: int) -> None:
        if depth > _MAX_DEPTH:
            message = "too deep"
            raise ValueError(message)

    def _list(self, depth: int) -> list[Any]:
        self._require_depth(depth)
        header = self._byte()
        count = header >> 4 if header >> 4 != _LONG_LIST else self._varint()
        kind = _Kind(header & 15)
        return [self._value(kind, depth + 1) for _ in range(self._bounded(count))]

    def _map(self, depth: int) -> list[Any]:
        self._require_depth(depth)
        if not (count := self._bounded(self._varint())):
            return []
        kinds = self._byte()
        key, value = _Kind(kinds >> 4), _Kind(kinds & 15)
        return [(self._value(key, depth + 1), self._value(value, depth + 1)) for _ in range(count)]

    def _bounded(self, count: int) -> int:
        """Every element takes a byte at least, so a crafted count ends here."""
        if count > len(self._data) - self.position:
            message = "more elements than bytes"
            raise ValueError(message)
        return count

    def _byte(self) -> int:
        self.position += 1
        return self._data[self.position - 1]

    def _read_bytes(self, length: int) -> bytes:
        taken = self._data[self.position : self.position + self._bounded(length)]
        self.position += length
        return taken

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
