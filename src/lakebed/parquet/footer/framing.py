"""One shape for every footer: `FileMetaData + length + PAR1`, whatever it was wrapped in."""

from __future__ import annotations

from lakebed.core.errors import FooterCorruptError
from lakebed.parquet.footer.thrift import require_struct

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
TRAILER_BYTES = 8  # the length of the metadata and the magic
_LENGTH_BYTES = 4
_MAX_META = (1 << 32) - 1


def normalize(blob: bytes) -> bytes:
    """The tail inside `blob`: bare metadata, a tail with or without page indexes before it, or a whole file."""
    meta = unframe(blob)
    framed_bytes = len(meta) + TRAILER_BYTES
    return blob if framed_bytes == len(blob) else frame(meta)


def unframe(blob: bytes) -> bytes:
    """The bare metadata inside `blob`, proven to be exactly one thrift struct."""
    meta = find_meta(blob)
    require_struct(meta)
    return meta


def find_meta(blob: bytes) -> bytes:
    """Where the frame says the metadata is; what lies there is for the caller to prove."""
    # A struct ends with a zero byte, so bare metadata can never be taken for a frame.
    return _cut(blob) if blob.endswith((MAGIC, ENCRYPTED_MAGIC)) else blob


def frame(meta: bytes) -> bytes:
    if len(meta) > _MAX_META:
        message = f"metadata of {len(meta)} bytes is longer than a Parquet footer can be"
        raise FooterCorruptError(message)
    return b"".join((meta, len(meta).to_bytes(_LENGTH_BYTES, "little"), MAGIC))


def meta_length(trailer: bytes) -> int:
    """The length that the last eight bytes of a file tell."""
    return int.from_bytes(trailer[-TRAILER_BYTES:-_LENGTH_BYTES], "little")


def _cut(blob: bytes) -> bytes:
    if blob.endswith(ENCRYPTED_MAGIC):
        message = "the footer is encrypted (PARE): store the file without footer encryption"
        raise FooterCorruptError(message)
    length, room = meta_length(blob), len(blob) - TRAILER_BYTES
    if not 0 < length <= room:
        message = f"the footer claims {length} bytes of metadata, {max(room, 0)} are there"
        raise FooterCorruptError(message)
    return blob[room - length : room]
