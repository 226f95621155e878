"""One check: the registry's rules on one snapshot, then the long rules and the warehouse, while writers continue."""

from __future__ import annotations

import logging
import time
from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from lakebed.check import iceberg_reach
from lakebed.check.report import CheckReport
from lakebed.check.rules import (
    clocks,
    database,
    files,
    footers,
    iceberg,
    journal,
    operations,
    partitions,
    replay,
    statistics,
    tables,
    warehouse,
)
from lakebed.check.rules import pages as page_rules
from lakebed.check.scan import Progress, Rule, Scan
from lakebed.core.errors import CorruptionError, InvalidValueError, LakebedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.check.report import Finding
    from lakebed.check.scan import Pass, Query
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage

logger = logging.getLogger(__name__)

SHORT_PASSES: tuple[Pass, ...] = (
    *database.PASSES,
    *tables.PASSES,
    *partitions.PASSES,
    *files.PASSES,
    *footers.PASSES,
    *journal.PASSES,
    *operations.PASSES,
    *clocks.PASSES,
)
LONG_PASSES: tuple[Pass, ...] = (*footers.LONG_PASSES, *statistics.LONG_PASSES, *replay.LONG_PASSES)
STORAGE_PASSES: tuple[Pass, ...] = (*iceberg.LONG_PASSES, *iceberg_reach.LONG_PASSES, *warehouse.LONG_PASSES, *page_rules.LONG_PASSES)
RULE_FAILED = Rule(name="rule_failed")  # a defect of the checker, or damage that it does not know
RULES: tuple[Rule, ...] = (*(rule for each in (*SHORT_PASSES, *LONG_PASSES, *STORAGE_PASSES) for rule in each.rules), RULE_FAILED)
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
    pages: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> CheckReport:
    """Check every rule of registry and warehouse; without `storage` only the registry is looked at.

    `deep` reads every byte of every file; `pages` decodes every page of every column, in a process of its own. Nothing is changed, and writers may go on meanwhile. Raises only
    when registry or storage do not answer.
    """
    if (deep or pages) and storage is None:
        message = "a deep check reads the files: give it the storage"
        raise InvalidValueError(message)
    started = time.monotonic()
    gathered = _Gathered()
    try:
        _check_all(registry, storage, gathered, deep=deep, pages=pages, progress=progress)
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

    def run(self, each: Pass, scan: Scan, *, expected: int) -> None:
        """Take in what one pass finds. Files in the warehouse are counted on the way: their number was not known before."""
        progress, done, seen = scan.progress, scan.progress.done, scan.progress.seen
        try:
            for finding in each.find(scan):
                self.add(finding)
        except LakebedError:
            raise
        except Exception as exc:
            logger.exception("rules of the check failed", extra={"action": "check"})
            names = ", ".join(rule.name for rule in each.rules)
            message = f"these rules failed with {type(exc).__name__}: {exc}; the others were checked: report this with the log"
            self.add(RULE_FAILED.broken(None, names, message))
        progress.move_to(done + expected)
        checked = progress.seen - seen if each in STORAGE_PASSES else expected
        self._checked.update({rule.name: checked for rule in each.rules})

    def report(self, *, seconds: float) -> CheckReport:
        omitted = {rule: found - FINDINGS_PER_RULE for rule, found in self._found.items() if found > FINDINGS_PER_RULE}
        checked = {**self._checked, RULE_FAILED.name: len(self._checked)}
        return CheckReport(findings=tuple(self._findings), checked=checked, omitted=omitted, seconds=seconds)


def _check_all(
    registry: Registry,
    storage: Storage | None,
    gathered: _Gathered,
    *,
    deep: bool,
    pages: bool,
    progress: Callable[[int, int], None] | None,
) -> None:
    long_passes = LONG_PASSES if storage is None else (*LONG_PASSES, *STORAGE_PASSES)
    now = registry.now()
    with registry.read() as reader:
        counts = _count(reader.query)
        scan = Scan(
            query=reader.query,
            open_snapshot=partial(open_snapshot, registry),
            storage=storage,
            deep=deep,
            decodes_pages=pages,
            dialect=reader.dialect,
            now=now,
            names={row[0]: row[1] for row in reader.query(_NAMES, None)},
            progress=Progress(sum(counts[each.over] for each in (*SHORT_PASSES, *long_passes)), progress),
            catalog_url=registry.backend.catalog_url,
        )
        for each in SHORT_PASSES:
            gathered.run(each, scan, expected=counts[each.over])
    scan.query = registry.query
    for each in long_passes:
        gathered.run(each, scan, expected=counts[each.over])


@contextmanager
def open_snapshot(registry: Registry) -> Iterator[Query]:
    with registry.read() as reader:
        yield reader.query


def _count(query: Query) -> dict[str, int]:
    counts = {table: int(count) for table, count in query(_COUNTS, None)}
    # The warehouse is not listed twice only to know how long it is
    return {**counts, "guards": len(database.GUARDS), "warehouse": counts["table_files"] + counts["temporary_files"]}
