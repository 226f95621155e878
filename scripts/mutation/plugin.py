"""What pytest does for a record of the reached lines and for the run of a mutant: `-p mutation.plugin`."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mutation.environment import REACHED, REPORT, SHARED, TESTS

_seconds: dict[str, float] = {}
_shared_seconds: dict[str, float] = {}
_failed: dict[str, str] = {}
_skipped: list[str] = []


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if TESTS not in os.environ:
        return
    order = {test: number for number, test in enumerate(json.loads(Path(os.environ[TESTS]).read_text(encoding="utf-8")))}
    left_out = [item for item in items if item.nodeid not in order]
    config.hook.pytest_deselected(items=left_out)
    items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    _forget_places()


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> Iterator[None]:
    """What a shared fixture reaches is no merit of the test that happens to come first, and its time is that of all of them."""
    if fixturedef.scope == "function" or SHARED in os.environ:
        yield
        return
    os.environ[SHARED] = "yes"
    _forget_places()
    began = time.monotonic()
    yield
    file = request.node.nodeid.partition("::")[0]  # of a session's fixture none: every run makes it
    _shared_seconds[file] = _shared_seconds.get(file, 0.0) + time.monotonic() - began
    del os.environ[SHARED]
    _forget_places()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration
    if report.failed:
        _failed.setdefault(report.nodeid, _reason(report))
    if report.skipped:
        _skipped.append(report.nodeid)


def pytest_sessionfinish() -> None:
    seconds = {test: alone + _shared_seconds.get(test.partition("::")[0], 0.0) for test, alone in _seconds.items()}
    report = {"seconds": seconds, "failed": _failed, "skipped": _skipped}
    Path(os.environ[REPORT]).write_text(json.dumps(report), encoding="utf-8")


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longrepr).strip().partition("\n")[0][:200]


def _forget_places() -> None:
    if REACHED in os.environ:
        from mutation import probe  # noqa: PLC0415 - a run of a mutant has no place to write to

        probe.seen.clear()
