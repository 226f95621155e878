"""Avro's container files, block by block: what one manifest takes over from another is copied, not decoded."""

from __future__ import annotations

import secrets
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.core.errors import FileChangedError
from lakebed.iceberg.locations import from_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CODEC = b"deflate"
BLOCK_BYTES = 32 << 10  # of entries, before they are packed
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_RAW = -15  # Avro's deflate has neither header nor checksum
_LEVEL = 3  # measured: level 6 takes twice as long for the same size
_MORE, _BITS = 0x80, 7
_UNREADABLE = (ValueError, LookupError, zlib.error)


@dataclass(frozen=True, slots=True)
class Block:
    """Entries as the file holds them."""

    count: int
    packed: bytes

    def unpack(self) -> bytes:
        return zlib.decompress(self.packed, _RAW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    header: Mapping[str, bytes]
    blocks: tuple[Block, ...]

    @property
    def is_packed(self) -> bool:
        return self.header.get("avro.codec") == CODEC


class BlockBuilder:
    """Packs entries into blocks of about the same size; whole blocks of other files may come in between."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.packed_bytes = 0
        self._waiting: list[bytes] = []
        self._count = self._size = 0

    def add(self, entries: bytes, count: int = 1) -> None:
        self._waiting.append(entries)
        self._count, self._size = self._count + count, self._size + len(entries)
        if self._size >= BLOCK_BYTES:
            self._pack()

    def copy(self, block: Block) -> None:
        self.blocks.append(block)
        self.packed_bytes += len(block.packed)

    def finish(self) -> list[Block]:
        if self._waiting:
            self._pack()
        return self.blocks

    def _pack(self) -> None:
        packing = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW)
        packed = packing.compress(b"".join(self._waiting)) + packing.flush()
        self.copy(Block(self._count, packed))
        self._waiting.clear()
        self._count = self._size = 0


def write_container(header: Mapping[str, bytes], blocks: Iterable[Block]) -> bytes:
    sync = secrets.token_bytes(_SYNC_BYTES)
    pairs = [encode_bytes(key.encode()) + encode_bytes(value) for key, value in header.items()]
    parts = [_MAGIC, encode_long(len(pairs)), *pairs, encode_long(0), sync]
    for block in blocks:
        parts += [encode_long(block.count), encode_bytes(block.packed), sync]
    return b"".join(parts)


def read_container(content: bytes, location: str) -> Container:
    """Its blocks are still packed; a file that is cut off or is none is refused."""
    try:
        return _read(content)
    except _UNREADABLE as exc:
        raise FileChangedError(from_uri(location), reason="it cannot be read as an Avro file") from exc


def encode_long(value: int) -> bytes:
    """Small numbers of either sign take few bytes."""
    left = (value << 1) ^ (value >> 63)
    found = bytearray()
    while left >= _MORE:
        found.append(left & (_MORE - 1) | _MORE)
        left >>= _BITS
    found.append(left)
    return bytes(found)


def encode_bytes(value: bytes) -> bytes:
    return encode_long(len(value)) + value


def _read(content: bytes) -> Container:
    if not content.startswith(_MAGIC):
        raise ValueError(_MAGIC)
    header, at = _read_header(content, len(_MAGIC))
    sync, at = content[at : at + _SYNC_BYTES], at + _SYNC_BYTES
    blocks: list[Block] = []
    while at < len(content):
        count, at = _decode_long(content, at)
        packed, at = _decode_bytes(content, at)
        if content[at : at + _SYNC_BYTES] != sync or len(sync) < _SYNC_BYTES:
            raise ValueError(at)
        blocks.append(Block(count, packed))
        at += _SYNC_BYTES
    return Container(header=header, blocks=tuple(blocks))


def _read_header(content: bytes, at: int) -> tuple[dict[str, bytes], int]:
    header: dict[str, bytes] = {}
    count, at = _decode_long(content, at)
    while count:
        if count < 0:  # then the size of these pairs follows
            _, at = _decode_long(content, at)
        for _ in range(abs(count)):
            key, at = _decode_bytes(content, at)
            header[key.decode()], at = _decode_bytes(content, at)
        count, at = _decode_long(content, at)
    return header, at


def _decode_long(content: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = content[at]
        at += 1
        found |= (byte & (_MORE - 1)) << shift
        if byte < _MORE:
            return (found >> 1) ^ -(found & 1), at
        shift += _BITS


def _decode_bytes(content: bytes, at: int) -> tuple[bytes, int]:
    size, at = _decode_long(content, at)
    if size < 0 or at + size > len(content):
        raise ValueError(size)
    return content[at : at + size], at + size
