"""The last bytes of a file, in one or two reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.errors import LimitExceededError, UnreadableFileError
from lakebed.parquet.footer.framing import ENCRYPTED_MAGIC, MAGIC, TRAILER_BYTES, meta_length

if TYPE_CHECKING:
    from collections.abc import Callable

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
        raise UnreadableFileError(path, reason=f"it {where} with {found!r}, not with PAR1: it is torn or no Parquet file")


def _tail_bytes(near: bytes, size: int, *, path: str, limit: int) -> int:
    length = meta_length(near)
    if not 0 < length <= size - _SMALLEST:
        raise UnreadableFileError(path, reason=f"its footer claims {length} bytes of metadata in a file of {size} bytes")
    if length > limit:
        raise LimitExceededError(path, limit=f"{limit} bytes of footer")
    return length + TRAILER_BYTES
