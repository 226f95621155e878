"""Where settings come from, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lakebed.core.errors import InvalidValueError
from lakebed.core.tasks import DEFAULT_SCHEDULE, Task
from lakebed.settings import load_settings

if TYPE_CHECKING:
    from pathlib import Path


def origin(name: str, **given: Any) -> tuple[Any, str]:
    found = {setting.name: setting for setting in load_settings(**given).origins}[name]
    return found.value, found.origin


def test_arguments_win_over_the_environment_over_the_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "lakebed.toml"
    assert origin("metadata_mode", environment={}) == ("async", "default")
    file.write_text('metadata_mode = "sync"\n')
    assert origin("metadata_mode", environment={}, file=file) == ("sync", str(file))
    environment = {"LAKEBED_METADATA_MODE": "async"}
    assert origin("metadata_mode", environment=environment, file=file) == ("async", "LAKEBED_METADATA_MODE")
    assert origin("metadata_mode", environment=environment, file=file, metadata_mode="sync") == ("sync", "argument")


@pytest.mark.parametrize("given", [{"metadata_mode": "later"}, {"service": "on"}, {"commit_timeout_s": -1}, {"commit_timeout_s": "soon"}])
def test_a_value_that_makes_no_sense_is_refused_with_its_origin(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match="argument"):
        load_settings(environment={}, **given)


@pytest.mark.parametrize("content", ["metadata_mode = ", 'colour = "red"', "\x00"])
def test_a_file_that_cannot_be_understood_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "lakebed.toml"
    file.write_text(content)
    with pytest.raises(InvalidValueError, match=r"lakebed\.toml"):
        load_settings(environment={}, file=file)


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="no settings file"):
        load_settings(environment={}, file=tmp_path / "none.toml")


def test_the_schedule_is_a_table_of_the_file_and_a_variable_per_task(tmp_path: Path) -> None:
    file = tmp_path / "lakebed.toml"
    file.write_text('log_format = "json"\n[schedule]\nclean = "0 4 * * *"\ncheck = "off"\n')
    environment = {"LAKEBED_SCHEDULE_CHECK": "0 5 * * *", "LAKEBED_SCHEDULE_RETIRE_EXPIRED": "off"}

    schedule = load_settings(environment=environment, file=file).schedule

    assert (schedule[Task.CLEAN], schedule[Task.CHECK], schedule[Task.RETIRE_EXPIRED]) == ("0 4 * * *", "0 5 * * *", "off")
    assert schedule[Task.MERGE] == DEFAULT_SCHEDULE[Task.MERGE]
    assert origin("schedule.clean", environment=environment, file=file) == ("0 4 * * *", str(file))
    assert origin("schedule.check", environment=environment, file=file) == ("0 5 * * *", "LAKEBED_SCHEDULE_CHECK")


@pytest.mark.parametrize("content", ['schedule = "daily"', "[schedule]\nclean = 5", '[schedule]\nnap = "0 * * * *"', "listen = 9464"])
def test_a_schedule_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "lakebed.toml"
    file.write_text(content)
    with pytest.raises(InvalidValueError, match=r"schedule|listen"):
        load_settings(environment={}, file=file)
