"""A component never calls another: what it makes true it writes to the registry. So none of them may even know another."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import lakebed.components
from lakebed.core.events import Component

PACKAGE = "lakebed.components"
DIRECTORY = Path(lakebed.components.__path__[0])
MODULES = sorted(path.stem for path in DIRECTORY.glob("*.py") if path.stem != "__init__")


def list_imports(module: str) -> set[str]:
    """Every module that the source names in an import, wherever it stands: also inside functions, and for types alone."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((DIRECTORY / f"{module}.py").read_text())):
        match node:
            case ast.Import(names=names):
                found |= {name.name for name in names}
            case ast.ImportFrom(module=source, names=names, level=level):
                above = PACKAGE if level else ""
                base = ".".join(part for part in (above, source) if part)
                found |= {base, *(f"{base}.{name.name}" for name in names)}
            case _:
                pass
    return found


def test_every_component_of_the_constant_is_a_module_here() -> None:
    assert {component.value for component in Component} == set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_a_component_imports_no_sibling_and_nothing_above_it(module: str) -> None:
    above = ("lakebed.components", "lakebed.pipeline", "lakebed.service", "lakebed.lake", "lakebed.cli")

    found = {name for name in list_imports(module) if name.startswith(above) and name != f"{PACKAGE}.{module}"}

    assert found == set()


def test_the_package_itself_names_none_of_them() -> None:
    assert {name for name in list_imports("__init__") if name.startswith(PACKAGE)} == set()
