"""What was written while a clock was ahead: slots of tables and slices of view sets that are in the future."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakebed.check.report import Severity
from lakebed.check.scan import Pass, Rule, show_slice
from lakebed.core.times import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.check.report import Finding
    from lakebed.check.scan import Row, Scan

SLOT_IN_FUTURE = Rule(name="slot_in_future", severity=Severity.WARNING)
SLICE_IN_FUTURE = Rule(name="slice_in_future", severity=Severity.WARNING)

_LEAD_US = 5 * 60 * 1_000_000
_SLOTS = """SELECT t.id, s.last_slot, (SELECT count(*) FROM partitions p
  WHERE p.table_id = t.id AND p.end_insert_time > :now + 1 AND p.end_insert_time <= s.last_slot + 1)
FROM table_seq s JOIN tables t ON t.id = s.table_id WHERE s.last_slot > :limit AND t.dropped_at IS NULL ORDER BY t.id"""
_SLICES = """SELECT p.id, p.table_id, p.view_instance_id, p.begin_insert_time, p.end_insert_time, p.schema_hash
FROM partitions p JOIN tables t ON t.id = p.table_id WHERE t.kind = 'view_set' AND p.begin_insert_time > :limit ORDER BY p.id"""
_DEFINITIONS = "SELECT table_id, schema_hash, properties FROM table_metadata WHERE table_id IN (:tables*)"
# Of a source: slices that were not allocated from a clock
_CHOSEN = """SELECT p.view_instance_id, p.begin_insert_time, p.end_insert_time FROM partitions p JOIN tables t ON t.id = p.table_id
JOIN table_seq s ON s.table_id = t.id WHERE t.database || '.' || t.name = :name AND t.dropped_at IS NULL
AND p.begin_insert_time > s.last_slot AND p.end_insert_time > :limit"""


def find_slots(scan: Scan) -> Iterator[Finding]:
    for table_id, slot, partitions in scan.query(_SLOTS, {"now": scan.now, "limit": scan.now + _LEAD_US}):
        message = (
            f"the last slot is {show(slot)}, {(slot - scan.now) / 1e6:.0f} s ahead of the clock, so inserts are refused, and {partitions} "
            "partition(s) are in the future: if the clock is right now, run `lakebed repair`, which gives them new slots"
        )
        yield SLOT_IN_FUTURE.broken(scan.name(table_id), "last slot", message, facts=(slot, partitions))


def find_slices(scan: Scan) -> Iterator[Finding]:
    """Not where a caller chose a slice of that time for the source."""
    found = scan.query(_SLICES, {"limit": scan.now + _LEAD_US})
    chosen = _Chosen(scan, sorted({row[1] for row in found}))
    for row in found:
        partition_id, table_id, instance, begin, end = row[:5]
        if not chosen.holds(row):
            message = "the slice of a view set begins in the future, where its source has no rows: run `lakebed repair` to retire it"
            yield SLICE_IN_FUTURE.broken(scan.name(table_id), show_slice(instance, begin, end), message, partition_id=partition_id)


class _Chosen:
    """The slices of sources that callers chose, read once per source."""

    def __init__(self, scan: Scan, tables: list[int]) -> None:
        self._scan = scan
        rows = scan.query(_DEFINITIONS, {"tables": tables}) if tables else []
        self._sources = {(table_id, schema_hash): _find_source(properties) for table_id, schema_hash, properties in rows}
        self._known: dict[str, list[Row]] = {}

    def holds(self, row: Row) -> bool:
        """True too where the source cannot be named: then no program could build the slice again."""
        _, table_id, instance, begin, end, schema_hash = row
        if (source := self._sources.get((table_id, schema_hash))) is None:
            return True
        if source not in self._known:
            self._known[source] = self._scan.query(_CHOSEN, {"name": source, "limit": self._scan.now + _LEAD_US})
        return any(at == instance and low < end and begin < high for at, low, high in self._known[source])


def _find_source(properties: str) -> str | None:
    """The driving source of a version of a view set, as its stored properties name it."""
    try:
        return str(json.loads(json.loads(properties)["definition"])["over"])
    except (ValueError, KeyError, TypeError):
        return None


PASSES = (
    Pass(rules=(SLOT_IN_FUTURE,), over="tables", find=find_slots),
    Pass(rules=(SLICE_IN_FUTURE,), over="partitions", find=find_slices),
)
