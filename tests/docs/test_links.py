"""Pages lead to each other: no link is dead, no page is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pages import PAGES, ROOT, list_anchors, list_links

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [target for target in list_links(page.read_text()) if not _is_alive(page, target)] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        todo += [path for target in list_links(page.read_text()) if (path := _find(page, target)) is not None]

    reached = {page for page in PAGES if page in seen}
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in reached] == []


def test_no_page_has_two_headings_of_one_name() -> None:
    """A link could mean either."""
    assert [str(page.relative_to(ROOT)) for page in PAGES if any(_is_numbered(page, a) for a in list_anchors(page.read_text()))] == []


@pytest.mark.parametrize(
    ("text", "anchors"),
    [
        ("# `lakebed files check`", {"lakebed-files-check"}),
        ("## Go back: `as_of`, and more!", {"go-back-as_of-and-more"}),
        ("## A\n## A", {"a", "a-1"}),
        ("```\n# no heading\n```", set()),
        ("## [a page](x.md) of ours", {"a-page-of-ours"}),
    ],
)
def test_anchors_are_named_as_renderers_name_them(text: str, anchors: set[str]) -> None:
    assert list_anchors(text) == anchors


def test_a_dead_link_is_found() -> None:
    page = ROOT / "docs/index.md"

    assert not _is_alive(page, "nowhere.md")
    assert not _is_alive(page, "glossary.md#no-such-heading")
    assert _is_alive(page, "glossary.md#glossary")


def _is_alive(page: Path, target: str) -> bool:
    if target.startswith(("http://", "https://")):
        return True  # the network is no part of a test
    path = _find(page, target)
    if path is None:
        return False
    anchor = target.partition("#")[2]
    return not anchor or (path.suffix == ".md" and anchor in list_anchors(path.read_text()))


def _find(page: Path, target: str) -> Path | None:
    name = target.partition("#")[0]
    path = (page.parent / name).resolve() if name else page
    return path if path.exists() and ROOT in path.parents else None


def _is_numbered(page: Path, anchor: str) -> bool:
    stem, _, number = anchor.rpartition("-")
    return number.isdigit() and f"# {stem}" not in page.name and stem in list_anchors(page.read_text())
