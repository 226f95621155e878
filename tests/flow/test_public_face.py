"""What an editor, a type checker and a notebook show of the public face."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jedi
import pytest

import lakebed
from builders import ORDERS, make_table, write_partition
from face import GROUPS, list_calls
from lakebed.api.moved import MOVED
from lakebed.core import errors
from lakebed.core.results import Rows, single_result
from lakebed.lake import Lake, connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.lake import Lake as OpenedLake

NAME = str(ORDERS)
ATTRIBUTES = {"registry", "storage", "spark"}
SPECIFIED = {
    "list_partitions", "list_view_sets", "list_incompatible_partitions", "retire_partition_by_metadata", "retire_partition_by_file",
    "retire_partitions", "retire_incompatible_partitions", "delete_expired_temporary_files", "materialize",
}  # fmt: skip
PREVIEWS = {
    "retire_partitions", "retire_incompatible_partitions", "partitions.retire_expired", "tables.drop", "tables.import_legacy",
    "snapshots.expire", "files.sweep_orphans", "files.forget_left_out", "repair",
}  # fmt: skip


@pytest.fixture(scope="module")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Jedi's cache is one for all processes of a user, and two that write it at once damage it."""
    before, jedi.settings.cache_directory = jedi.settings.cache_directory, str(tmp_path_factory.mktemp("jedi"))
    yield
    jedi.settings.cache_directory = before


@pytest.mark.usefixtures("_own_cache")
@pytest.mark.parametrize("name", [*list_calls(), "snapshots"])
def test_an_editor_shows_every_parameter_of_a_call(name: str) -> None:
    code = f"import lakebed\nlake = lakebed.connect()\nlake.{name}(" if name != "connect" else "import lakebed\nlakebed.connect("
    (shown,) = jedi.Script(code).get_signatures()

    call = Lake.snapshots.fget(None).__call__ if name == "snapshots" else list_calls()[name]  # type: ignore[attr-defined] # a property
    given = [p for p in inspect.signature(call).parameters.values() if p.name != "self"]
    assert [p.name for p in shown.params if p.name != "changes"] == [p.name for p in given if p.kind is not p.VAR_POSITIONAL]


def test_few_names_are_on_the_lake_itself_and_those_of_the_specification_are_among_them() -> None:
    names = {name for name in dir(Lake) if not name.startswith("_")}

    assert names >= SPECIFIED | set(GROUPS) | ATTRIBUTES
    assert len(names - ATTRIBUTES) <= 36


def test_the_table_comes_first_in_every_call_that_takes_one() -> None:
    parameters = {name: [p for p in inspect.signature(call).parameters if p != "self"] for name, call in list_calls().items()}

    assert [name for name, given in parameters.items() if "table" in given and given[0] != "table"] == []
    assert [name for name, given in parameters.items() if "view" in given and given[0] != "view"] == []


def test_calls_that_find_what_they_remove_preview_and_no_others() -> None:
    parameters = {name: inspect.signature(call).parameters for name, call in list_calls().items()}

    assert {name for name, given in parameters.items() if "dry_run" in given and given["dry_run"].default is True} == PREVIEWS


_MISSPELLED = """
import lakebed

lake = lakebed.connect()
lake.insert("db.t", None, moed="append")
lake.tables.configure("db.t", retire_afer="90d")
lake.partition.merge("db.t")
lake.add_column("db.t", "a", "int")
"""


def test_a_type_checker_finds_what_is_misspelled(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(_MISSPELLED)

    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", str(tmp_path / "cache"), "--follow-imports", "silent", "job.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line] == [5, 5, 6, 7, 8]


# -- names before the groups ---------------------------------------------------------------------


@pytest.mark.parametrize("name", MOVED)
def test_a_call_under_its_earlier_name_works_and_says_where_it_is(lake: OpenedLake, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"lake\.{name} is now lake\.{MOVED[name].path}"):
        assert callable(getattr(lake, name))


