"""Files that the catalog's pointers reach, whichever program wrote them: they are needed, so never orphans, and must exist.

Every row of the catalog counts: tables that stopped because another program committed to them, and tables that only the catalog knows.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from lakebed.check.iceberg_tree import Pointer, Tree, TreeError, list_pointers, read_any_tree
from lakebed.check.scan import PAGE, Pass, Rule, in_batches
from lakebed.core.errors import FileMissingError, NotAFileError, PathRefusedError
from lakebed.core.files import Needed
from lakebed.core.names import TableName
from lakebed.storage.locations import find_paths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.check.report import Finding
    from lakebed.check.scan import Scan
    from lakebed.storage.protocol import Storage

MISSING = Rule(name="iceberg_missing")

_TABLES = "SELECT id, database, name, state FROM tables WHERE dropped_at IS NULL"
_ANY_TABLES = "SELECT id FROM tables"
_COMMITTED = "SELECT id, database, name FROM tables WHERE committed_group > 0 OR last_group > 0"
_OURS = "SELECT snapshot_id FROM table_snapshots WHERE table_id = :id AND summary LIKE :ours"
_REGISTERED = "SELECT file_path FROM table_files WHERE file_path IN (:paths*)"
_WORKERS = 8
_ATTEMPTS = 5
_RESTORE = "restore it from a backup; Lakebed cannot recreate a file that another program wrote"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A table of the registry under its catalog name."""

    table_id: int
    state: str


def find_reach(scan: Scan) -> Needed:
    """Files that the pointers reach now, registered data files left out; directories of tables that are not Lakebed's alone count whole."""
    known = _list_known(scan)
    reach = _Reach(scan, {str(row[0]) for row in scan.query(_ANY_TABLES, None)})
    pointers = list_pointers(scan)
    for pointer in pointers:
        reach.follow(pointer, known.get(pointer.table) if pointer.is_own else None)
    reach.keep_lost({pointer.table for pointer in pointers if pointer.is_own and pointer.location is not None})
    return Needed(paths=frozenset(reach.paths), unsure=tuple(reach.unsure))


@dataclass(slots=True)
class _Reach:
    scan: Scan
    table_ids: set[str]
    paths: set[str] = field(default_factory=set)
    unsure: list[str] = field(default_factory=list)

    @property
    def storage(self) -> Storage:
        return self.scan.require_storage()

    def follow(self, pointer: Pointer, known: _Known | None) -> None:
        if pointer.location is None:
            return
        tree = None
        try:
            tree = read_any_tree(self.storage, pointer.location)
            self.paths.update(tree.list_reachable())
            self.paths.update(tree.list_foreign_files(_list_ours(self.scan, known)))
            if tree.is_ours and tree.properties.get("lakebed.table-id") in self.table_ids:
                return
        except TreeError:  # other rules report it
            pass
        self._keep_whole(pointer, known, tree)

    def keep_lost(self, pointed: set[str]) -> None:
        for table_id, database, name in self.scan.query(_COMMITTED, None):
            if f"{database}.{name}" not in pointed:
                self.unsure.append(self.storage.paths.metadata_directory(table_id, TableName(database, name)) + "/")

    def _keep_whole(self, pointer: Pointer, known: _Known | None, tree: Tree | None) -> None:
        if known is not None:
            self.unsure.append(self.storage.paths.table_directory(known.table_id, TableName.parse(pointer.table)) + "/")
        above = (pointer.location or "").rpartition("/")[0]
        guessed = above.removesuffix("/metadata")
        for location in (guessed, "" if tree is None else str(tree.metadata.get("location"))):
            self.unsure += [f"{path}/" for path in find_paths(self.storage, location)]


def find_missing(scan: Scan) -> Iterator[Finding]:
    """Pointers that lead nowhere and files that no registry row accounts for; the metadata log is history, which no reader needs."""
    for pointer in list_pointers(scan):
        yield from _judge(scan, pointer)


def _judge(scan: Scan, pointer: Pointer) -> list[Finding]:
    """Again while the pointer moves on."""
    findings = list(_examine(scan, pointer))
    for _ in range(_ATTEMPTS):
        if not findings:
            break
        now = next((p for p in list_pointers(scan) if (p.table, p.is_own) == (pointer.table, pointer.is_own)), None)
        if now is None or now == pointer:
            return findings if now == pointer else []
        pointer = now
        findings = list(_examine(scan, pointer))
    return findings


def _examine(scan: Scan, pointer: Pointer) -> Iterator[Finding]:
    storage = scan.require_storage()
    known = _list_known(scan).get(pointer.table) if pointer.is_own else None
    if pointer.location is None or (known is None and not storage.paths.holds(pointer.location)):
        return
    try:
        tree = read_any_tree(storage, pointer.location)
        sum(1 for _ in tree.list_reachable())
        wanted = {*tree.list_statistics(), *_list_unregistered(scan, tree, known)}
    except TreeError as exc:
        if known is None or known.state != "ok":  # other rules look at tables that are ok
            message = f"the catalog's pointer reaches this file, but {exc.reason}: {_RESTORE}"
            yield MISSING.broken(pointer.table, exc.location, message)
        return
    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="lakebed-check") as pool:
        for path in filter(None, pool.map(partial(_find_absent, storage), sorted(wanted))):
            yield MISSING.broken(pointer.table, path, f"a kept snapshot of the table names this file, but it is not there: {_RESTORE}")


def _find_absent(storage: Storage, location: str) -> str | None:
    """The path of a file that is not there; what is outside the warehouse is not looked for."""
    paths = find_paths(storage, location)
    return paths[0] if paths and not any(_is_there(storage, path) for path in paths) else None


def _is_there(storage: Storage, path: str) -> bool:
    try:
        storage.stat(path)
    except (FileMissingError, NotAFileError, PathRefusedError):
        return False
    return True


def _list_unregistered(scan: Scan, tree: Tree, known: _Known | None) -> Iterator[str]:
    for batch in in_batches(tree.list_foreign_files(_list_ours(scan, known)), PAGE):
        yield from set(batch) - {row[0] for row in scan.query(_REGISTERED, {"paths": sorted(set(batch))})}


def _list_ours(scan: Scan, known: _Known | None) -> set[int]:
    return set() if known is None else {row[0] for row in scan.query(_OURS, {"id": known.table_id, "ours": '%"lakebed.commit-id"%'})}


def _list_known(scan: Scan) -> dict[str, _Known]:
    return {f"{database}.{name}": _Known(table_id=table_id, state=state) for table_id, database, name, state in scan.query(_TABLES, None)}


LONG_PASSES = (Pass(rules=(MISSING,), over="tables", find=find_missing),)
