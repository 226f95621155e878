"""Changing a footer's metadata: only the bytes that must change are written anew.

Everything else, fields that nobody knows yet included, is copied as it lies.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from lakebed.parquet.footer.thrift import encode_header, encode_integer, is_relative

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Edit(NamedTuple):
    """The bytes from `start` to `end` become `replacement`."""

    start: int
    end: int
    replacement: bytes


class Field(NamedTuple):
    """Where a field of a struct lies: its header from `start`, its value from `value` to `end`."""

    field_id: int
    kind: int
    start: int
    value: int
    end: int


def put_integer(meta: bytes, fields: Sequence[Field], field_id: int, kind: int, number: int, *, stop: int) -> Edit:
    """Write a field that the struct lacks where its id belongs; `fields` are all of it, and `stop` is where it ends."""
    place = next((index for index, field in enumerate(fields) if field.field_id > field_id), len(fields))
    written = encode_header(field_id, kind, previous=fields[place - 1].field_id if place else 0) + encode_integer(number)
    if place == len(fields):
        return Edit(stop, stop, written)
    after = fields[place]
    if not is_relative(meta[after.start]):
        return Edit(after.start, after.start, written)
    return Edit(after.start, after.value, written + encode_header(after.field_id, after.kind, previous=field_id))


def apply_edits(meta: bytes, edits: Iterable[Edit]) -> bytes:
    pieces: list[bytes] = []
    position = 0
    for edit in sorted(edits, key=itemgetter(0)):
        pieces += (meta[position : edit.start], edit.replacement)
        position = edit.end
    return b"".join((*pieces, meta[position:]))
