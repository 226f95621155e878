"""Runs the examples of pages as a reader would: block after block, each page in a new directory, one Spark for all.

A process of its own: `python run_pages.py REQUEST`, a JSON file with the pages, what to put for names of hosts that exist only on paper,
and where the answer goes: per page what went wrong (nothing, if all is well) and the seconds it took. Pages give Spark whole paths: Java
stays in the directory where it was started. Its Python workers look for the lake of a page, `lake.db` and `warehouse`, where every page runs.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pages import list_blocks
from typer.testing import CliRunner

from lakebed.cli.app import app
from lakebed.lake import Lake
from lakebed.pipeline.spark.session import SparkSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pages import Block

_SHELL = frozenset({"cp", "mkdir", "rm", "mv", "ls", "truncate"})
_EXIT = re.compile(r"# exit (\d)")
_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_SPARK = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # Java does not live long enough for its second compiler
}


class ExampleError(Exception):
    """An example did not do what its page says."""


def run_page(page: Path, names: Mapping[str, str]) -> str:
    """What went wrong, with the line of the block; nothing if all is well."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    kept = dict(os.environ)
    try:
        for block in list_blocks(page.read_text()):
            try:
                _run(block, _put(block.text, names), namespace)
            except BaseException:  # noqa: BLE001 - whatever it is, it is the reader's first impression
                return f"{page.name}:{block.line}\n{traceback.format_exc()}\n{_list_findings(namespace)}"
    finally:
        os.environ.clear()
        os.environ.update(kept)
        for value in namespace.values():
            if isinstance(value, Lake):
                value.close()
    return ""


def _list_findings(namespace: dict[str, Any]) -> str:
    """What is wrong with the lakes of a page that failed: its text shows at most that something is."""
    lakes = [value for value in namespace.values() if isinstance(value, Lake)]
    with contextlib.suppress(Exception):
        return "\n".join(str(finding) for lake in lakes for finding in lake.check().findings)
    return "the lake cannot be checked any more"


def _run(block: Block, text: str, namespace: dict[str, Any]) -> None:
    if not block.runs:
        return
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        match block.language:
            case "python":
                exec(compile(text, "example", "exec"), namespace)  # noqa: S102 - that is what an example is for
            case "sql":
                namespace["lake"].sql(text).show(truncate=False)
            case "toml":
                Path(block.options).write_text(text)
            case _:
                _run_shell(text)
    if block.expected is not None and not doctest.OutputChecker().check_output(block.expected, printed.getvalue(), _OPTIONS):
        message = f"it printed\n{printed.getvalue()}\nnot\n{block.expected}"
        raise ExampleError(message)


def _run_shell(text: str) -> None:
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        wanted = int(found[1]) if (found := _EXIT.search(line)) else 0
        code, shown = _command(words)
        if code != wanted:
            message = f"`{line}` ended with {code}, not {wanted}: {shown}"
            raise ExampleError(message)


def _command(words: list[str]) -> tuple[int, str]:
    if words[0] == "export":
        name, _, value = words[1].partition("=")
        os.environ[name] = value
        return 0, ""
    if words[0] == "lakebed":
        done = CliRunner().invoke(app, words[1:])
        sys.stdout.write(done.stdout)
        shown = "".join(traceback.format_exception(done.exception)) if done.exception and not isinstance(done.exception, SystemExit) else ""
        return done.exit_code, done.output + shown
    if words[0] not in _SHELL:
        return -1, f"the runner knows no {words[0]}: mark the block as console"
    ran = subprocess.run(shlex.join(words).replace("'*'", "*"), shell=True, capture_output=True, text=True, check=False)  # noqa: S602 - an example's own text
    sys.stdout.write(ran.stdout)
    return ran.returncode, ran.stderr


def _put(text: str, names: Mapping[str, str]) -> str:
    for name, real in names.items():
        text = text.replace(name, real)
    return text


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    outcomes: dict[str, tuple[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="docs-", ignore_cleanup_errors=True) as directory:
        place = Path(directory) / "page"
        spark = SparkSource(options=_SPARK, serves=(f"sqlite:///{place}/lake.db", str(place / "warehouse"))).spark
        for page in request["pages"]:
            place.mkdir()
            os.chdir(place)
            began = time.perf_counter()
            wrong = run_page(Path(page), request["names"])
            outcomes[page] = (wrong, round(time.perf_counter() - began, 2))
            os.chdir("/")
            place.rename(f"{place}-{len(outcomes)}")  # a server that the page started may still write there
        spark.stop()
    Path(request["answer"]).write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main()
