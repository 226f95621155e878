"""The time zone of a Spark session, as far as Python knows it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{2}):(\d{2})", re.ASCII)
_MAX_OFFSET_HOURS = 18
_UTC_NAMES = frozenset({"UTC", "GMT", "Z", "Etc/UTC", "UCT", "Zulu", "Etc/GMT"})


@dataclass(frozen=True, slots=True)
class Zone:
    """The session's time zone; None if Python does not know it."""

    rules: tzinfo | None
    is_fixed: bool

    @classmethod
    def parse(cls, text: str) -> Zone:
        if text in _UTC_NAMES:
            return cls(UTC, is_fixed=True)
        if (found := _OFFSET.fullmatch(text)) and int(found[2]) <= _MAX_OFFSET_HOURS:
            offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
            return cls(timezone(offset if found[1] == "+" else -offset), is_fixed=True)
        try:
            return cls(ZoneInfo(text), is_fixed=False)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return cls(None, is_fixed=False)
