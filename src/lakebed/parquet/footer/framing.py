"""One shape for every footer: `FileMetaData + length + PAR1`, whatever it was wrapped in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.errors import FooterCorruptError, LimitExceededError, UnreadableFileError
from lakebed.parquet.footer.thrift import require_struct

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """Where the frame says the metadata is; the caller proves the content."""
    # A struct ends with a zero byte, so bare metadata can never be taken for a frame.
    return _cut(blob) if blob.endswith((MAGIC, ENCRYPTED_MAGIC)) else blob


def frame(meta: bytes) -> bytes:
    if len(meta) > _MAX_META:
        message = f"metadata of {len(meta)} bytes is longer than a Parquet footer can be"
        raise FooterCorruptError(message)
    return b"".join((meta, len(meta).to_bytes(_LENGTH_BYTES, "little"), MAGIC))


def meta_length(trailer: bytes) -> int:
    """The length that the last eight bytes of a file give."""
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


MAX_FOOTER_BYTES = 16 << 20
_FIRST_READ = 64 << 10
_SMALLEST = len(MAGIC) + TRAILER_BYTES


def read_tail(read_range: Callable[[int, int], bytes], size: int, *, path: str, limit: int = MAX_FOOTER_BYTES) -> bytes:
    """`FileMetaData + length + PAR1` of a file of `size` bytes; `read_range(offset, length)` reads it.

    The metadata itself is not parsed here: only the frame is proven.
    """
    if size < _SMALLEST:
        raise UnreadableFileError(path, reason=f"it has {size} bytes, too few for a Parquet file")
    source = _Source(read_range, size, path)
    near = source.read(max(size - _FIRST_READ, 0))
    _require_magic(near[-len(MAGIC) :], path, where="ends")
    _require_magic(near[: len(MAGIC)] if len(near) == size else source.read(0, len(MAGIC)), path, where="begins")
    wanted = _tail_bytes(near, size, path=path, limit=limit)
    return near[-wanted:] if wanted <= len(near) else source.read(size - wanted, wanted - len(near)) + near


class _Source:
    def __init__(self, read_range: Callable[[int, int], bytes], size: int, path: str) -> None:
        self._read_range, self._size, self._path = read_range, size, path

    def read(self, offset: int, length: int | None = None) -> bytes:
        wanted = self._size - offset if length is None else length
        found = self._read_range(offset, wanted)
        if len(found) != wanted:
            raise UnreadableFileError(self._path, reason=f"it became shorter than {self._size} bytes while it was read")
        return found


def _require_magic(found: bytes, path: str, *, where: str) -> None:
    if found == ENCRYPTED_MAGIC:
        raise UnreadableFileError(path, reason="its footer is encrypted")
    if found != MAGIC:
        raise UnreadableFileError(path, reason=f"it {where} with {found!r}, not with PAR1: it is torn or not a Parquet file")


def _tail_bytes(near: bytes, size: int, *, path: str, limit: int) -> int:
    length = meta_length(near)
    if not 0 < length <= size - _SMALLEST:
        raise UnreadableFileError(path, reason=f"its footer claims {length} bytes of metadata in a file of {size} bytes")
    if length > limit:
        raise LimitExceededError(path, limit=f"{limit} bytes of footer")
    return length + TRAILER_BYTES
