"""Lakebed: the ground truth under a Spark lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakebed.core.errors import LakebedError
    from lakebed.lake import Lake, connect

__version__ = "0.1.0"
__all__ = ["Lake", "LakebedError", "__version__", "connect"]


def __getattr__(name: str) -> Any:
    """Load the public face on first use: the parser's worker and the command line start without it."""
    if name in ("Lake", "connect"):
        from lakebed import lake  # noqa: PLC0415 - the point of this function

        return getattr(lake, name)
    if name == "LakebedError":
        from lakebed.core import errors  # noqa: PLC0415 - the same

        return errors.LakebedError
    message = f"module 'lakebed' has no attribute {name!r}"
    raise AttributeError(message)
