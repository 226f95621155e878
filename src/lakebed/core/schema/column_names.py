"""Names of columns: what Spark, Parquet and Iceberg can all carry and tell apart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakebed.core.errors import SchemaRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.core.schema.schema import Schema
    from lakebed.core.schema.types import Field

RESERVED = "lakebed__"  # columns that the writer adds for itself begin so; no underscore first, which would hide directories
_KEPT = (RESERVED, "_lakebed_")  # the second begins columns that only Iceberg shows
_MAX_NAME = 255
_BAD_NAME = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def require_clear_names(schema: Schema) -> None:
    """Refuse names that Spark, Parquet or Iceberg could not tell apart or not carry."""
    seen: dict[str, str] = {}
    for path, field in _paths(schema.fields, ()):
        shown = ".".join((*path, field.name))
        _require_legal(field.name, shown)
        if (other := seen.setdefault(shown.lower(), shown)) is not shown:
            message = f"column {shown!a} occurs twice (as {other!a}): names may not differ in case alone; rename one of them"
            raise SchemaRefusedError(message)


def _require_legal(name: str, shown: str) -> None:
    if not name or len(name) > _MAX_NAME or _BAD_NAME.search(name):
        message = f"column {shown!a} has an illegal name: use 1 to {_MAX_NAME} characters without control characters"
        raise SchemaRefusedError(message)
    if name.lower().startswith(_KEPT):
        message = f"column {shown!a}: names that begin with {' or '.join(_KEPT)} are kept for Lakebed; rename it"
        raise SchemaRefusedError(message)


def _paths(fields: Sequence[Field], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Field]]:
    for field in fields:
        yield above, field
        yield from _paths(field.children, (*above, field.name))
