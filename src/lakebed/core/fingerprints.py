"""Content fingerprints: random 128-bit numbers that add up, so merging and compacting change nothing."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MODULUS = 1 << 128
_CHARS = 32
ZERO = "0" * _CHARS


def from_bytes(random: bytes) -> str:
    """32 hex digits from 16 random bytes; the caller brings the randomness."""
    return random[:16].hex().rjust(_CHARS, "0")


def make_fingerprint(*, has_rows: bool) -> str:
    """A new random one; without rows ZERO, which changes no view that is built from them."""
    return secrets.token_hex(_CHARS // 2) if has_rows else ZERO


def add(fingerprints: Iterable[str]) -> str:
    """Commutative and associative: the sum over any grouping of the same partitions is the same."""
    return f"{sum(int(f, 16) for f in fingerprints) % _MODULUS:0{_CHARS}x}"
