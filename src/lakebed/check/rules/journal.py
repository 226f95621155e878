"""The journal: dense, within its ends, and no cursor behind the purged end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.check.scan import Pass, Rule, list_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.check.report import Finding
    from lakebed.check.scan import Scan

JOURNAL_ENDS = Rule(name="journal_ends")
JOURNAL_GAP = Rule(name="journal_gap")
JOURNAL_BEYOND = Rule(name="journal_beyond")
JOURNAL_NOT_PURGED = Rule(name="journal_not_purged")
CURSOR_RANGE = Rule(name="cursor_range")
CURSOR_LOST = Rule(name="cursor_lost")

_ENDS = """SELECT table_id, 'journal', purged_seq, last_seq, horizon_seq FROM table_seq
WHERE purged_seq < 0 OR purged_seq > last_seq OR horizon_seq < 0 OR horizon_seq > last_seq ORDER BY table_id"""
_COUNTS = """SELECT s.table_id, s.purged_seq, s.last_seq,
COALESCE(sum(CASE WHEN c.seq > s.purged_seq AND c.seq <= s.last_seq THEN 1 ELSE 0 END), 0),
COALESCE(sum(CASE WHEN c.seq <= s.purged_seq THEN 1 ELSE 0 END), 0),
COALESCE(sum(CASE WHEN c.seq > s.last_seq THEN 1 ELSE 0 END), 0)
FROM table_seq s LEFT JOIN change_log c ON c.id >= (s.table_id << 40) AND c.id < ((s.table_id + 1) << 40)
GROUP BY s.table_id, s.purged_seq, s.last_seq ORDER BY s.table_id"""
_FIRST_MISSING = """SELECT min(n) FROM (SELECT :purged + 1 AS n UNION ALL
SELECT seq + 1 FROM change_log WHERE id > (:table_id << 40) + :purged AND id < ((:table_id + 1) << 40)) AS wanted
WHERE NOT EXISTS (SELECT 1 FROM change_log c WHERE c.id = (:table_id << 40) + wanted.n)"""
_CURSOR_RANGE = """SELECT c.table_id, c.component, c.seq, s.last_seq FROM subscriber_cursor c JOIN table_seq s ON s.table_id = c.table_id
WHERE c.seq < 0 OR c.seq > s.last_seq ORDER BY c.table_id, c.component"""
_CURSOR_LOST = """SELECT c.table_id, c.component, c.seq, s.purged_seq FROM subscriber_cursor c JOIN table_seq s ON s.table_id = c.table_id
WHERE c.seq >= 0 AND c.seq < s.purged_seq AND c.needs_refresh = 0 ORDER BY c.table_id, c.component"""


def find_gaps(scan: Scan) -> Iterator[Finding]:
    for table_id, purged, last, inside, below, beyond in scan.query(_COUNTS, None):
        name = scan.name(table_id)
        if inside < last - purged:
            first = scan.query(_FIRST_MISSING, {"table_id": table_id, "purged": purged})[0][0]
            message = f"{last - purged - inside} change(s) are missing, the first is {first}: run `lakebed repair` to refresh every component from the registry"
            yield JOURNAL_GAP.broken(name, "journal", message)
        if below:
            message = f"{below} change(s) are at or below {purged}, up to where the journal is purged: run `lakebed repair` to delete them"
            yield JOURNAL_NOT_PURGED.broken(name, "journal", message)
        if beyond:
            message = (
                f"{beyond} change(s) are beyond the last number {last}, which will be allocated again: stop the writers and investigate"
            )
            yield JOURNAL_BEYOND.broken(name, "journal", message)


PASSES = (
    list_rows(
        JOURNAL_ENDS,
        over="tables",
        sql=_ENDS,
        message="purged to {0}, last {1}, files kept since {2}: these numbers contradict each other; stop the writers and investigate",
    ),
    Pass(rules=(JOURNAL_GAP, JOURNAL_NOT_PURGED, JOURNAL_BEYOND), over="change_log", find=find_gaps),
    list_rows(
        CURSOR_RANGE,
        over="subscriber_cursor",
        sql=_CURSOR_RANGE,
        message="the cursor is at {0}, the journal ends at {1}: run `lakebed repair` to refresh the component from the registry",
    ),
    list_rows(
        CURSOR_LOST,
        over="subscriber_cursor",
        sql=_CURSOR_LOST,
        message="the cursor is at {0}, the journal is purged to {1} and no refresh is recorded: run `lakebed repair` to refresh the component from the registry",
    ),
)
