"""Partition values as a path: `day=2026-11-15/country=DE`, one text per tuple of values and back."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from lakebed.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

NULL_TEXT = "__HIVE_DEFAULT_PARTITION__"  # stored, and read by Spark and Hive as NULL: never rename


def encode_partition_path(pairs: Sequence[tuple[str, str | None]]) -> str:
    """Injective: different tuples give different texts. Only `A-Z a-z 0-9 - . _ ~` stand for themselves."""
    return "/".join(f"{_encode_name(name)}={_encode_value(value)}" for name, value in pairs)


def decode_partition_path(text: str) -> tuple[tuple[str, str | None], ...]:
    """The tuple whose encoding is exactly `text`; any other spelling of it is refused, so equal text is equal values."""
    pairs = tuple(_decode_segment(segment) for segment in text.split("/")) if text else ()
    if encode_partition_path(pairs) != text:
        message = f"partition path {text!a} is not canonical: write {encode_partition_path(pairs)!a}"
        raise InvalidValueError(message)
    return pairs


def _encode_name(name: str) -> str:
    if not name:
        message = "a partition value needs the name of its field"
        raise InvalidValueError(message)
    # A leading dot would hide the directory from Spark.
    return "%2E" + _quote(name[1:]) if name.startswith(".") else _quote(name)


def _encode_value(value: str | None) -> str:
    if value is None:
        return NULL_TEXT
    # The text that means NULL is itself a possible value: it differs in its first character.
    return "%5F" + value[1:] if value == NULL_TEXT else _quote(value)


def _quote(text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as exc:
        message = f"invalid partition value {text!a}: expected Unicode text"
        raise InvalidValueError(message) from exc


def _decode_segment(segment: str) -> tuple[str, str | None]:
    name, equals, value = segment.partition("=")
    if not name or not equals:
        message = f"invalid part {segment!a} of a partition path: expected name=value"
        raise InvalidValueError(message)
    try:
        return unquote(name, errors="strict"), None if value == NULL_TEXT else unquote(value, errors="strict")
    except UnicodeDecodeError as exc:
        message = f"{segment!a} has escapes that are not UTF-8"
        raise InvalidValueError(message) from exc
