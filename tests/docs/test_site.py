"""The site and its pictures: built strictly, complete in the repository, and nothing is fetched from elsewhere."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from pages import PAGES, ROOT

if TYPE_CHECKING:
    from pathlib import Path

DIAGRAMS = sorted((ROOT / "docs/diagrams").glob("*.dot"))
_IMAGE = re.compile(r"!\[[^\]]+\]\(([^)\s]+)\)")
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video)[^>]+src=\"?https?:[^\" >]+|<link[^>]+rel=\"?(?:stylesheet|preload|icon)\"?[^>]+href=\"?https?:[^\" >]+"
)


@pytest.mark.parametrize("source", DIAGRAMS, ids=lambda p: p.stem)
def test_a_picture_is_drawn_from_its_source_as_it_is(source: Path) -> None:
    """Otherwise run `make diagrams`."""
    assert hashlib.sha256(source.read_bytes()).hexdigest() in source.with_suffix(".svg").read_text().partition("\n")[0]


def test_every_picture_is_shown_and_every_shown_one_is_there() -> None:
    shown = {(page.parent / name).resolve() for page in PAGES for name in _IMAGE.findall(page.read_text())}

    assert [str(path) for path in shown if not path.exists()] == []
    assert {source.with_suffix(".svg") for source in DIAGRAMS} <= shown


def test_pictures_load_nothing() -> None:
    pictures = {source.stem: source.with_suffix(".svg").read_text() for source in DIAGRAMS}

    assert [name for name, text in pictures.items() if re.search(r"<script|<image|@import|href=\"http", text)] == []


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="the extra `docs` is not installed: make setup")
def test_the_site_is_built_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 40
    assert {found for page in pages for found in _FETCHED.findall(page.read_text())} == set()
