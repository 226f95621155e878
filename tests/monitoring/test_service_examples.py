"""The examples that people copy: they name commands, settings and times that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakebed.service.service import STOP_S
from lakebed.settings import load_settings

EXAMPLES = Path(__file__).parents[2] / "examples"


def known_variables() -> set[str]:
    names = {setting.name for setting in load_settings(environment={}).origins}
    return {f"LAKEBED_{name.upper().replace('.', '_')}" for name in names} | {"LAKEBED_DB_PASSWORD"}


@pytest.mark.parametrize("file", sorted(path for path in EXAMPLES.rglob("*") if path.is_file()), ids=lambda path: path.name)
def test_an_example_names_only_settings_that_exist(file: Path) -> None:
    assert set(re.findall(r"LAKEBED_[A-Z_]+", file.read_text())) <= known_variables()


def test_the_composed_service_gets_time_to_stop_and_its_registry_over_a_socket() -> None:
    composed = (EXAMPLES / "compose" / "compose.yaml").read_text()
    (grace,) = re.findall(r"stop_grace_period: (\d+)s", composed)
    assert float(grace) > STOP_S
    (url,) = re.findall(r"LAKEBED_REGISTRY_URL: (\S+)", composed)
    assert url.endswith("?host=/var/run/postgresql")
    assert re.findall(r'- "(.*:9464)"', composed) == ["127.0.0.1:9464:9464"]