def test_earlier_orders_of_arguments_are_understood(lake: OpenedLake, tmp_path: Path) -> None:
    make_table(lake.registry)
    write_partition(lake, 1)
    (tmp_path / "old").mkdir()

    with pytest.warns(DeprecationWarning, match="partitions.retire_expired"):
        assert lake.retire_expired_partitions("90d", NAME).dry_run  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match="tables.adopt"):
        assert lake.adopt(str(tmp_path / "old"), "shop.none", dry_run=True).table == "shop.none"  # type: ignore[attr-defined]


def test_an_unknown_name_is_an_attribute_error(lake: OpenedLake) -> None:
    with pytest.raises(AttributeError, match="'Lake' object has no attribute 'list_tabels'"):
        _ = lake.list_tabels  # type: ignore[attr-defined]


def with_password(url: str) -> str:
    """SQLite has none; PostgreSQL's test server takes any."""
    return url if url.startswith("sqlite") else re.sub(r"//([^:@/]+)(:[^@]*)?@", r"//\1:hunter2@", url)


# -- what is shown -------------------------------------------------------------------------------


def test_a_lake_shows_where_it_is_without_its_password(url: str, tmp_path: Path) -> None:
    with connect(with_password(url), warehouse=str(tmp_path / "warehouse"), service="off") as lake:
        shown = repr(lake)

    assert shown.startswith("<Lake ")
    assert "hunter2" not in shown
    assert str(tmp_path / "warehouse") in shown
    assert "\n" not in shown
    assert repr(lake) == "<Lake, closed>"


def test_a_result_is_one_line_and_a_table_in_notebooks(lake: OpenedLake) -> None:
    make_table(lake.registry)
    write_partition(lake, 1)
    results: list[Any] = [
        lake.table(NAME),
        lake.files.plan(NAME),
        lake.check(),
        lake.repair(),
        lake.files.sweep_orphans(),
        lake.tables.drop(NAME),
    ]

    for one in results:
        assert repr(one).startswith(f"{type(one).__name__}(")
        assert "\n" not in repr(one)
        assert one._repr_html_().startswith("<table><caption>")


def test_long_fields_of_a_result_are_shortened_and_escaped() -> None:
    @single_result
    @dataclass(frozen=True)
    class Shown:
        text: str
        rows: tuple[int, ...]

    shown = Shown("<b>" + "x" * 200, tuple(range(9)))

    assert repr(shown) == "Shown(text='<b>" + "x" * 72 + " ..., rows=<9 items>)"
    assert "&lt;b&gt;" in shown._repr_html_()  # type: ignore[attr-defined]


def test_every_result_of_a_public_call_is_shown_in_one_line() -> None:
    plain = {"DataFrame", "FileMetaData", "GroupedWriter", "Lake", "Service", "Writing", "Rows"}
    found = {
        name for name in lakebed.__all__ if isinstance(getattr(lakebed, name), type) and hasattr(getattr(lakebed, name), "_repr_html_")
    }
    returned = {
        word
        for call in list_calls().values()
        for word in str(inspect.signature(call).return_annotation).replace("admin.", "").translate(str.maketrans("[],", "   ")).split()
        if word[0].isupper() and not word.startswith(("Abstract", "Callable", "None", "Sequence"))
    }

    assert returned - plain - found - {name for name in returned if name.endswith(("Row", "LeftOutFile", "RunPlan"))} == set()


# -- what can be imported ------------------------------------------------------------------------


def test_every_error_can_be_imported_from_lakebed() -> None:
    assert [name for name in errors.__all__ if getattr(lakebed, name) is not getattr(errors, name)] == []


def test_an_editor_sees_what_can_be_imported_from_lakebed() -> None:
    tree = ast.parse(Path(lakebed.__file__).read_text())
    seen = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}

    assert set(lakebed.__all__) - seen == {"__version__"}
    assert Rows is lakebed.Rows
