"""The pages of the documentation: their fenced blocks, headings and links, found without a Markdown library."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lakebed.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NOT_RUN = "not-run"
_RUNS = frozenset({"python", "sh", "sql", "toml"})
_FENCE = re.compile(r"^```(\w*) ?(.*)$")
_HEADING = re.compile(r"^#{1,6} +(.+)$")
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_DROPPED = re.compile(r"[^\w\- ]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block. `expected` is what it must print: the block of plain text that follows it at once."""

    language: str
    options: str
    line: int
    text: str
    expected: str | None = None

    @property
    def runs(self) -> bool:
        return self.language in _RUNS and self.options != NOT_RUN


def list_blocks(text: str) -> list[Block]:
    found = list(_find_fences(text))
    return [_with_expected(one, following) for one, following in zip(found, [*found[1:], None], strict=False)]


def list_links(text: str) -> list[str]:
    """Targets of links outside code."""
    return [target for line in _prose(text) for target in _LINK.findall(re.sub(r"`[^`]*`", "code", line))]


def list_anchors(text: str) -> set[str]:
    """As the usual renderers name headings: lower case, no punctuation, hyphens for blanks, a number for the second of a name."""
    anchors: set[str] = set()
    for line in _prose(text):
        if found := _HEADING.match(line):
            plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", found[1])
            slug = _DROPPED.sub("", plain.strip().lower()).replace(" ", "-")
            anchors.add(next(name for name in _numbered(slug) if name not in anchors))
    return anchors


def list_commands() -> list[str]:
    """Every command that can be typed, without its arguments."""
    return sorted(_walk("lakebed", typer.main.get_command(app)))


def section(text: str, heading: str) -> str:
    """What stands under a heading, down to the next one of its depth or above; empty when there is none."""
    depth = len(heading) - len(heading.lstrip("#"))
    taken: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.strip() == heading:
            inside = True
        elif inside and (found := re.match(r"^(#+) ", line)) and len(found[1]) <= depth:
            break
        elif inside:
            taken.append(line)
    return "\n".join(taken)


def _walk(path: str, command: object) -> Iterator[str]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path
        return
    for name, one in inner.items():
        yield from _walk(f"{path} {name}", one)


def _find_fences(text: str) -> Iterator[Block]:
    opened: tuple[str, str, int] | None = None
    taken: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if opened is None and (found := _FENCE.match(line)):
            opened, taken = (found[1], found[2], number), []
        elif opened is not None and line == "```":
            yield Block(language=opened[0], options=opened[1], line=opened[2], text="\n".join(taken) + "\n")
            opened = None
        elif opened is not None:
            taken.append(line)


def _with_expected(block: Block, following: Block | None) -> Block:
    """Only a blank line may stand between the two."""
    lines = block.text.count("\n")
    if following is None or following.language != "text" or following.line > block.line + lines + 3:
        return block
    return Block(language=block.language, options=block.options, line=block.line, text=block.text, expected=following.text)


def _prose(text: str) -> Iterator[str]:
    is_code = False
    for line in text.splitlines():
        if line.startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield line


def _numbered(slug: str) -> Iterator[str]:
    yield slug
    number = 1
    while True:
        yield f"{slug}-{number}"
        number += 1
