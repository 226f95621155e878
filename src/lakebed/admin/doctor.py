"""`lakebed doctor`: checks this host, the registry and the warehouse. It starts no JVM and leaves nothing changed."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal

from lakebed.core.errors import LakebedError, RegistryMissingError
from lakebed.core.results import Rows
from lakebed.registry.backends.sqlite import SAFE_WAL_VERSION
from lakebed.registry.connect import open_backend
from lakebed.registry.files.operations import list_expired_operations
from lakebed.registry.journal.cursors import list_parked
from lakebed.registry.journal.leases import find_holder
from lakebed.registry.key_values import read_facts
from lakebed.registry.registry import Registry, read_host_clock
from lakebed.registry.repair.slots import list_blocked
from lakebed.registry.transaction import MAX_SKEW_US
from lakebed.registry.verify import HEAD, find_revision, verify_triggers
from lakebed.storage.open import open_storage, read_marker
from lakebed.storage.paths import below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.core.times import Clock
    from lakebed.storage.protocol import Storage

Health = Literal["ok", "warn", "bad"]

_LEAST_PYTHON, _LEAST_JAVA = (3, 11), 17
_PACKAGES = {"pyarrow": "18", "pyspark": "4.1", "pyiceberg": "0.12"}
_JAVA_TIMEOUT_S = 20.0
_SLOW_SYNC_S = 0.1
_CLOCK_S = 2.0
_SHOWN = 5
_LITTLE_SHARE, _LITTLE_BYTES = 0.05, 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One line of the report; unless it is ok, `remedy` says what to do."""

    name: str
    health: Health
    found: str
    remedy: str = ""


def examine(
    url: str, warehouse: str, *, java: str | None = None, clock: Clock | None = None, host_clock: Clock = read_host_clock
) -> Rows[Diagnosis]:
    """Each check is independent: what cannot be opened fails only its own lines. Clocks are compared with the registry's clock."""
    lines = [_python(), *_packages(), _java(java), _sqlite()]
    with _opened(url, clock, host_clock) as registry:
        answers = list(_registry(registry))
        known = registry if isinstance(registry, Registry) and answers[0].health != "bad" else None
        lines += [*answers, *_warehouse(warehouse, known)]
    return Rows(Diagnosis, lines)


# -- this host -------------------------------------------------------------------------------


def _python() -> Diagnosis:
    found = ".".join(map(str, sys.version_info[:3]))
    return _line("python", found, is_ok=sys.version_info >= _LEAST_PYTHON, remedy="install Python 3.11 or newer")


def _packages() -> Iterator[Diagnosis]:
    for name, least in _PACKAGES.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            yield Diagnosis(name=name, health="bad", found="not installed", remedy=f"install {name} {least} or newer beside Lakebed")
            continue
        yield _line(name, found, is_ok=_numbers(found) >= _numbers(least), remedy=f"upgrade {name} to {least} or newer")


def _java(command: str | None) -> Diagnosis:
    """Reads the version of Java; commands that do not touch data never start it."""
    home = os.environ.get("JAVA_HOME")
    program = command or (f"{home}/bin/java" if home else shutil.which("java"))
    remedy = f"install Java {_LEAST_JAVA} or newer and set JAVA_HOME; only reading and writing through Spark needs it"
    if program is None:
        return Diagnosis(name="java", health="warn", found="not found", remedy=remedy)
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=False)  # noqa: S603 - the user's own
    except (OSError, subprocess.SubprocessError) as exc:
        return Diagnosis(name="java", health="warn", found=f"{program} does not answer: {type(exc).__name__}", remedy=remedy)
    stated = re.search(r'version "(\d+)([^"]*)"', answer.stderr + answer.stdout)
    if stated is None:
        return Diagnosis(name="java", health="warn", found=f"{program} prints no version", remedy=remedy)
    return _line("java", stated[1] + stated[2], is_ok=int(stated[1]) >= _LEAST_JAVA, remedy=remedy, otherwise="warn")


