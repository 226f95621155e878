"""User-facing text is plain English: words that this project once used in a sense of its own stay out of it.

The tests read every string and docstring of the package, the help of every command, and the pages except decisions, appendices and changelog.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import pytest
import typer
from pages import PAGES, ROOT

from lakebed.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

# What is retired, and what to write instead
RETIRED = {
    r"told|tells?|telling": "report, show, name, record",
    r"mend(?:s|ed|ing)?": "repair",
    r"wish(?:es|ed)?": "request",
    r"anew": "again, recreate",
    r"lies?": "is in, is at",
    r"halves": "registry and storage",
    r"nobody|somebody|anybody|whoever": "the actor: a user, another process, the caller",
    r"bears?|bearing|borne": "tolerate, be idempotent",
    r"so many|so much": "the maximum number of",
    r"(?<!there )(?:is|are|was|were) no(?! longer| more)": "expected Y, got X; is not a",
}
# Stored as keys: never renamed
ALLOWED = frozenset({"wishes", "wished", "told"})
# Not covered yet: folders of the package, pages, and `lakebed ` for the help of the commands
PENDING: tuple[str, ...] = ()
_PATTERNS = {re.compile(rf"\b(?:{words})\b", re.IGNORECASE): plain for words, plain in RETIRED.items()}
_CODE = re.compile(r"`[^`\n]*`")


def test_no_text_of_the_package_uses_a_retired_word() -> None:
    assert list(_find_retired(_list_package_texts(ROOT), pending=PENDING)) == []


def test_no_help_of_a_command_uses_a_retired_word() -> None:
    assert list(_find_retired(_list_help("lakebed", typer.main.get_command(app)), pending=PENDING)) == []


def test_no_page_uses_a_retired_word() -> None:
    assert list(_find_retired(_list_page_texts(ROOT, _list_pages()), pending=PENDING)) == []


@pytest.mark.parametrize(
    "planted",
    [
        "the report tells how many",
        "what would be mended",
        "Wished for",
        "made anew",
        "the file lies in the warehouse",
        "both halves",
        "until somebody looks",
        "a call that must bear repetition",
        "at most so many",
        "x is no time",
    ],
)
def test_a_planted_word_is_found(tmp_path: Path, planted: str) -> None:
    module, page = tmp_path / "src/lakebed/module.py", tmp_path / "page.md"
    module.parent.mkdir(parents=True)
    module.write_text(f'"""A docstring: {planted}."""\nMESSAGE = f"{{MESSAGE}} {planted}: {{MESSAGE}}"\n')
    page.write_text(f"# A page\n\nA line, in which {planted}.\n")

    texts = [*_list_package_texts(tmp_path), *_list_page_texts(tmp_path, [page])]

    assert [found.partition(": ")[0] for found in _find_retired(texts)] == [
        "src/lakebed/module.py:1",
        "src/lakebed/module.py:2",
        "page.md:3",
    ]


@pytest.mark.parametrize(
    "proper", ["there is no table", "it is no longer live", "a bearer token", "called as `tell`", "half-open", "wishes"]
)
def test_proper_english_identifiers_and_stored_keys_are_allowed(proper: str) -> None:
    assert list(_find_retired([("place", proper)])) == []


def _find_retired(texts: Iterable[tuple[str, str]], *, pending: tuple[str, ...] = ()) -> Iterator[str]:
    for place, text in texts:
        if text in ALLOWED or place.startswith(pending):
            continue
        words = _CODE.sub("``", " ".join(text.split()))
        yield from (f"{place}: {found[0]!r}, write: {plain}" for pattern, plain in _PATTERNS.items() if (found := pattern.search(words)))


def _list_package_texts(root: Path) -> Iterator[tuple[str, str]]:
    for module in sorted((root / "src/lakebed").rglob("*.py")):
        for line, text in _list_strings(ast.parse(module.read_text())):
            yield f"{module.relative_to(root)}:{line}", text


def _list_strings(node: ast.AST) -> Iterator[tuple[int, str]]:
    """An f-string counts as one text, with what it fills in left out."""
    if isinstance(node, ast.JoinedStr):
        yield node.lineno, "".join(_spell(part) for part in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)):
            yield from _list_strings(child)


def _spell(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "{}"


def _list_help(path: str, command: Any) -> Iterator[tuple[str, str]]:
    yield f"{path} --help", command.help or ""
    for parameter in command.params:
        yield f"{path} {parameter.name}", getattr(parameter, "help", None) or ""
    for name, inner in getattr(command, "commands", {}).items():
        yield from _list_help(f"{path} {name}", inner)


def _list_pages() -> list[Path]:
    return [page for page in PAGES if page.name != "CHANGELOG.md" and not {"decisions", "appendices"} & {*page.parts}]


def _list_page_texts(root: Path, pages: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for page in pages:
        for number, line in enumerate(page.read_text().splitlines(), start=1):
            yield f"{page.relative_to(root)}:{number}", line
