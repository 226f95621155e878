"""For mkdocs: pages of the repository that are outside `docs/` become part of the site, and links to them lead there."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
_DOCS = "docs"
_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "README.md": "readme.md",
    "bench/README.md": "benchmark.md",
}
_ORIGINS = {site: source for source, site in _PAGES.items()}
_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
_SHOWN = ("examples", "bench/results", "src", "tests", "scripts")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages, and as they are the files that pages link to."""
    for source, site in _PAGES.items():
        if source != "README.md":
            files.append(File.generated(config, site, content=(ROOT / source).read_text()))
    for source in sorted(_list_linked()):
        files.append(File.generated(config, f"files/{source}.txt", content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - as mkdocs calls it
    source = _ORIGINS.get(page.file.src_uri, f"{_DOCS}/{page.file.src_uri}")
    return _LINK.sub(lambda found: _rewrite(found[1], source, page.file.src_uri), markdown)


def _rewrite(target: str, source: str, site: str) -> str:
    name, mark, anchor = target.partition("#")
    if not name or "://" in name:
        return target
    place = posixpath.normpath(posixpath.join(posixpath.dirname(source), name))
    return posixpath.relpath(_site_path(place), posixpath.dirname(site) or ".") + mark + anchor


def _site_path(place: str) -> str:
    if place in _PAGES:
        return "index.md" if place == "README.md" else _PAGES[place]
    return place.removeprefix(f"{_DOCS}/") if place.startswith(f"{_DOCS}/") else f"files/{place}.txt"


def _list_linked() -> set[str]:
    """Files outside `docs/` that pages link to, as places below the root."""
    pages = [*(ROOT / _DOCS).rglob("*.md"), *(ROOT / source for source in _PAGES)]
    found = {
        posixpath.normpath(posixpath.join(page.parent.relative_to(ROOT).as_posix(), target.partition("#")[0]))
        for page in pages
        for target in _LINK.findall(page.read_text())
        if "://" not in target and not target.startswith("#")
    }
    return {place for place in found if place.startswith(_SHOWN) and (ROOT / place).is_file() and place not in _PAGES}
