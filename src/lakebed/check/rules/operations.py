"""Operations that hang, and leases on journal numbers that do not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.check.report import Severity
from lakebed.check.scan import Pass, Rule, list_rows
from lakebed.core.times import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.check.report import Finding
    from lakebed.check.scan import Scan

OPERATION_STUCK = Rule(name="operation_stuck", severity=Severity.WARNING)
OPERATION_RESULT = Rule(name="operation_result")
LEASE_NUMBER = Rule(name="lease_number")
LEASE_UNKNOWN = Rule(name="lease_unknown")

_DAY_US = 24 * 3600 * 1_000_000
_STUCK = """SELECT table_id, op_id, state, lease_until FROM operations
WHERE state IN ('writing', 'rolling_back') AND lease_until < :before ORDER BY lease_until"""
_RESULT = "SELECT table_id, op_id FROM operations WHERE state = 'registered' AND (result IS NULL OR result = '') ORDER BY op_id"
_NUMBER = """SELECT n.table_id, n.name, n.seq, s.last_seq FROM lease_numbers n JOIN table_seq s ON s.table_id = n.table_id
WHERE n.seq < 0 OR n.seq > s.last_seq ORDER BY n.name"""
_UNKNOWN = (
    """SELECT n.table_id, n.name FROM lease_numbers n WHERE NOT EXISTS (SELECT 1 FROM leases l WHERE l.name = n.name) ORDER BY n.name"""
)


def find_stuck(scan: Scan) -> Iterator[Finding]:
    for table_id, op_id, state, until in scan.query(_STUCK, {"before": scan.now - _DAY_US}):
        message = f"the operation is {state} and its lease ended at {show(until)}: run `lakebed repair` to roll it back"
        yield OPERATION_STUCK.broken(scan.name(table_id), op_id, message)


PASSES = (
    Pass(rules=(OPERATION_STUCK,), over="operations", find=find_stuck),
    list_rows(
        OPERATION_RESULT,
        over="operations",
        sql=_RESULT,
        message="the operation is registered without its result, so a repeated batch gets no answer: investigate",
    ),
    list_rows(
        LEASE_NUMBER,
        over="lease_numbers",
        sql=_NUMBER,
        message="the lease holds journal number {0}, the journal ends at {1}: run `lakebed repair`, which lets it protect everything until it ends",
    ),
    list_rows(
        LEASE_UNKNOWN,
        over="lease_numbers",
        sql=_UNKNOWN,
        message="a journal number is held by a lease that does not exist: run `lakebed repair` to delete it",
    ),
)
