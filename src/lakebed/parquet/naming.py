"""Field ids for a file whose writer gave it none: its footer is written anew, its rows are not touched.

Spark gives ids only through a projection of every column, which takes a small insert longer to plan than everything that
Lakebed does. Like an upgraded footer, all bytes but the new ones are copied as they lie.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lakebed.core.errors import FooterCorruptError, UnreadableFileError
from lakebed.parquet.compact import I32, STRUCT, Reader, corrupt, encode_header, encode_integer, is_relative, refuse_truncated
from lakebed.parquet.framing import find_meta, frame
from lakebed.parquet.tail import read_tail

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebed.storage.access import Storage

_SCHEMA = 2  # FileMetaData.schema
_NAME, _CHILDREN, _FIELD_ID = 4, 5, 9  # of SchemaElement


def give_ids(storage: Storage, path: str, ids: Mapping[str, int]) -> None:
    """Write the field ids of a flat file's columns into its footer; the file is not durable afterwards."""
    facts = storage.stat(path)
    tail = read_tail(partial(storage.read_range, path), facts.size_bytes, path=path)
    try:
        named = frame(add_ids(find_meta(tail), ids))
    except FooterCorruptError as exc:
        raise UnreadableFileError(path, reason=str(exc)) from exc
    storage.replace_end(path, facts.size_bytes - len(tail), named)


@refuse_truncated
def add_ids(meta: bytes, ids: Mapping[str, int]) -> bytes:
    """The metadata of a flat file, each of whose columns is named in `ids` and has no id yet."""
    reader = Reader(meta)
    pieces: list[bytes] = []
    reached = 0
    for field_id, kind, _ in reader.fields():
        if field_id != _SCHEMA:
            reader.skip(kind)
            continue
        for number in reader.structs(kind):
            if number == 0:
                reader.skip(STRUCT)  # the root
                continue
            place, past, written = _place_id(reader, ids)
            pieces += (meta[reached:place], written)
            reached = past
    return b"".join((*pieces, meta[reached:]))


def _place_id(reader: Reader, ids: Mapping[str, int]) -> tuple[int, int, bytes]:
    """Where the id of the column that begins here goes, up to which byte it replaces what lies there, and with what."""
    previous, name = 0, ""
    place: tuple[int, int, int, int] | None = None  # of the first field behind: header, value, id, kind
    for field_id, kind, start in reader.fields():
        if field_id in {_FIELD_ID, _CHILDREN}:
            raise corrupt("a column has an id already, or columns of its own")
        value = reader.position
        if field_id == _NAME:
            name = reader.require_text(kind)
        else:
            reader.skip(kind)
        if field_id < _FIELD_ID:
            previous = field_id
        elif place is None:
            place = (start, value, field_id, kind)
    if name not in ids:
        raise corrupt(f"column {name!a} is none of the table's")
    written = encode_header(_FIELD_ID, I32, previous=previous) + encode_integer(ids[name])
    if place is None:
        stop = reader.position - 1
        return stop, stop, written
    start, value, field_id, kind = place
    if not is_relative(reader.buffer[start]):
        return start, start, written
    return start, value, written + encode_header(field_id, kind, previous=_FIELD_ID)
