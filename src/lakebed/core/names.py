"""Names that may become part of a path or an identifier: an allow-list, never a deny-list."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from lakebed.core.errors import InvalidNameError

MAX_NAME = 63
MAX_INSTANCE = 255
GLOBAL_INSTANCE = "global"  # stored: never rename
_WORD = re.compile(r"[A-Za-z0-9_]{1,63}", re.ASCII)
_INSTANCE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,254}", re.ASCII)
_TABLE_PARTS = 2


def require_name(kind: str, name: str) -> str:
    """`name` itself if it is 1 to 63 of `A-Z a-z 0-9 _`."""
    if not _WORD.fullmatch(name):
        raise InvalidNameError(kind, name, reason=_explain(name, longest=MAX_NAME, allowed="letters A-Z a-z, digits and _"))
    return name


def require_instance(instance: str) -> str:
    """`instance` itself if it is safe in a path: letters, digits, `_ . : @ -`, no leading dot or dash."""
    if not _INSTANCE.fullmatch(instance) or ".." in instance:
        raise InvalidNameError(
            "instance", instance, reason=_explain(instance, longest=MAX_INSTANCE, allowed="letters, digits and _ . : @ -", marks="_.:@-")
        )
    return instance


def _explain(name: str, *, longest: int, allowed: str, marks: str = "_") -> str:
    if not name:
        return "it is empty"
    if len(name) > longest:
        return f"it has {len(name)} characters, at most {longest} are allowed"
    folded = unicodedata.normalize("NFKC", name)
    bad = next((c for c in name if not (c.isascii() and (c.isalnum() or c in marks))), ".." if ".." in name else name[0])
    alike = f" (it looks like {folded!a}, which is another name)" if folded != name or not name.isascii() else ""
    return f"{bad!a} is not allowed; use {allowed}{alike}"


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """`database.name`, both from the allow-list."""

    database: str
    name: str

    def __post_init__(self) -> None:
        require_name("database", self.database)
        require_name("table", self.name)

    @classmethod
    def parse(cls, text: str) -> TableName:
        parts = str(text).split(".")
        if len(parts) != _TABLE_PARTS:
            raise InvalidNameError("table", str(text), reason="write it as database.name")
        return cls(parts[0], parts[1])

    def is_like(self, other: TableName) -> bool:
        """Whether they are one name to Spark's catalog, which ignores case."""
        return str(self).lower() == str(other).lower()

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"
