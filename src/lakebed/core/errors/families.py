"""The root and the four families."""

from __future__ import annotations

from typing import ClassVar


class LakebedError(Exception):
    """Root of all errors; `code` is stable, the message is for people."""

    code: ClassVar[str] = "error"


class RefusedError(LakebedError):
    """The request cannot be carried out as asked; nothing was changed."""

    code = "refused"


class ConflictError(LakebedError):
    """Another writer committed first; read again and retry."""

    code = "conflict"


class UnavailableError(LakebedError):
    """A resource cannot answer now; the same request may succeed later."""

    code = "unavailable"


class CorruptionError(LakebedError):
    """Stored state contradicts itself; stop and investigate."""

    code = "corruption"
