"""Imports between modules, those that only types need among them: import-linter proves the order of rooms, this that no module waits for itself."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def list_modules() -> dict[str, Path]:
    names = {path: ".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in (SOURCE / "lakebed").rglob("*.py")}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


def find_imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of Lakebed that any line of the file imports, inside functions and under `TYPE_CHECKING` too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {full if (full := f"{node.module}.{alias.name}") in known else node.module for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & known.keys()


def test_no_module_imports_itself_by_way_of_others_not_even_for_types() -> None:
    known = list_modules()
    graph = {name: find_imports(path, known) - {name} for name, path in known.items()}

    assert set(TopologicalSorter(graph).static_order()) == known.keys()  # a cycle raises, and names its modules
