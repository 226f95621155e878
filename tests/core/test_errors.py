from __future__ import annotations

import ast
from pathlib import Path

from lakebed.core import errors
from lakebed.core.errors import ConflictError, CorruptionError, LakebedError, RefusedError, UnavailableError

SOURCES = Path(errors.__file__).parents[2]
GOLDEN = Path(__file__).parent.parent / "golden" / "error_codes.txt"
FAMILIES: tuple[type[LakebedError], ...] = (RefusedError, ConflictError, UnavailableError, CorruptionError)


def list_leaves() -> list[type[LakebedError]]:
    return [leaf for family in FAMILIES for leaf in family.__subclasses__() if leaf.__module__.startswith(f"{errors.__name__}.")]


def test_there_are_four_families_under_one_root() -> None:
    assert set(LakebedError.__subclasses__()) == set(FAMILIES)


def test_every_error_of_the_module_is_a_leaf_of_one_family() -> None:
    everything = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, LakebedError)}

    assert everything == {LakebedError, *FAMILIES, *list_leaves()}


def test_every_leaf_has_a_code_of_its_own() -> None:
    codes = [leaf.__dict__.get("code") for leaf in list_leaves()]

    assert None not in codes
    assert len({*codes, *(family.code for family in FAMILIES), LakebedError.code}) == len(codes) + 5


def read_codes() -> list[str]:
    """`family/code Class` of every leaf in the sources, so that nothing must be imported to be counted."""
    families = {family.__name__: family.code for family in FAMILIES}
    return sorted(
        f"{families[base.id]}/{find_code(node)} {node.name}"
        for source in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if isinstance(base, ast.Name) and base.id in families
    )


def find_code(node: ast.ClassDef) -> str:
    return next(
        ast.unparse(line.value).strip("'") for line in node.body if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "code"
    )


def test_codes_and_families_are_the_ones_programs_rely_on() -> None:
    """A missing line was renamed or removed, which breaks callers; a new error adds a line to the golden file."""
    assert read_codes() == GOLDEN.read_text().splitlines()


def test_no_code_is_used_twice_in_the_whole_package() -> None:
    codes = [line.split("/")[1].split()[0] for line in read_codes()]

    assert len(set(codes)) == len(codes)


def test_every_leaf_says_what_it_means() -> None:
    assert all(leaf.__doc__ for leaf in list_leaves())