def _sqlite() -> Diagnosis:
    found, safe = sqlite3.sqlite_version, ".".join(map(str, SAFE_WAL_VERSION))
    remedy = f"Lakebed guards against the WAL-reset bug of this version; let no other program write the file, or use SQLite {safe}"
    return _line("sqlite", found, is_ok=sqlite3.sqlite_version_info >= SAFE_WAL_VERSION, remedy=remedy, otherwise="warn")


# -- the registry ----------------------------------------------------------------------------


@contextmanager
def _opened(url: str, clock: Clock | None, host_clock: Clock) -> Iterator[Registry | LakebedError]:
    """Open the registry without creating or migrating it."""
    try:
        registry = Registry(open_backend(url), clock=clock, host_clock=host_clock)
    except LakebedError as exc:
        yield exc
        return
    with closing(registry):
        yield registry


def _registry(registry: Registry | LakebedError) -> Iterator[Diagnosis]:
    if isinstance(registry, LakebedError):
        yield Diagnosis(
            name="registry",
            health="bad",
            found=str(registry),
            remedy="give the URL with which the registry was created, or run `lakebed init`",
        )
        return
    answer = _try(
        "registry",
        lambda: _revision(registry),
        remedy="give the URL with which the registry was created, start its database, or run `lakebed init`",
    )
    yield answer
    if answer.health != "bad":
        yield _try("triggers", lambda: _triggers(registry), remedy="stop the writers and run `lakebed repair --execute`")
        yield _try("clock", lambda: _clock(registry), remedy="check the database and run `lakebed doctor` again")
        yield _try("slots", lambda: _slots(registry), remedy="check the database and run `lakebed doctor` again")
        yield _try("lease", lambda: _lease(registry), remedy="check the database and run `lakebed doctor` again")
        yield _try("operations", lambda: _operations(registry), remedy="check the database and run `lakebed doctor` again")
        yield _try("lanes", lambda: _lanes(registry), remedy="check the database and run `lakebed doctor` again")


def _revision(registry: Registry) -> Diagnosis:
    found, shown = find_revision(registry), registry.backend.shown_url
    if found is None:
        raise RegistryMissingError(shown)
    remedy = "run `lakebed migrate`" if found < HEAD else "upgrade Lakebed on this host"
    return _line("registry", f"{shown} at revision {found}", is_ok=found == HEAD, remedy=remedy)


def _triggers(registry: Registry) -> Diagnosis:
    verify_triggers(registry)
    return Diagnosis(name="triggers", health="ok", found="present and unchanged")


def _clock(registry: Registry) -> Diagnosis:
    ahead = (registry.now() - registry.host_now()) / 1e6
    found, is_far = f"{ahead:+.3f} s from the registry's clock", abs(ahead) > MAX_SKEW_US / 1e6
    remedy = "keep the clocks of all hosts in step (NTP): insert times come from the database's clock"
    refused = "correct the wrong clock (NTP): writes from this host are refused until then"
    return _line("clock", found, is_ok=abs(ahead) < _CLOCK_S, remedy=refused if is_far else remedy, otherwise="bad" if is_far else "warn")


def _slots(registry: Registry) -> Diagnosis:
    blocked = list_blocked(registry)
    shown = ", ".join(f"{table.name} ({table.ahead_s:.0f} s)" for table in blocked[:_SHOWN])
    found = (
        f"{len(blocked)} table(s) refuse inserts because their last slot is ahead of the clock: {shown}"
        if blocked
        else "none ahead of the clock"
    )
    return _line("slots", found, is_ok=not blocked, remedy="if the clock is correct now, run `lakebed repair --execute`")


def _lease(registry: Registry) -> Diagnosis:
    holder = find_holder(registry, "astha")
    remedy = "run `lakebed serve` or keep a lake open: otherwise no Iceberg snapshot is made"
    return _line(
        "lease",
        f"held by {holder}" if holder else "no process runs the components",
        is_ok=holder is not None,
        remedy=remedy,
        otherwise="warn",
    )


