"""Only `init`, `demo` and `connect(create=True)` create: every other command leaves a place without a lake as it found it."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from shells import Shell, list_commands, make_view_set, run

from builders import logical_dump
from lakebed.core.errors import InvalidValueError, LakebedError, PathRefusedError, RegistryMissingError, RegistryRefusedError
from lakebed.lake import connect
from lakebed.registry.migrate import list_pending, migrate_registry
from lakebed.registry.open import has_registry, open_registry

if TYPE_CHECKING:
    from collections.abc import Callable

COMMANDS = list_commands()
CREATES = {"init", "demo"}
NEEDS_NO_LAKE = {"config show"}
# They write what they are for and have no preview, or run until they are stopped
NO_PREVIEW = {"serve", "snapshots tag"}
# Their rows come from Spark: see test_cli_spark
STARTS_JAVA = {"sql"}
AS_JSON = {"doctor": ["--json"]}  # its table breaks sentences into lines
CANARY = "canary-7f3a"


def example_of(name: str) -> list[str]:
    """The words of the help's example, which are right ones for the command."""
    found = re.search(r"Example: lakebed ([^\n]*)", COMMANDS[name].help or "")
    assert found is not None, name
    return shlex.split(found[1].rstrip("."))


def options_of(name: str) -> set[str]:
    return {option for param in COMMANDS[name].params for option in (*param.opts, *param.secondary_opts)}


def place_of(name: str, url: str, warehouse: Path) -> list[str]:
    known = options_of(name)
    return [word for option, value in (("--registry", url), ("--warehouse", str(warehouse))) if option in known for word in (option, value)]


