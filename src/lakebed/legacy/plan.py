"""Plans the import of each row of an older registry. Pure: no file and no database is touched here."""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.core.errors import LakebedError
from lakebed.core.names import MAX_NAME, TableName, require_instance
from lakebed.core.times import TimeRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakebed.legacy.source import LegacyPartition

# Kinds of findings, matched on by programs: never rename
DUPLICATE, OVERLAP, EVENT_BOUND, BAD_ROW, BAD_NAME = "duplicate", "overlap", "one_event_bound", "bad_row", "bad_name"
MISSING_FILE, CHANGED_FILE, OUTSIDE = "missing_file", "changed_file", "outside_root"
BAD_FOOTER, ROWS_DIFFER, UNFIT, NO_SCHEMA, QUEUED = "bad_footer", "rows_differ", "unfit", "no_schema", "temporary_file"
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_]", re.ASCII)
_KEY_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyFinding:
    """One row with a problem. `kept`: it was imported nevertheless, as the message says."""

    kind: str
    view_set_name: str
    view_instance_id: str
    insert_range: str
    schema_hash: str
    file_path: str | None
    message: str
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPartition:
    """A row that can be imported; `key` identifies it in every run."""

    row: LegacyPartition
    insert_range: TimeRange
    key: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPlan:
    """Partitions of one schema hash that do not overlap. Layer 0 of the serving hash is what readers see."""

    schema_hash: str
    layer: int
    serves: bool
    partitions: tuple[PlannedPartition, ...]

    @property
    def note(self) -> str:
        """Names the version in the registry: stored, never change."""
        return json.dumps({"legacy_schema_hash": self.schema_hash, "layer": self.layer}, sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSetPlan:
    view_set: str
    table: TableName
    serving_hash: str
    versions: tuple[VersionPlan, ...]
    findings: tuple[LegacyFinding, ...]


@dataclass(slots=True)
class _Sorting:
    good: list[PlannedPartition] = field(default_factory=list)
    findings: list[LegacyFinding] = field(default_factory=list)


def plan_view_set(view_set: str, rows: Sequence[LegacyPartition], *, table: TableName, serving_hash: str | None = None) -> ViewSetPlan:
    """Every row is in a version or in a finding; only exact duplicates of a kept file are in a finding alone."""
    sorting = _Sorting()
    for row in rows:
        _sort_row(row, sorting)
    unique = _drop_doubles(sorting)
    serving = serving_hash or _newest_hash(unique)
    versions = tuple(_layer(unique, serving, sorting.findings))
    return ViewSetPlan(view_set=view_set, table=table, serving_hash=serving, versions=versions, findings=tuple(sorting.findings))


def name_tables(view_sets: Sequence[str], *, database: str, names: Mapping[str, str]) -> dict[str, TableName]:
    """A table for every view set: named by the caller, or else the view set's name with `_` for characters that are not allowed."""
    found = {v: TableName.parse(names[v]) if v in names else TableName(database, _clean(v)) for v in view_sets}
    by_table = Counter(str(table).lower() for table in found.values())
    return {view_set: table for view_set, table in found.items() if by_table[str(table).lower()] == 1}


def find(kind: str, row: LegacyPartition, message: str, *, kept: bool = False) -> LegacyFinding:
    return LegacyFinding(
        kind=kind,
        view_set_name=row.view_set,
        view_instance_id=row.instance,
        insert_range=_show(row),
        schema_hash=row.schema_hash,
        file_path=row.file_path,
        message=message,
        kept=kept,
    )


def key_of(row: LegacyPartition) -> int:
    """The same row gives the same key in every run: 63 bits of a hash of what identifies it."""
    identity = json.dumps([row.view_set, row.instance, row.begin, row.end, row.schema_hash, row.file_path])
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:_KEY_BYTES], "big") >> 1


def _sort_row(row: LegacyPartition, sorting: _Sorting) -> None:
    if row.has_min_event != row.has_max_event:
        message = "only one event bound is set, so its event range is unknown: repair or rebuild it in the old lake"
        sorting.findings.append(find(EVENT_BOUND, row, message))
    elif (problem := _find_problem(row)) is not None:
        sorting.findings.append(find(BAD_ROW, row, f"{problem}: repair or rebuild it in the old lake"))
    elif row.begin is not None and row.end is not None:
        sorting.good.append(PlannedPartition(row=row, insert_range=TimeRange(begin=row.begin, end=row.end), key=key_of(row)))


