"""Draws `docs/diagrams/*.dot` as SVG with Graphviz, which npm's @viz-js/viz brings as WebAssembly: no program of the system is needed.

`python scripts/draw_diagrams.py DIRECTORY`, where DIRECTORY has `node_modules`. Each picture carries the hash of its source, by which a
test sees that they belong together. Pictures are kept in the repository: pages need no script, no font and no network.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

DIAGRAMS = Path(__file__).resolve().parents[1] / "docs/diagrams"
_RENDER = """
const { instance } = require(process.argv[1] + "/node_modules/@viz-js/viz");
const text = require("fs").readFileSync(0, "utf8");
instance().then((viz) => process.stdout.write(viz.renderString(text, { format: "svg" })));
"""


def draw(source: Path, modules: str) -> str:
    command = ["node", "-e", _RENDER, modules]
    done = subprocess.run(command, input=source.read_text(), capture_output=True, text=True, check=True)  # noqa: S603 - our own program
    picture = done.stdout[done.stdout.index("<svg") :].replace('font-family="Helvetica"', 'font-family="Helvetica,Arial,sans-serif"')
    return f"<!-- {fingerprint(source)} -->\n" + re.sub(r"<!--.*?-->\n?", "", picture, flags=re.DOTALL)


def fingerprint(source: Path) -> str:
    return f"drawn from {source.name}, SHA-256 {hashlib.sha256(source.read_bytes()).hexdigest()}"


def main() -> None:
    modules = str(Path(sys.argv[1]).resolve())
    for source in sorted(DIAGRAMS.glob("*.dot")):
        source.with_suffix(".svg").write_text(draw(source, modules))
        print(f"drew {source.stem}.svg")


if __name__ == "__main__":
    main()
