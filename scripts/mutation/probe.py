"""Writes down which test reaches which place of an instrumented copy of the package, from whatever thread or process it does so."""

import os

from mutation.environment import REACHED, SHARED

seen: set[int] = set()  # of the running test: the plugin empties it before each
_output = os.open(os.environ[REACHED], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def at(place: int) -> None:
    if place not in seen:
        seen.add(place)
        test = "" if SHARED in os.environ else os.environ.get("PYTEST_CURRENT_TEST", "")
        os.write(_output, f"{place}\t{test}\n".encode())
