"""Iceberg's bucket hash: 32-bit murmur3 (x86, seed 0) over the bytes that its specification gives for each type.

Executors get this module by value (`pipeline/spark/shipping.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.schema.decimals import unscaled_of

if TYPE_CHECKING:
    from decimal import Decimal

_MASK = 0xFFFFFFFF
C1, C2 = 0xCC9E2D51, 0x1B873593
F1, F2 = 0x85EBCA6B, 0xC2B2AE35


def murmur3(content: bytes) -> int:
    """Unsigned; the published test values are signed."""
    whole = len(content) & ~3
    h = 0
    for start in range(0, whole, 4):
        h = _rotate(h ^ mix_word(int.from_bytes(content[start : start + 4], "little")), 13) * 5 + 0xE6546B64 & _MASK
    h ^= mix_word(int.from_bytes(content[whole:], "little"))
    return finish(h ^ len(content))


def long_bytes(value: int) -> bytes:
    """Integers, dates (days) and timestamps (microseconds) are all hashed as eight bytes, so that promotion moves no row."""
    return value.to_bytes(8, "little", signed=True)


def decimal_bytes(value: Decimal, scale: int) -> bytes:
    """The shortest two's complement of the unscaled value."""
    unscaled = unscaled_of(value, scale)
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)


def bucket_of(content: bytes, count: int) -> int:
    return (murmur3(content) & 0x7FFFFFFF) % count


def mix_word(word: int) -> int:
    return _rotate(word * C1 & _MASK, 15) * C2 & _MASK


def finish(h: int) -> int:
    h = (h ^ h >> 16) * F1 & _MASK
    h = (h ^ h >> 13) * F2 & _MASK
    return h ^ h >> 16


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _MASK