def _find_problem(row: LegacyPartition) -> str | None:
    if row.begin is None or row.end is None:
        return "its insert range is not finite"
    try:
        TimeRange(begin=row.begin, end=row.end)
        require_instance(row.instance)
    except LakebedError as exc:
        return str(exc)
    if row.min_event is not None and row.max_event is not None and row.min_event > row.max_event:
        return "its event range ends before it begins"
    if row.has_min_event and (row.min_event is None or row.max_event is None):
        return "its event range is not finite"
    return _find_emptiness_problem(row)


def _find_emptiness_problem(row: LegacyPartition) -> str | None:
    if row.num_rows < 0:
        return "its row count is not set"
    if row.num_rows == 0:
        return None if row.file_path is None and not row.has_min_event else "it has no rows, but a file or an event range"
    return "it has rows, but no file" if row.file_path is None or row.file_size <= 0 else None


def _drop_doubles(sorting: _Sorting) -> list[PlannedPartition]:
    """A file, or a slice without rows, may have one row only: the newest is kept."""
    newest: dict[tuple[object, ...], PlannedPartition] = {}
    for planned in sorted(sorting.good, key=_age):
        row = planned.row
        identity = (row.file_path,) if row.file_path is not None else (row.instance, row.begin, row.end, row.schema_hash)
        if identity in newest:
            newer = newest[identity].row
            message = f"it occurs twice, also for {_show(newer)} of schema {newer.schema_hash}, whose row is newer and was used"
            sorting.findings.append(find(DUPLICATE, row, message))
        else:
            newest[identity] = planned
    return list(newest.values())


def _age(planned: PlannedPartition) -> tuple[int, int]:
    """Newest first, and the same order in every run."""
    return (-(planned.row.updated or 0), planned.key)


def _newest_hash(partitions: Iterable[PlannedPartition]) -> str:
    """Readers see the schema that was written last; a schema without a file has no columns to serve."""
    ordered = sorted(partitions, key=lambda p: (p.row.file_path is None, *_age(p)))
    return ordered[0].row.schema_hash if ordered else ""


def _layer(partitions: Iterable[PlannedPartition], serving: str, findings: list[LegacyFinding]) -> Iterator[VersionPlan]:
    """Of slices that overlap under one schema, the newest is visible; the others are kept invisible, in separate layers."""
    layers: defaultdict[tuple[str, int], list[PlannedPartition]] = defaultdict(list)
    taken: defaultdict[tuple[str, str], list[_Intervals]] = defaultdict(list)
    for planned in sorted(partitions, key=_age):
        row = planned.row
        layer = _place(taken[row.instance, row.schema_hash], planned.insert_range)
        layers[row.schema_hash, layer].append(planned)
        if layer:
            message = "it overlaps a newer slice of the same schema, so its rows could be read twice: kept as incompatible; review it"
            findings.append(find(OVERLAP, row, message, kept=True))
    for schema_hash, layer in sorted(layers, key=lambda key: (key[1], key[0] != serving, key[0])):
        ordered = sorted(layers[schema_hash, layer], key=lambda p: (p.insert_range, p.row.instance))
        yield VersionPlan(schema_hash=schema_hash, layer=layer, serves=schema_hash == serving and not layer, partitions=tuple(ordered))


class _Intervals:
    """Disjoint ranges, found by their neighbours."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def add(self, wanted: TimeRange) -> bool:
        place = bisect_left(self._ranges, (wanted.begin, wanted.end))
        before, after = self._ranges[max(place - 1, 0) : place], self._ranges[place : place + 1]
        if any(end > wanted.begin for _, end in before) or any(begin < wanted.end for begin, _ in after):
            return False
        insort(self._ranges, (wanted.begin, wanted.end))
        return True


def _place(layers: list[_Intervals], wanted: TimeRange) -> int:
    for number, layer in enumerate(layers):
        if layer.add(wanted):
            return number
    layers.append(_Intervals())
    layers[-1].add(wanted)
    return len(layers) - 1


def _show(row: LegacyPartition) -> str:
    try:
        return str(TimeRange(begin=row.begin or 0, end=row.end or 0))
    except LakebedError:
        return f"[{row.begin}, {row.end})"


def _clean(view_set: str) -> str:
    return _FORBIDDEN.sub("_", view_set)[:MAX_NAME] or "_"