def list_files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def list_relations(url: str) -> list[str]:
    """Whatever there is in a PostgreSQL database; nothing for SQLite, whose files are listed."""
    if not url.startswith("postgresql"):
        return []
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname !~ '^(pg_|information_schema)' ORDER BY 1").fetchall()  # fmt: skip
    return [row[0] for row in rows]


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory: where a relative path would leave something."""
    directory = tmp_path / "nowhere"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def missing_url(kind: str, nowhere: Path, request: pytest.FixtureRequest) -> str:
    """Names no lake: a file that is not there, or a database without a table."""
    if kind == "sqlite":
        return f"sqlite:///{nowhere}/lkae.db"
    made: str = request.getfixturevalue("empty_url")
    return made.replace("postgres:@", f"postgres:{CANARY}@")


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - CREATES - NEEDS_NO_LAKE))
def test_a_command_where_no_lake_is_says_so_and_creates_nothing(name: str, missing_url: str, nowhere: Path) -> None:
    done = run(*example_of(name), *place_of(name, missing_url, nowhere / "warehouse"), *AS_JSON.get(name, ()))

    assert done.exit_code == (3 if name == "doctor" else 1), done.output
    assert "no lake here: there is no registry at " in done.output
    assert "run `lakebed init`" in done.output
    assert not [word for word in (CANARY, "Traceback") if word in done.output]
    assert name == "doctor" or "registry_missing: " in done.stderr
    assert (list_files(nowhere), list_relations(missing_url)) == ([], [])


@pytest.mark.parametrize("name", ["tables list", "check", "doctor", "migrate"])
def test_an_empty_file_and_a_missing_directory_are_not_lakes(name: str, nowhere: Path) -> None:
    (nowhere / "empty.db").touch(mode=0o600)

    for url in (f"sqlite:///{nowhere}/empty.db", f"sqlite:///{nowhere}/none/lake.db"):
        assert "no lake here" in run(*name.split(), *place_of(name, url, nowhere / "warehouse"), "--json").output

    assert list_files(nowhere) == ["empty.db"]
    assert (nowhere / "empty.db").stat().st_size == 0


def test_another_programs_database_is_not_even_switched_to_another_journal(nowhere: Path) -> None:
    with closing(sqlite3.connect(nowhere / "theirs.db", isolation_level=None)) as theirs:
        theirs.execute("CREATE TABLE invoices (id INTEGER)")
    (nowhere / "theirs.db").chmod(0o600)
    before = (nowhere / "theirs.db").read_bytes()

    assert run("tables", "list", "--registry", f"sqlite:///{nowhere}/theirs.db").stderr.startswith("registry_refused: ")

    assert (nowhere / "theirs.db").read_bytes() == before
    assert list_files(nowhere) == ["theirs.db"]


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - CREATES - NEEDS_NO_LAKE - NO_PREVIEW - STARTS_JAVA))
def test_reading_and_previews_leave_a_lake_as_it_is(name: str, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with shell.open() as lake:
        make_view_set(lake)
        before = logical_dump(lake.registry)
    monkeypatch.chdir(tmp_path)
    here = (list_files(Path(shell.place).parent), list_files(Path(shell.url.removeprefix("sqlite:///")).parent), list_relations(shell.url))
    words = [word for word in example_of(name) if word not in {"--execute", "--yes", "--follow", "--run", "--dry-run"}]

    done = run(*words, *(["--dry-run"] if "--dry-run" in options_of(name) else []), *place_of(name, shell.url, shell.place))

    assert "Traceback" not in done.output
    assert here == (
        list_files(Path(shell.place).parent), list_files(Path(shell.url.removeprefix("sqlite:///")).parent), list_relations(shell.url)
    )  # fmt: skip
    with shell.open() as lake:
        assert logical_dump(lake.registry) == before


# -- Python ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "look",
    [
        lambda url: connect(url, warehouse="warehouse", create=False),
        open_registry,
        list_pending,
        migrate_registry,
    ],
)  # fmt: skip
def test_python_calls_that_look_for_a_lake_create_none(look: Callable[[str], object], missing_url: str, nowhere: Path) -> None:
    with pytest.raises(RegistryMissingError, match="no lake here"):
        look(missing_url)
    assert not has_registry(missing_url)

    assert (list_files(nowhere), list_relations(missing_url)) == ([], [])


def test_a_misspelled_registry_beside_a_warehouse_that_has_one_is_not_created(shell: Shell, missing_url: str, nowhere: Path) -> None:
    with pytest.raises(RegistryMissingError, match="holds the files of another registry: check the spelling"):
        connect(missing_url, warehouse=str(shell.place))

    assert run("init", "--registry", missing_url, "--warehouse", str(shell.place)).stderr.startswith("registry_missing: ")
    assert (list_files(nowhere), list_relations(missing_url)) == ([], [])


def test_a_misspelled_warehouse_of_a_registry_that_has_one_is_not_created(shell: Shell, nowhere: Path) -> None:
    for place in (nowhere / "wraehouse", nowhere):  # missing, and as empty as a disk that is not mounted
        with pytest.raises(RegistryRefusedError, match="belongs to another warehouse"):
            connect(shell.url, warehouse=str(place))
        with pytest.raises(PathRefusedError, match="there is no warehouse here"):
            connect(shell.url, warehouse=str(place), create=False)

    assert list_files(nowhere) == []


def test_a_lake_of_which_one_part_cannot_be_made_leaves_nothing_of_the_other(nowhere: Path) -> None:
    (nowhere / "file").touch()

    for url, warehouse in (
        (f"sqlite:///{nowhere}/none/lake.db", nowhere / "deep/warehouse"),
        (f"sqlite:///{nowhere}/lake.db", nowhere / "file/warehouse"),
    ):
        with pytest.raises(LakebedError):
            connect(url, warehouse=str(warehouse))

    assert list_files(nowhere) == ["file"]


def test_a_registry_that_vanished_is_missing_and_not_made_empty(tmp_path: Path) -> None:
    path = tmp_path / "lake.db"
    with connect(f"sqlite:///{path}", warehouse=str(tmp_path / "warehouse"), service="off") as lake:
        lake.registry.take_idle()[0].close()
        for left in tmp_path.glob("lake.db*"):
            left.unlink()

        with pytest.raises(RegistryMissingError):
            lake.tables.list()

        assert not path.exists()


# -- where a command works that names no lake ----------------------------------------------------


@pytest.mark.parametrize(
    ("file", "environment"),
    [
        ("", {}),
        ('registry_url = "sqlite:///other.db"\nwarehouse = "elsewhere"\n', {}),
        ("", {"LAKEBED_REGISTRY_URL": "sqlite:///named.db", "LAKEBED_WAREHOUSE": "there"}),
        ('registry_url = "sqlite:///other.db"\n', {"LAKEBED_REGISTRY_URL": "", "LAKEBED_WAREHOUSE": ""}),
    ],
)
def test_config_show_shows_what_the_commands_work_with(
    file: str, environment: dict[str, str], nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if file:
        (nowhere / "lakebed.toml").write_text(file)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    shown = {row["setting"]: row["value"] for row in json.loads(run("config", "show", "--json").stdout)}

    made = json.loads(run("init", "--json").stdout)

    assert made["registry"] == f"sqlite:///{nowhere}/{shown['registry_url'].removeprefix('sqlite:///')}"
    assert made["warehouse"] == str(nowhere / shown["warehouse"])
    assert run("tables", "list").exit_code == 0


def test_python_asks_for_the_names_of_a_lake_that_it_might_create(nowhere: Path) -> None:
    with pytest.raises(InvalidValueError, match="give the registry and the warehouse"):
        connect()

    assert list_files(nowhere) == []
