"""The database itself: its pages, its references and its triggers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.check.scan import Pass, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.check.report import Finding
    from lakebed.check.scan import Scan

INTEGRITY = Rule(name="database_integrity")
FOREIGN_KEYS = Rule(name="foreign_keys")
GUARD_MISSING = Rule(name="guard_missing")
GUARD_UNEXPECTED = Rule(name="guard_unexpected")

_MONITORED = ("tables", "table_metadata", "table_files", "table_stats", "table_snapshots")
_CHANGES = ("insert", "update", "delete")
GUARDS = frozenset(
    {f"capture_{table}_{change}" for table in _MONITORED for change in _CHANGES}
    | {f"frozen_{table}" for table in _MONITORED}
    | {"partition_overlap", "partition_moved", "partition_event_range", "partition_has_no_file"}
)
_SQLITE_GUARDS = "SELECT name FROM sqlite_master WHERE type IN ('trigger', 'view')"
# On PostgreSQL overlap is refused by a constraint; a disabled trigger guards nothing
_POSTGRES_GUARDS = """SELECT t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A')
UNION ALL SELECT k.conname FROM pg_constraint k JOIN pg_namespace n ON n.oid = k.connamespace
WHERE n.nspname = current_schema() AND k.contype = 'x'"""
_BAD_INDEXES = """SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND NOT (i.indisvalid AND i.indisready) ORDER BY c.relname"""


def find_damage(scan: Scan) -> Iterator[Finding]:
    if scan.dialect == "sqlite":
        rows = scan.query("PRAGMA integrity_check", None)
        problems = [line for row in rows for line in str(row[0]).splitlines() if line != "ok"]
    else:
        problems = [f"index {row[0]} is invalid" for row in scan.query(_BAD_INDEXES, None)]
    for problem in problems:
        yield INTEGRITY.broken(None, "database", f"the database reports: {problem}; stop the writers and restore it from a backup")


def find_dangling_references(scan: Scan) -> Iterator[Finding]:
    """PostgreSQL's own are covered rule by rule: it has no statement that proves them again."""
    if scan.dialect == "sqlite":
        for child, row_id, parent, _ in scan.query("PRAGMA foreign_key_check", None):
            where = f"{child} row {row_id}" if row_id is not None else child
            yield FOREIGN_KEYS.broken(None, where, f"it refers to a row of {parent} that does not exist: run `lakebed repair`")


def find_guards(scan: Scan) -> Iterator[Finding]:
    found = {row[0] for row in scan.query(_SQLITE_GUARDS if scan.dialect == "sqlite" else _POSTGRES_GUARDS, None)}
    for name in sorted(GUARDS - found):
        message = (
            "this guard of the registry is missing or disabled, so changes may be lost or wrong: stop the writers and run `lakebed repair`"
        )
        yield GUARD_MISSING.broken(None, name, message)
    # SQLite trusts its schema for JSON inside triggers, so no others are allowed
    for name in sorted(found - GUARDS) if scan.dialect == "sqlite" else ():
        message = "a trigger or view that is not Lakebed's runs inside every write: find out who made it, then drop it"
        yield GUARD_UNEXPECTED.broken(None, name, message)


PASSES = (
    Pass(rules=(INTEGRITY,), over="table_files", find=find_damage),
    Pass(rules=(FOREIGN_KEYS,), over="partition_metadata", find=find_dangling_references),
    Pass(rules=(GUARD_MISSING, GUARD_UNEXPECTED), over="guards", find=find_guards),
)
