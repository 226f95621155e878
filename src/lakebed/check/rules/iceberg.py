"""Iceberg beside the registry: pointer, metadata, manifests and files all there, and exactly what the registry says.

Commits go on meanwhile. A tree is judged against the registry at the group that it claims, and what looks wrong is
looked at again when the pointer has moved.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.check.iceberg_tree import Entry, Tree, TreeError, read_pointers, read_tree
from lakebed.check.scan import Pass, Rule
from lakebed.core.errors import FileMissingError, PathRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.check.report import Finding
    from lakebed.check.scan import Scan

POINTER = Rule(name="iceberg_pointer")
TREE = Rule(name="iceberg_tree")
GROUP = Rule(name="iceberg_group")
FILES = Rule(name="iceberg_files")
TOTALS = Rule(name="iceberg_totals")
HISTORY = Rule(name="iceberg_history")
NEEDED = Rule(name="iceberg_needed")
FOREIGN = Rule(name="iceberg_foreign")

_TABLES = "SELECT id, last_group, committed_group, state FROM tables WHERE dropped_at IS NULL ORDER BY id"
_STOP = "SELECT value FROM astha_state WHERE key = :key"
_AT_GROUP = """SELECT file_path, row_count, file_size FROM table_files
WHERE table_id = :id AND added_group <= :g AND (removed_group IS NULL OR removed_group > :g)"""
_KNOWN = "SELECT file_path FROM table_files WHERE table_id = :id AND id >= (:id << 40) AND id < ((:id + 1) << 40)"
_SNAPSHOTS = "SELECT snapshot_id FROM table_snapshots WHERE table_id = :id AND expired_at IS NULL"
_NO_SNAPSHOT = -1  # what Java writes for none
_ATTEMPTS = 5
_SHOWN = 3
_REFRESH = "run `lakebed repair` to make Iceberg follow the registry again"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    table_id: int
    name: str
    last_group: int
    committed_group: int
    state: str


def find_drift(scan: Scan) -> Iterator[Finding]:
    """Every table, each as of one pointer. Tables and pointers are read once, and again only for a table that seems broken."""
    pointers = read_pointers(scan)
    for table in _list_tables(scan).values():
        yield from _judge(scan, table, pointers.get(table.name))
        scan.progress.step(1)


def _judge(scan: Scan, table: _Table, location: str | None) -> list[Finding]:
    """Again while the table moves on: a difference in a moving table is not a finding."""
    findings = list(_examine(scan, table, location))
    for _ in range(_ATTEMPTS):
        if not findings:
            break
        now = _list_tables(scan).get(table.table_id)
        if now is None:  # it was dropped
            return []
        known, table, location = (table, location), now, read_pointers(scan).get(now.name)
        if (table, location) == known:
            break
        findings = list(_examine(scan, table, location))
    return findings


def _list_tables(scan: Scan) -> dict[int, _Table]:
    return {
        row[0]: _Table(
            table_id=row[0], name=scan.names.get(row[0], f"table {row[0]}"), last_group=row[1], committed_group=row[2], state=row[3]
        )
        for row in scan.query(_TABLES, None)
    }


def _examine(scan: Scan, table: _Table, location: str | None) -> Iterator[Finding]:
    stopped = _find_stop(scan, table)
    if stopped or table.state != "ok":  # the other differences are checked after that decision; a parked lane has a rule of its own
        yield from stopped
        return
    if location is None:
        if table.committed_group:
            message = f"the registry says that Iceberg reached group {table.committed_group}, but the catalog names no metadata: {_REFRESH}"
            yield POINTER.broken(table.name, "catalog", message)
        return
    try:
        tree = read_tree(scan.require_storage(), location)
    except TreeError as exc:
        yield POINTER.broken(table.name, exc.location, f"the catalog names this metadata file, but {exc.reason}: {_REFRESH}")
        return
    if changed := list_changed(tree.metadata):
        yield _foreign(table.name, tree.location, changed)
        return
    yield from _check_group(table, tree)
    yield from _check_history(scan, table, tree)
    try:
        yield from _check_files(scan, table, tree)
        yield from _check_needed(scan, table, tree)
        sum(1 for _ in tree.list_reachable())
    except TreeError as exc:
        yield TREE.broken(table.name, exc.location, f"a kept snapshot names this file, but {exc.reason}: {_REFRESH}")


def _find_stop(scan: Scan, table: _Table) -> list[Finding]:
    rows = scan.query(_STOP, {"key": f"foreign_commit/{table.table_id}"})
    facts = [json.loads(row[0]) for row in rows]
    return [_foreign(table.name, fact["location"], fact["changed"]) for fact in facts]


def _foreign(name: str, location: str, changed: Sequence[str]) -> Finding:
    discard = f"`lakebed repair {name} --how discard_foreign --execute` goes back to what Lakebed wrote"
    adopt = f"`lakebed repair {name} --how adopt_foreign --execute` registers the files that it added, "
    rebuild = f"`lakebed repair {name} --how rebuild --execute` recreates the Iceberg table from the registry"
    remedy = rebuild if "format version" in changed else (adopt if list(changed) == ["main"] else "") + discard
    what = ", ".join(changed) or "metadata"
    return FOREIGN.broken(name, location, f"another program changed the table's {what}, so no snapshot is published: {remedy}")


def list_changed(metadata: dict[str, Any]) -> list[str]:
    """What differs from what Lakebed recorded in the table when it committed last; the current snapshot must be ours in any case."""
    properties = metadata.get("properties", {})
    current = metadata.get("current-snapshot-id")
    main = next((s for s in metadata.get("snapshots", []) if s["snapshot-id"] == current), None)
    is_ours = main is None or "lakebed.commit-id" in main.get("summary", {})
    recorded = _read_written(properties, was_there=main is not None and "lakebed.format" in main.get("summary", {}))
    own = {key: value for key, value in properties.items() if key.startswith("lakebed.") and key != "lakebed.written"}
    found = {
        "uuid": ("uuid", metadata.get("table-uuid")),
        "location": ("location", metadata.get("location")),
        "schema-id": ("schema", metadata.get("current-schema-id")),
        "spec-id": ("partition spec", metadata.get("default-spec-id")),
        "sort-order-id": ("sort order", metadata.get("default-sort-order-id")),
        "main": ("main", None if current == _NO_SNAPSHOT else current),
        "properties": ("lakebed.* properties", own),
    }
    changed = [name for key, (name, value) in found.items() if key in recorded and recorded[key] != value]
    return changed if is_ours or "main" in changed else [*changed, "main"]


def _read_written(properties: dict[str, str], *, was_there: bool) -> dict[str, Any]:
    """What was recorded; a table that an earlier version committed last has no such property."""
    try:
        recorded = json.loads(properties.get("lakebed.written", "null"))
    except ValueError:
        recorded, was_there = None, True
    if isinstance(recorded, dict):
        return recorded
    return {"properties": None} if was_there else {}


def _check_group(table: _Table, tree: Tree) -> Iterator[Finding]:
    if not table.committed_group <= tree.group <= table.last_group:
        message = (
            f"Iceberg is at group {tree.group}, the registry says that {table.committed_group} is committed and {table.last_group} "
            f"the last: {_REFRESH}"
        )
        yield GROUP.broken(table.name, tree.location, message)


def _check_history(scan: Scan, table: _Table, tree: Tree) -> Iterator[Finding]:
    """Ids of commits once, sequence numbers rising with time, and the registry's list the same as the table's."""
    snapshots = sorted(tree.snapshots, key=lambda s: s["sequence-number"])
    commits = [s["summary"]["lakebed.commit-id"] for s in snapshots if _is_ours(s)]
    numbers = [s["sequence-number"] for s in snapshots]
    if len(set(commits)) != len(commits):
        yield HISTORY.broken(table.name, tree.location, f"a commit occurs twice: {_REFRESH}")
    if len(set(numbers)) != len(numbers) or [s["timestamp-ms"] for s in snapshots] != sorted(s["timestamp-ms"] for s in snapshots):
        yield HISTORY.broken(table.name, tree.location, f"sequence numbers do not rise with the snapshots' times: {_REFRESH}")
    known = {row[0] for row in scan.query(_SNAPSHOTS, {"id": table.table_id})}
    kept = {s["snapshot-id"] for s in snapshots}
    if known != kept and tree.group <= table.committed_group:  # ahead of the registry: the commit is not written down yet
        wrong = sorted(known ^ kept)[:_SHOWN]
        yield HISTORY.broken(
            table.name, tree.location, f"registry and Iceberg keep different snapshots ({', '.join(map(str, wrong))}): {_REFRESH}"
        )


def _check_files(scan: Scan, table: _Table, tree: Tree) -> Iterator[Finding]:
    current = tree.current
    held = {} if current is None else tree.files_of(current)
    rows = scan.query(_AT_GROUP, {"id": table.table_id, "g": tree.group})
    wanted = {path: Entry(rows=row_count, size_bytes=size) for path, row_count, size in rows}
    for path in sorted(held.keys() ^ wanted.keys())[:_SHOWN]:
        where = "the current snapshot, but not of the registry" if path in held else "the registry, but not of the current snapshot"
        yield FILES.broken(table.name, path, f"at group {tree.group} the file is part of {where}: {_REFRESH}")
    if current is None:
        return
    if tree.count_entries(current) != len(held):
        yield FILES.broken(table.name, tree.location, f"the current snapshot lists a file twice, so its rows are read twice: {_REFRESH}")
    for path in sorted(held.keys() & wanted.keys()):
        if held[path] != wanted[path]:
            message = f"a manifest says {held[path].rows} rows and {held[path].size_bytes} bytes, the registry {wanted[path].rows} and {wanted[path].size_bytes}: {_REFRESH}"
            yield TOTALS.broken(table.name, path, message)
    yield from _check_totals(table, current, held)


def _check_totals(table: _Table, snapshot: dict[str, Any], held: dict[str, Entry]) -> Iterator[Finding]:
    sums = {
        "total-data-files": len(held),
        "total-records": sum(entry.rows for entry in held.values()),
        "total-files-size": sum(entry.size_bytes for entry in held.values()),
    }
    for key, expected in sums.items():
        if int(snapshot["summary"].get(key, -1)) != expected:
            message = f"its summary says {key} = {snapshot['summary'].get(key)}, its manifests hold {expected}: {_REFRESH}"
            yield TOTALS.broken(table.name, f"snapshot {snapshot['snapshot-id']}", message)


def _check_needed(scan: Scan, table: _Table, tree: Tree) -> Iterator[Finding]:
    """No file of a kept snapshot may have been deleted: its row goes in the transaction that finalizes the deletion."""
    known = {row[0] for row in scan.query(_KNOWN, {"id": table.table_id})}
    for snapshot in tree.snapshots:
        lost = tree.files_of(snapshot).keys() - known
        if not _is_ours(snapshot):  # its own files have no row, but they must be there
            lost = {path for path in lost if not _exists(scan, path)}
        for path in sorted(lost)[:_SHOWN]:
            message = f"snapshot {snapshot['snapshot-id']} still needs this file, but its deletion is final: expire the snapshot"
            yield NEEDED.broken(table.name, path, message)


def _is_ours(snapshot: dict[str, Any]) -> bool:
    return "lakebed.commit-id" in snapshot.get("summary", {})


def _exists(scan: Scan, path: str) -> bool:
    try:
        scan.require_storage().stat(path)
    except FileMissingError:
        return False
    except PathRefusedError:
        return True  # not in the warehouse: nothing of ours deletes it
    return True


LONG_PASSES = (Pass(rules=(POINTER, TREE, GROUP, FILES, TOTALS, HISTORY, NEEDED, FOREIGN), over="tables", find=find_drift),)
