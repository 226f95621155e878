"""Jars from Maven Central: few tests need them, and each says so."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

CENTRAL = "https://repo1.maven.org/maven2"


def require_maven(packages: str) -> None:
    """Skip, with the reason, where the first of the packages cannot be had."""
    group, artifact, version = packages.split(",", maxsplit=1)[0].split(":")
    address = f"{CENTRAL}/{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.pom"
    try:
        urllib.request.urlopen(address, timeout=20).close()  # noqa: S310 - a constant address
    except (urllib.error.URLError, OSError) as exc:
        pytest.skip(f"Maven Central does not answer: {exc}")
