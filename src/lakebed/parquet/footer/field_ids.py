"""Field ids for a file whose writer gave it none: its footer is rewritten, its rows are not touched.

Spark gives ids only through a projection of every column, which takes a small insert longer to plan than everything that
Lakebed does. Like an upgraded footer, all bytes but the new ones are copied unchanged.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lakebed.core.errors import FooterCorruptError, UnreadableFileError
from lakebed.parquet.footer.framing import find_meta, frame, read_tail
from lakebed.parquet.footer.thrift import I32, STRUCT, Edit, ThriftField, ThriftReader, apply_edits, corrupt, put_integer, refuse_truncated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebed.storage.protocol import Storage

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
    reader = ThriftReader(meta)
    edits: list[Edit] = []
    for field_id, kind, _ in reader.fields():
        if field_id != _SCHEMA:
            reader.skip(kind)
            continue
        for number in reader.structs(kind):
            if number == 0:
                reader.skip(STRUCT)  # the root
            else:
                edits.append(_name(reader, ids))
    return apply_edits(meta, edits)


def _name(reader: ThriftReader, ids: Mapping[str, int]) -> Edit:
    """Skips the column that begins here."""
    fields: list[ThriftField] = []
    name = ""
    for field_id, kind, start in reader.fields():
        if field_id in {_FIELD_ID, _CHILDREN}:
            raise corrupt("a column has an id already, or columns of its own")
        value = reader.position
        if field_id == _NAME:
            name = reader.require_text(kind)
        else:
            reader.skip(kind)
        fields.append(ThriftField(field_id, kind, start, value, reader.position))
    if name not in ids:
        raise corrupt(f"column {name!a} is not a column of the table")
    return put_integer(reader.buffer, fields, _FIELD_ID, I32, ids[name], stop=reader.position - 1)