def _operations(registry: Registry) -> Diagnosis:
    dead = list_expired_operations(registry)
    found = f"{len(dead)} writer(s) died before they finished" if dead else "no dead writer"
    return _line(
        "operations", found, is_ok=not dead, remedy="run `lakebed repair --execute`, or let `lakebed serve` undo them", otherwise="warn"
    )


def _lanes(registry: Registry) -> Diagnosis:
    parked = list_parked(registry)
    found = f"{len(parked)} table(s) are parked" if parked else "no table is parked"
    return _line(
        "lanes",
        found,
        is_ok=not parked,
        remedy="see `lakebed astha dead-letters`, fix the cause, then run `lakebed astha retry`",
        otherwise="warn",
    )


# -- the warehouse ---------------------------------------------------------------------------


def _warehouse(warehouse: str, registry: Registry | None) -> Iterator[Diagnosis]:
    remedy = "give the path with which the warehouse was created; mount it if it is on another disk"
    try:
        storage = open_storage(warehouse, create=False)
    except LakebedError as exc:
        yield Diagnosis(name="warehouse", health="bad", found=str(exc), remedy=remedy)
        return
    yield _try("warehouse", lambda: _identity(storage, registry), remedy=remedy)
    yield _try("writing", lambda: _writing(storage), remedy="grant this user write access to the warehouse and make room on its disk")
    if storage.paths.warehouse.is_local:
        yield _space(storage.paths.root)


def _identity(storage: Storage, registry: Registry | None) -> Diagnosis:
    marker = read_marker(storage)
    facts = {} if registry is None else read_facts(registry)
    is_own = facts.get("warehouse_id", marker.warehouse_id) == marker.warehouse_id
    is_ours = marker.registry_id is None or facts.get("registry_id", marker.registry_id) == marker.registry_id
    found = storage.paths.root if is_own and is_ours else f"{storage.paths.root} belongs to another registry"
    return _line("warehouse", found, is_ok=is_own and is_ours, remedy="give the registry and the warehouse that were created together")


def _writing(storage: Storage) -> Diagnosis:
    """Write one small file durably and delete it."""
    path = below(storage.paths.root, f".lakebed-doctor-{secrets.token_hex(4)}")
    started = time.monotonic()
    storage.create_exclusive(path, b"doctor")
    seconds = time.monotonic() - started
    outcome = storage.delete([path])[0]
    if not outcome.gone:
        return Diagnosis(
            name="writing", health="warn", found=f"{path} was not deleted: {outcome.reason}", remedy="grant this user the right to delete"
        )
    remedy = "use a disk with a faster fsync: every write waits for it"
    return _line(
        "writing", f"writing a durable file takes {seconds * 1000:.1f} ms", is_ok=seconds < _SLOW_SYNC_S, remedy=remedy, otherwise="warn"
    )


def _space(root: str) -> Diagnosis:
    usage = shutil.disk_usage(root)
    is_ok = usage.free >= max(_LITTLE_BYTES, usage.total * _LITTLE_SHARE)
    remedy = "make room: `lakebed clean temp` deletes files whose grace period is over, `lakebed clean orphans` finds unused files"
    return _line("space", f"{usage.free / 1e9:.1f} GB of {usage.total / 1e9:.1f} GB free", is_ok=is_ok, remedy=remedy, otherwise="warn")


def _try(name: str, look: Callable[[], Diagnosis], *, remedy: str) -> Diagnosis:
    try:
        return look()
    except LakebedError as exc:
        return Diagnosis(name=name, health="bad", found=str(exc), remedy=remedy)


def _line(name: str, found: str, *, is_ok: bool, remedy: str, otherwise: Health = "bad") -> Diagnosis:
    return Diagnosis(name=name, health="ok", found=found) if is_ok else Diagnosis(name=name, health=otherwise, found=found, remedy=remedy)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])
