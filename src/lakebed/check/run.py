"""One check: every rule of the registry on one snapshot, then the warehouse beside it."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from lakebed.check import database, files, footers, journal, operations, partitions, replay, tables, warehouse
from lakebed.check.report import CheckReport
from lakebed.check.scan import Progress, Scan
from lakebed.core.errors import CorruptionError, InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakebed.check.report import Finding
    from lakebed.check.scan import Pass, Query, Rule, StoragePass
    from lakebed.registry.engine import Registry
    from lakebed.storage.access import Storage

REGISTRY_PASSES: tuple[Pass, ...] = (
    *database.PASSES,
    *tables.PASSES,
    *partitions.PASSES,
    *files.PASSES,
    *footers.PASSES,
    *journal.PASSES,
    *replay.PASSES,
    *operations.PASSES,
)
STORAGE_PASSES = warehouse.PASSES
_PASSES: tuple[Pass | StoragePass, ...] = (*REGISTRY_PASSES, *STORAGE_PASSES)
RULES: tuple[Rule, ...] = tuple(rule for each in _PASSES for rule in each.rules)
FINDINGS_PER_RULE = 1000

_COUNTED = (
    "tables", "partitions", "table_files", "partition_metadata", "file_columns", "table_stats", "temporary_files", "operations",
    "change_log", "subscriber_cursor", "lease_numbers",
)  # fmt: skip
_COUNTS = " UNION ALL ".join(f"SELECT '{table}', count(*) FROM {table}" for table in _COUNTED)
_NAMES = "SELECT id, database || '.' || name FROM tables"


def check(
    registry: Registry,
    storage: Storage | None = None,
    *,
    deep: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> CheckReport:
    """Whether registry and warehouse keep every promise; without `storage` only the registry is looked at.

    `deep` reads every byte of every file. Nothing is changed, and writers may go on meanwhile. Raises only
    when registry or storage do not answer.
    """
    if deep and storage is None:
        message = "a deep check reads the files: give it the storage"
        raise InvalidValueError(message)
    started = time.monotonic()
    gathered = _Gathered()
    try:
        _check_all(registry, storage, gathered, deep=deep, progress=progress)
    except CorruptionError as exc:  # the database can no longer answer: what was not looked at yet stays unknown
        gathered.add(database.INTEGRITY.broken(None, "database", f"{exc}; the rules after this one were not checked"))
    return gathered.report(seconds=time.monotonic() - started)


class _Gathered:
    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._found: Counter[str] = Counter()
        self._checked: dict[str, int] = {}

    def add(self, finding: Finding) -> None:
        self._found[finding.rule] += 1
        if self._found[finding.rule] <= FINDINGS_PER_RULE:
            self._findings.append(finding)

    def run(self, each: Pass | StoragePass, found: Iterable[Finding], *, progress: Progress, expected: int, listed: bool) -> None:
        """Take in what one pass finds. `listed`: only the pass itself knows how much there was to look at."""
        done, seen = progress.done, progress.seen
        for finding in found:
            self.add(finding)
        progress.move_to(done + expected)
        checked = progress.seen - seen if listed else expected
        self._checked.update({rule.name: checked for rule in each.rules})

    def report(self, *, seconds: float) -> CheckReport:
        omitted = {rule: found - FINDINGS_PER_RULE for rule, found in self._found.items() if found > FINDINGS_PER_RULE}
        return CheckReport(findings=tuple(self._findings), checked=self._checked, omitted=omitted, seconds=seconds)


def _check_all(
    registry: Registry, storage: Storage | None, gathered: _Gathered, *, deep: bool, progress: Callable[[int, int], None] | None
) -> None:
    now = registry.now()
    storage_passes = STORAGE_PASSES if storage is not None else ()
    with registry.read() as reader:
        counts = _count(reader.query)
        total = sum(counts[each.over] for each in (*REGISTRY_PASSES, *storage_passes))
        names: dict[int, str] = {row[0]: row[1] for row in reader.query(_NAMES, None)}
        scan = Scan(query=reader.query, dialect=reader.dialect, now=now, names=names, progress=Progress(total, progress))
        for each in REGISTRY_PASSES:
            gathered.run(each, each.find(scan), progress=scan.progress, expected=counts[each.over], listed=False)
    if storage is not None:
        scan.query = registry.query
        for beside in storage_passes:
            found = beside.find(scan, storage, deep)
            gathered.run(beside, found, progress=scan.progress, expected=counts[beside.over], listed=True)


def _count(query: Query) -> dict[str, int]:
    counts = {table: int(count) for table, count in query(_COUNTS, None)}
    # The warehouse is not listed twice only to know how long it is
    return {**counts, "guards": len(database.GUARDS), "warehouse": counts["table_files"] + counts["temporary_files"]}
