"""Every path is made by the path manager: what joins text with a slash elsewhere is listed here, with its reason."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path

import lakebed

SOURCE = Path(lakebed.__file__).parent
# Whole modules that make no path of the warehouse, or may not ask Lakebed for one.
ELSEWHERE = {
    "adopt/walk.py": "names as a foreign directory has them, judged afterwards",
    "parquet/rewrite/task_writer.py": "runs on executors that have no Lakebed, below a directory that was made for it",
    "pipeline/rows/scan.py": "patterns for Spark's reader over paths that exist",
}
# Text with a slash in it that is not a path, or is handed to the path manager at once.
OTHERWISE = {
    ("admin/doctor.py", "f'{home}/bin/java'"): "a program",
    ("legacy/files.py", "f'{root}/{path}'"): "an argument of `canonical`",
    ("check/iceberg_reach.py", "f'{path}/'"): "a prefix that paths are compared with",
    (
        "check/iceberg_reach.py",
        "self.storage.paths.metadata_directory(table_id, TableName(database, name)) + '/'",
    ): "a prefix that paths are compared with",
    (
        "check/iceberg_reach.py",
        "self.storage.paths.table_directory(known.table_id, TableName.parse(pointer.table)) + '/'",
    ): "a prefix that paths are compared with",
    ("check/rules/warehouse.py", "f\"{row[0].rstrip('/')}/\""): "a prefix that paths are compared with",
    ("cli/commands/operations/serve.py", "f\", http://{facts['listen']}/status\""): "an address",
    ("iceberg/upkeep/foreign.py", "storage.paths.table_directory(row.id, name) + '/'"): "a prefix that paths are compared with",
    ("iceberg/upkeep/reachable.py", "f'{parent}/{name}'"): "the name under which a path was found",
    ("iceberg/upkeep/reachable.py", "f'{path}/'"): "a prefix that paths are compared with",
    ("iceberg/upkeep/reachable.py", "self.storage.paths.metadata_directory(table.id, name) + '/'"): "a prefix",
    (
        "iceberg/upkeep/reachable.py",
        "self.storage.paths.table_directory(table.id, TableName(table.database, table.name)) + '/'",
    ): "a prefix",
    ("pipeline/write/streaming.py", "f\"{checkpoint.rstrip('/')}/metadata\""): "a file of Spark's checkpoint",
    ("registry/files/known_paths.py", "f\"{row[0].rstrip('/')}/\""): "a prefix that paths are compared with",
    ("registry/backends/sqlite_place.py", "point.rstrip('/') + '/'"): "a prefix, of a mount",
    ("testing.py", "f'sqlite:///{directory}/lake.db'"): "the address of a registry",
}
# Names of leases, keys and people: never seen by a storage.
NAMES = {
    "registry/processes.py",
    "registry/files/adoption.py",
    "registry/tables/expired.py",
    "registry/journal/cursors.py",
}
NAMES |= {"pipeline/spark/lease.py", "maintenance/schedule.py", "core/partitions.py", "cli/progress.py"}


def joins_a_path(node: ast.AST) -> bool:
    """A value followed by a slash (`f"{a}/b"`, `a + "/b"`), `os.path.join`, or `"/".join`."""
    match node:
        case ast.JoinedStr(values=values):
            pairs = pairwise(values)
            return any(isinstance(left, ast.FormattedValue) and begins_with_slash(right) for left, right in pairs)
        case ast.BinOp(op=ast.Add(), right=right):
            return begins_with_slash(right)
        case ast.Attribute(attr="join", value=ast.Attribute(attr="path") | ast.Constant(value="/")):
            return True
        case _:
            return False


def begins_with_slash(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/")


def find_joins(module: Path) -> list[str]:
    return [ast.unparse(node) for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))) if joins_a_path(node)]


def test_no_path_is_made_outside_the_path_manager() -> None:
    found = {
        (name, join)
        for module in SOURCE.rglob("*.py")
        if not (name := module.relative_to(SOURCE).as_posix()).startswith("storage/")
        for join in find_joins(module)
    }

    assert {(name, join) for name, join in found if name not in ELSEWHERE and name not in NAMES} == set(OTHERWISE)
    assert {name for name, _ in found} >= ELSEWHERE.keys() | NAMES  # an entry that is no longer needed goes


def test_the_search_knows_a_path_when_it_sees_one() -> None:
    made = ["f'{a}/b'", "f'{a}/{b}'", "a + '/b'", "os.path.join(a, b)", "'/'.join(a)"]
    others = ["f'{a}-{b}'", "f'/{a}'", "a + b", "', '.join(a)", "a.split('/')"]

    assert [any(joins_a_path(node) for node in ast.walk(ast.parse(text))) for text in made] == [True] * len(made)
    assert [any(joins_a_path(node) for node in ast.walk(ast.parse(text))) for text in others] == [False] * len(others)
