"""Identifiers that sort by the time they were made, so that indexes grow at one edge."""

from __future__ import annotations

import re

from lakebed.core.errors import InvalidValueError

_OP_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_MILLIS_BITS, _RANDOM_BITS = 48, 80


def make_op_id(now_micros: int, random: bytes) -> str:
    """32 hex digits: 48 bits of milliseconds, 80 random bits from the caller."""
    millis = (now_micros // 1000) & ((1 << _MILLIS_BITS) - 1)
    tail = int.from_bytes(random[:10], "big")
    return f"{(millis << _RANDOM_BITS) | tail:032x}"


def require_op_id(op_id: str) -> str:
    if not _OP_ID.fullmatch(op_id):
        message = f"operation id {op_id!a} is not 32 hexadecimal digits"
        raise InvalidValueError(message)
    return op_id
