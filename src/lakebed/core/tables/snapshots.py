"""When pending files become a snapshot, and how long snapshots are kept: per table, in its properties, changed without a restart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from lakebed.core.errors import InvalidValueError
from lakebed.core.suggestions import suggest
from lakebed.core.times import DAY_US, HOUR_US, SECOND_US, parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

SNAPSHOT, RETENTION, RETIRE_AFTER = "snapshot", "retention", "retire_after"  # property keys, stored: never rename


@dataclass(frozen=True, slots=True, kw_only=True)
class BackPressure:
    """Writers wait while more than `backlog` groups of their table wait for Iceberg, `timeout_s` at most."""

    backlog: int = 10_000
    timeout_s: float = 60.0


class Trigger(StrEnum):
    """Stored: never rename."""

    EVERY_INSERT = "every_insert"
    TIME = "time"
    BYTES = "bytes"
    ROWS = "rows"
    FILES = "files"
    MANUAL = "manual"  # only `lake.snapshot`
    QUERY = "query"  # a reader that asks for the current snapshot

    @property
    def recorded(self) -> str:
        """As snapshots record it: what happened, where the setting says when. Stored: never rename."""
        return "insert" if self is Trigger.EVERY_INSERT else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What waits for its group; `since` is when the oldest of it came, in microseconds."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    since: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPolicy:
    """One trigger and its threshold; the others' thresholds are kept, so that switching back restores them."""

    trigger: Trigger = Trigger.EVERY_INSERT
    interval_s: float = 60.0
    bytes: int = 128 * 1024 * 1024
    rows: int = 1_000_000
    files: int = 100

    def is_due(self, pending: Pending, *, now: int) -> bool:
        """Whether to seal; never with nothing pending."""
        if not pending.files:
            return False
        match self.trigger:
            case Trigger.EVERY_INSERT:
                return True
            case Trigger.TIME:
                return not 0 <= now - pending.since < self.interval_s * SECOND_US  # the clock was ahead when the files came
            case Trigger.BYTES:
                return pending.bytes >= self.bytes
            case Trigger.ROWS:
                return pending.rows >= self.rows
            case Trigger.FILES:
                return pending.files >= self.files
            case Trigger.MANUAL | Trigger.QUERY:
                return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Thinned: all of the last `all_s` up to `all_most`, then the last of each hour, then of each day; nothing below `least_age_s`."""

    all_s: float = 3600.0
    all_most: int = 50
    hourly_s: float = 2 * 24 * 3600.0
    daily_s: float = 30 * 24 * 3600.0
    least_age_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSnapshot:
    snapshot_id: int
    at: int  # microseconds
    is_foreign: bool = False


def plan_expiry(
    snapshots: Sequence[KeptSnapshot], retention: Retention, *, now: int, protected: AbstractSet[int] = frozenset()
) -> tuple[int, ...]:
    """The snapshots that may go, oldest first. The newest always stays, and so do the protected (tags, branches).

    Those of other programs take no other's place: one that no ref leads to goes when it is older than anything that is kept for its age.
    """
    longest_us = max(retention.all_s, retention.hourly_s, retention.daily_s, retention.least_age_s) * SECOND_US
    loose = tuple(s.snapshot_id for s in snapshots if s.is_foreign and s.snapshot_id not in protected and now - s.at >= longest_us)
    ordered = sorted((s for s in snapshots if not s.is_foreign), key=lambda s: (s.at, s.snapshot_id))
    if not ordered:
        return loose
    keep = {ordered[-1].snapshot_id, *protected}
    keep |= {s.snapshot_id for s in ordered if now - s.at < retention.least_age_s * SECOND_US}
    recent = [s for s in ordered if now - s.at < retention.all_s * SECOND_US]
    keep |= {s.snapshot_id for s in recent[-retention.all_most :]} if retention.all_most else set()
    keep |= _last_of_each(ordered, HOUR_US, now=now, within_us=retention.hourly_s * SECOND_US)
    keep |= _last_of_each(ordered, DAY_US, now=now, within_us=retention.daily_s * SECOND_US)
    return (*loose, *(s.snapshot_id for s in ordered if s.snapshot_id not in keep))


def _last_of_each(ordered: Sequence[KeptSnapshot], unit_us: int, *, now: int, within_us: float) -> set[int]:
    """Later ones of the same unit take the place of earlier ones."""
    last = {s.at // unit_us: s.snapshot_id for s in ordered if now - s.at < within_us}
    return set(last.values())


def parse_snapshot_policy(properties: str) -> SnapshotPolicy:
    """From the text of `table_metadata.properties`."""
    return read_snapshot_policy(json.loads(properties).get(SNAPSHOT, {}))


def parse_retention(properties: str) -> Retention:
    return read_retention(json.loads(properties).get(RETENTION, {}))


def parse_retire_after(properties: str) -> int | None:
    """How long after its last event a partition is kept, in microseconds; None keeps it for ever."""
    given = json.loads(properties).get(RETIRE_AFTER)
    return None if given is None else read_retire_after(given)


def read_retire_after(given: Any) -> int:
    """As a user writes it: `90d`, or a number of microseconds."""
    return parse_duration(given, what=RETIRE_AFTER)


def read_snapshot_policy(given: Mapping[str, Any]) -> SnapshotPolicy:
    """A policy as a user writes it; what is not known or not positive is refused."""
    return _read(SnapshotPolicy, SNAPSHOT, given)


def read_retention(given: Mapping[str, Any]) -> Retention:
    return _read(Retention, RETENTION, given)


PolicyT = TypeVar("PolicyT", SnapshotPolicy, Retention)


def _read(kind: type[PolicyT], what: str, given: Mapping[str, Any]) -> PolicyT:
    known = {f.name: f for f in fields(kind)}
    if not isinstance(given, Mapping):
        message = f"{what}={given!a}: give a dict of its settings, which are {', '.join(known)}"
        raise InvalidValueError(message)
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            near = suggest(str(key), known)
            message = f"{what} has no setting {key!a}: {near + ' ' if near else ''}the settings are {', '.join(known)}"
            raise InvalidValueError(message)
        values[key] = _trigger(value) if key == "trigger" else _number(f"{what}.{key}", value, whole=known[key].type == "int")
    return kind(**values)


def _trigger(value: object) -> Trigger:
    try:
        return Trigger(str(value))
    except ValueError as exc:
        near = suggest(str(value), Trigger)
        message = f"snapshot.trigger={value!a} is not known: {near + ' ' if near else ''}use one of {', '.join(Trigger)}"
        raise InvalidValueError(message) from exc


def _number(what: str, value: object, *, whole: bool) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not value >= 0
        or value == float("inf")
        or (whole and value != int(value))
    ):
        message = f"{what}={value!a}: give a {'whole ' if whole else ''}number that is not negative"
        raise InvalidValueError(message)
    return int(value) if whole else float(value)


REQUESTS = "wishes"  # stored: never rename


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequests:
    """Snapshots to expire (those already gone are not requested any more), and the refs that are to be there, by name."""

    expire: tuple[int, ...] = ()
    tags: Mapping[str, int] = field(default_factory=dict)
    branches: Mapping[str, int] = field(default_factory=dict)

    def expiring(self, going: Iterable[int], *, present: AbstractSet[int]) -> SnapshotRequests:
        """These too, of the snapshots that are there. A tag may have come meanwhile: what it names stays."""
        named = {*self.tags.values(), *self.branches.values()}
        return replace(self, expire=tuple(sorted(({*self.expire, *going} & present) - named)))

    def to_property(self) -> dict[str, object]:
        return {"expire": sorted(self.expire), "tags": dict(self.tags), "branches": dict(self.branches)}


def parse_requests(properties: str) -> SnapshotRequests:
    """From the text of `table_metadata.properties`."""
    stored = json.loads(properties).get(REQUESTS, {})
    return SnapshotRequests(
        expire=tuple(stored.get("expire", ())), tags=dict(stored.get("tags", {})), branches=dict(stored.get("branches", {}))
    )
