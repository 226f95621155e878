"""Writes the pages that follow from the program and its measurements; with `--check` only says which are out of date."""

from __future__ import annotations

import sys
from pathlib import Path

from docs_pages import cli_page, decisions_page, metrics_page, performance_page, python_page, readme_figures, registry_diagram

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "docs/reference/cli.md": cli_page.render,
    "docs/reference/python.md": python_page.render,
    "docs/reference/metrics.md": metrics_page.render,
    "docs/performance.md": performance_page.render,
    "docs/decisions/README.md": decisions_page.render,
    "docs/diagrams/registry.dot": registry_diagram.render,
    "README.md": readme_figures.render,
}


def main() -> int:
    changed = [name for name, render in PAGES.items() if not _is_current(ROOT / name, render(ROOT))]
    if "--check" in sys.argv[1:]:
        for name in changed:
            print(f"{name} is out of date: run `make docs`")
        return 1 if changed else 0
    for name in changed:
        (ROOT / name).write_text(PAGES[name](ROOT))
        print(f"wrote {name}")
    return 0


def _is_current(page: Path, text: str) -> bool:
    return page.exists() and page.read_text() == text


if __name__ == "__main__":
    sys.exit(main())
