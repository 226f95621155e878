"""The settings of a table: what a user may set, what only Lakebed writes, and free properties beside both. Kept in one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from lakebed.core.errors import InvalidValueError
from lakebed.core.suggestions import suggest
from lakebed.core.tables.snapshots import (
    REQUESTS,
    RETENTION,
    RETIRE_AFTER,
    SNAPSHOT,
    read_retention,
    read_retire_after,
    read_snapshot_policy,
)
from lakebed.core.tables.view_sets import MERGE_WINDOW
from lakebed.core.times import parse_duration

if TYPE_CHECKING:
    from datetime import timedelta

LEGACY = "legacy"  # stored, of an imported table: never rename
INDEXED, DEFINITION = "indexed", "definition"  # stored: never rename
FREE = "properties"
INTERNAL = frozenset({INDEXED, DEFINITION, REQUESTS, LEGACY})
_INTERNAL_PREFIX = "lakebed."
_MAX_KEY = 255


class TableSettings(TypedDict, total=False):
    """What `configure` understands; None goes back to the default."""

    snapshot: Mapping[str, Any] | None  # when pending files become a snapshot
    retention: Mapping[str, Any] | None  # which snapshots are kept
    retire_after: str | int | timedelta | None  # how long after their last event partitions are kept
    merge_window_us: str | int | timedelta | None  # how far merging may reach; default one UTC day
    properties: Mapping[str, Any] | None  # your own, any JSON value; None as a value removes one, None for all removes them


def _read_policy(given: Any) -> dict[str, Any]:
    read_snapshot_policy(given)
    return dict(given)


def _read_retention(given: Any) -> dict[str, Any]:
    read_retention(given)
    return dict(given)


def _read_retire_after(given: Any) -> str | int:
    micros = read_retire_after(given)
    return given if isinstance(given, str) else micros


def _read_merge_window(given: Any) -> int:
    return parse_duration(given, what=MERGE_WINDOW)


_READ = {SNAPSHOT: _read_policy, RETENTION: _read_retention, RETIRE_AFTER: _read_retire_after, MERGE_WINDOW: _read_merge_window}


def read_settings(table: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as they are stored, None where one is taken away, without the free properties; refuses unknown settings."""
    for key in given:
        if key not in _READ and key != FREE:
            _refuse(table, key)
    return {key: None if value is None else _READ[key](value) for key, value in given.items() if key in _READ}


def read_free_properties(table: str, given: object) -> dict[str, Any]:
    """A user's own properties, checked; refuses names of settings, names that only Lakebed writes, and values that are not JSON."""
    if not isinstance(given, Mapping):
        message = f"{table}: properties={given!a}: give a dict such as {{'owner': 'ann'}}"
        raise InvalidValueError(message)
    for key, value in given.items():
        _require_free(table, key)
        _require_json(table, key, value)
    return dict(given)


def plan_properties(table: str, stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The properties as they would be stored after these changes; refuses what `configure` refuses."""
    settings, own = read_settings(table, given), given.get(FREE)
    removed = dict.fromkeys(list_free(stored)) if FREE in given and own is None else {}
    free = {} if own is None else read_free_properties(table, own)
    return {key: value for key, value in {**stored, **removed, **free, **settings}.items() if value is not None}


def list_free(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Of everything that is stored, what users named themselves."""
    return {key: value for key, value in properties.items() if key not in _READ and not _is_internal(key)}


def _is_internal(key: str) -> bool:
    return key.lower() in INTERNAL or key.lower().startswith(_INTERNAL_PREFIX)


def _refuse(table: str, key: str) -> None:
    _require_not_internal(table, key)
    near = suggest(key, (*_READ, FREE))
    message = (
        f"{table} has no setting {key!a}: {near + ' ' if near else ''}the settings are {', '.join(_READ)}; "
        f"your own go under properties={{{key!a}: ...}}"
    )
    raise InvalidValueError(message)


def _require_not_internal(table: str, key: str) -> None:
    if _is_internal(key):
        instead = ": use tag and untag" if key.lower() == REQUESTS else ""
        message = f"{table}: {key!a} is internal: only Lakebed writes it{instead}; nothing was changed"
        raise InvalidValueError(message)


def _require_free(table: str, key: object) -> None:
    if not isinstance(key, str) or not 0 < len(key) <= _MAX_KEY:
        message = f"{table}: {key!a} cannot name a property: give a text of 1 to {_MAX_KEY} characters"
        raise InvalidValueError(message)
    _require_not_internal(table, key)
    if key in _READ:
        message = f"{table}: {key} is a setting: give it to configure as {key}=..., not among the properties"
        raise InvalidValueError(message)


def _require_json(table: str, key: str, value: object) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        message = f"{table}: the property {key!a} cannot be written as JSON ({exc}): give text, numbers, lists and dicts"
        raise InvalidValueError(message) from exc
