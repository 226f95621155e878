"""Astha in a process of its own, to be killed: `start(url, log, owner)` runs it until its input is closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from recorders import Recorder, recorders, running  # noqa: E402 - found by the line above

from lakebed.registry.open import open_registry  # noqa: E402
from lakebed.registry.processes import make_owner  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.core.events import Event
    from lakebed.core.rows import Row


def start(url: str, log: Path) -> subprocess.Popen[str]:
    """Returns once it is active or stands by."""
    process = subprocess.Popen([sys.executable, __file__, url, str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=30)


def read_log(log: Path) -> list[tuple[str, int, int]]:
    """(component, table, number) of what was handled; a refresh is a negative number. A torn last line was not acknowledged."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [tuple(json.loads(line)) for line in lines]


def _write(out: TextIO, *what: object) -> None:
    out.write(json.dumps(what) + "\n")
    out.flush()


def _logging(out: TextIO, recorder: Recorder) -> Callable[[Event[Row]], None]:
    return lambda event: _write(out, recorder.component.value, event.table_id, event.sequence)


def _remember(out: TextIO, recorder: Recorder) -> None:
    real = recorder.on_refresh

    def refresh(table_id: int) -> int:
        mark = real(table_id)
        _write(out, recorder.component.value, table_id, -mark)
        return mark

    recorder.before_event = _logging(out, recorder)
    recorder.on_refresh = refresh  # type: ignore[method-assign]


def main(url: str, log: str) -> None:
    with closing(open_registry(url)) as registry, Path(log).open("a") as out:
        components = recorders(registry)
        for recorder in components.values():
            _remember(out, recorder)
        with running(registry, components, owner=make_owner("astha")):
            os.write(1, b"started\n")
            sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
