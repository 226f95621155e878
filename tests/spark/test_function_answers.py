"""The SQL functions as plain Python: the same answers on both databases, safe to ask twice, typed refusals for everything else."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import DAILY, ORDERS, START, fake_file, logical_dump, make_table, make_view, promote, publish, stage, write_partition
from lakebed.core.errors import (
    AmbiguousPartitionError,
    InvalidNameError,
    InvalidRangeError,
    InvalidValueError,
    PartitionStraddlesError,
    RefusedError,
    RegistryMissingError,
    RegistryRefusedError,
    TableNotFoundError,
    TooManyPartitionsError,
    WrongLakeError,
)
from lakebed.pipeline.spark.environment import REGISTRY_VARIABLE, WAREHOUSE_VARIABLE, worker_environment
from lakebed.pipeline.sql.functions.answers import FUNCTIONS, answer, bind_arguments
from lakebed.pipeline.sql.functions.workers import (
    answer_arrays,
    answer_rows,
    close_registries,
    find_obstacle,
)
from lakebed.registry.key_values import read_facts
from lakebed.registry.maintenance.runs import list_runs
from lakebed.registry.open import open_registry
from lakebed.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakebed.lake import Lake
    from lakebed.registry.registry import Registry


def hour(number: int) -> datetime:
    return START + timedelta(hours=number)


def ask(lake: Lake, name: str, **arguments: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer(lake.registry, lake.storage, name, arguments).to_pylist()
    return found


def key(number: int, **more: Any) -> dict[str, Any]:
    slice_of_it = {"begin_insert_time": hour(number), "end_insert_time": hour(number + 1)}
    return {"view_set_name": str(ORDERS), "view_instance_id": "global", **slice_of_it, **more}


def three_hours(lake: Lake) -> None:
    """The middle one is empty."""
    table = make_table(lake.registry)
    for h in range(3):
        publish(lake.registry, table, *([] if h == 1 else [fake_file(h)]), hours=(h, h + 1))


def test_every_list_of_an_empty_registry_has_its_schema(lake: Lake) -> None:
    for name, function in FUNCTIONS.items():
        if name.startswith("list_"):
            found = answer(lake.registry, lake.storage, name, {})
            assert (found.num_rows, found.schema) == (0, function.schema)


def test_lists_take_their_filters_by_name(lake: Lake) -> None:
    three_hours(lake)

    assert len(ask(lake, "list_partitions")) == 3
    assert [p["num_rows"] for p in ask(lake, "LIST_PARTITIONS", View_Set_Name=str(ORDERS), insert_begin=hour(1))] == [0, 100]
    assert len(ask(lake, "list_files", view_set_name=None)) == 2
    assert ask(lake, "list_view_sets") == []


@pytest.mark.parametrize("number", [0, 1])
def test_retiring_a_key_twice_reports_that_it_was_done(lake: Lake, number: int) -> None:
    three_hours(lake)

    first, again = ask(lake, "retire_partition_by_metadata", **key(number)), ask(lake, "retire_partition_by_metadata", **key(number))

    assert [o["outcome"] for o in first + again] == ["retired", "already_retired"]
    assert "by run" in again[0]["message"]
    assert len(ask(lake, "list_partitions")) == 2


def test_a_key_that_never_was_is_an_outcome_and_not_an_error(lake: Lake) -> None:
    three_hours(lake)
    before = logical_dump(lake.registry)

    (told,) = ask(lake, "retire_partition_by_metadata", **key(7))

    assert (told["outcome"], told["partition_id"]) == ("not_found", None)
    assert "its partitions are in" in told["message"]
    assert logical_dump(lake.registry) == before


def test_several_schemas_on_one_slice_need_the_hash(lake: Lake) -> None:
    view = make_view(lake.registry)
    publish(lake.registry, view, fake_file(1), hours=(0, 1))
    later = stage(lake.registry)
    publish(lake.registry, view, hours=(0, 1), schema_hash=later)
    daily = {**key(0), "view_set_name": str(DAILY)}

    with pytest.raises(AmbiguousPartitionError):
        ask(lake, "retire_partition_by_metadata", **daily)
    assert [o["num_rows"] for o in ask(lake, "retire_partition_by_metadata", **daily, schema_hash=later)] == [0]


def test_bulk_functions_are_dry_runs_by_default(lake: Lake) -> None:
    three_hours(lake)
    wanted = {"view_set_name": str(ORDERS), "insert_begin": hour(0), "insert_end": hour(2)}

    preview = ask(lake, "retire_partitions", **wanted)
    with pytest.raises(TooManyPartitionsError):
        ask(lake, "retire_partitions", **wanted, dry_run=False, max_partitions=1)
    done = ask(lake, "retire_partitions", **wanted, dry_run=False, atomic=True)
    (again,) = ask(lake, "retire_partitions", **{**wanted, "dry_run": False})

    assert [o["outcome"] for o in preview + done] == ["would_retire"] * 2 + ["retired"] * 2
    assert again["outcome"] == "not_found"
    assert "no partition in" in again["message"]


def test_a_range_that_only_cuts_partitions_is_refused_and_a_task_that_runs_again_is_not(lake: Lake) -> None:
    table = make_table(lake.registry)
    for low, high in ((0, 1), (1, 3)):
        publish(lake.registry, table, fake_file(low), hours=(low, high))
    cut = {"view_set_name": str(ORDERS), "insert_begin": hour(1), "insert_end": hour(2), "dry_run": False}

    with pytest.raises(PartitionStraddlesError, match="extends beyond it"):
        ask(lake, "retire_partitions", **cut)
    both = {**cut, "insert_begin": hour(0)}
    first, again = ask(lake, "retire_partitions", **both), ask(lake, "retire_partitions", **both)

    assert [o["outcome"] for o in first + again] == ["retired", "straddles", "straddles"]
    assert first[0]["message"].startswith("retired 100 rows: 1 files")
    assert "retire_partition_by_metadata(" in again[0]["message"]


def test_what_became_incompatible_can_be_retired_in_one_call(lake: Lake) -> None:
    view = make_view(lake.registry)
    publish(lake.registry, view, fake_file(1), hours=(0, 1))
    publish(lake.registry, view, hours=(1, 2))
    promote(lake.registry, new := stage(lake.registry))

    listed = ask(lake, "list_incompatible_partitions")
    done = ask(lake, "retire_incompatible_partitions", dry_run=False)

    hashes = {(o["incompatible_schema_hash"], o["current_schema_hash"]) for o in listed}
    assert hashes == {(view.schema_hash, new)}
    assert [(o["num_rows"], o["file_size"], o["file_path"] is None) for o in listed] == [(100, 20_000, False), (0, 0, True)]

    assert [(o["outcome"], o["num_rows"]) for o in done] == [("retired", 100), ("retired", 0)]
    assert ["empty partition" in o["message"] for o in done] == [False, True]
    assert ask(lake, "list_incompatible_partitions") == []


def test_retiring_by_file_says_that_it_is_deprecated(lake: Lake) -> None:
    make_table(lake.registry)
    write_partition(lake, 1)
    path = lake.files.list(str(ORDERS))[0].file_path

    paths = (path, path, f"{lake.storage.paths.root}/none.parquet")
    with pytest.warns(DeprecationWarning, match="use retire_partition_by_metadata"):
        told = [ask(lake, "retire_partition_by_file", file_path=p)[0] for p in paths]

    assert [o["outcome"] for o in told] == ["retired", "already_retired", "not_found"]
    assert all("deprecated: use retire_partition_by_metadata" in o["message"] for o in told)
    assert lake.check().clean


def test_a_request_is_one_run_however_often_it_is_asked(lake: Lake) -> None:
    make_view(lake.registry)
    wanted = {"view_set_name": str(DAILY), "insert_begin": "2026-01-01", "end_insert_time": date(2026, 1, 2)}

    first, again = ask(lake, "materialize_partitions", **wanted), ask(lake, "materialize_partitions", **wanted)
    other = ask(lake, "regenerate_partitions", **wanted)

    assert first == again
    assert other[0]["run_id"] != first[0]["run_id"]
    assert [run.state for run in list_runs(lake.registry)] == ["requested", "requested"]


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1),  # noqa: DTZ001 - a TIMESTAMP_NTZ
        date(2026, 1, 1),
        "2026-01-01",
        "2026-01-01T01:00:00+01:00",
        " 2025-12-31 19:00:00-05:00 ",
    ],
)
def test_a_time_can_be_given_in_several_ways(lake: Lake, moment: Any) -> None:
    three_hours(lake)

    (told,) = ask(lake, "retire_partition_by_metadata", **key(0, begin_insert_time=moment))

    assert told["outcome"] == "retired"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("retire_partition_by_metadata", key(0, view_instance_id=None)),
        ("retire_partition_by_metadata", key(0, begin_insert_time="yesterday")),
        ("retire_partition_by_metadata", key(0, begin_insert_time=12)),
        ("retire_partition_by_metadata", key(0, insert_begin=hour(0))),
        ("retire_partition_by_metadata", key(0, schema_hash=5)),
        ("retire_partition_by_file", {}),
        ("retire_partitions", {"view_set_name": "shop.orders", "insert_begin": "2026-01-01", "insert_end": "2026-01-02", "dry_run": "no"}),
        (
            "retire_partitions",
            {"view_set_name": "shop.orders", "insert_begin": "2026-01-01", "insert_end": "2026-01-02", "max_partitions": -1},
        ),
        ("list_partitions", {"who": "me"}),
        ("drop_everything", {}),
        ("materialize_partitions", {"view_set_name": "shop.orders"}),
    ],
)
def test_wrong_arguments_are_refused_by_name(lake: Lake, name: str, arguments: dict[str, Any]) -> None:
    make_table(lake.registry)
    before = logical_dump(lake.registry)

    with pytest.raises(InvalidValueError):
        ask(lake, name, **arguments)

    assert logical_dump(lake.registry) == before


def test_positions_and_names_bind_as_in_a_call() -> None:
    assert bind_arguments("list_files", ["shop.orders"], {"RETIRED": True}) == {"view_set_name": "shop.orders", "retired": True}
    for positional, named in ((["a", True, 3], {}), (["a"], {"view_set_name": "b"}), ([], {"nothing": 1})):
        with pytest.raises(InvalidValueError):
            bind_arguments("list_files", positional, named)


ANYTHING = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=12) | st.dates() | st.datetimes() | st.just(str(ORDERS)) | st.just(hour(0))
)


@pytest.mark.filterwarnings("ignore:retire_partition_by_file is deprecated")
@settings(max_examples=40)
@given(data=st.data())
def test_any_arguments_end_in_an_answer_or_a_typed_refusal(lake: Lake, data: st.DataObject) -> None:
    if lake.registry.find_table_id(ORDERS) is None:
        three_hours(lake)
    function = FUNCTIONS[data.draw(st.sampled_from(sorted(FUNCTIONS)))]
    given_ones = {parameter.name: data.draw(ANYTHING) for parameter in function.parameters}
    try:
        assert answer(lake.registry, lake.storage, function.name, given_ones).schema == function.schema
    except RefusedError as refused:
        allowed = (
            InvalidNameError, InvalidRangeError, InvalidValueError, PartitionStraddlesError, TableNotFoundError, TooManyPartitionsError,
        )  # fmt: skip
        if not isinstance(refused, allowed) and refused.code != "path_refused":
            raise


def test_workers_find_the_registry_in_their_environment_and_nowhere_else(lake: Lake, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    three_hours(lake)
    monkeypatch.delenv(REGISTRY_VARIABLE, raising=False)
    monkeypatch.delenv(WAREHOUSE_VARIABLE, raising=False)

    lake_id = read_facts(lake.registry)["registry_id"]

    with pytest.raises(RegistryRefusedError, match=r"LAKEBED_REGISTRY_URL is not set .* before the session"):
        answer_arrays(lake_id, "list_partitions", (), {})
    with worker_environment(url, lake.storage.paths.root):
        found = answer_arrays(lake_id, "list_partitions", (pa.array([str(ORDERS)]),), {"insert_begin": pa.array([hour(2)])})
        told = list(answer_rows(lake_id, "retire_partition_by_metadata", ([], key(0))))

    close_registries()
    assert found.num_rows == 1
    assert told[0][-2] == "retired"
    with pytest.raises(RegistryRefusedError):
        answer_rows(lake_id, "list_partitions", ([], {})).__next__()


def test_a_worker_answers_for_the_lake_of_its_environment_alone(lake: Lake, url: str, tmp_path: Path) -> None:
    three_hours(lake)
    lake_id, elsewhere = read_facts(lake.registry)["registry_id"], str(tmp_path / "elsewhere")
    open_storage(elsewhere, create=True)

    with worker_environment(url, lake.storage.paths.root):
        assert find_obstacle(lake_id) is None
        assert "is not that of the lake 0000, which registered this function" in str(find_obstacle("0000"))
        with pytest.raises(WrongLakeError):
            list(answer_rows("0000", "retire_partition_by_metadata", ([], key(0))))
    with worker_environment(url, elsewhere), pytest.raises(WrongLakeError, match=r"the warehouse .*elsewhere is not that of the lake"):
        list(answer_rows(lake_id, "retire_partition_by_file", ([str(tmp_path / "file")], {})))

    close_registries()
    assert len(lake.list_partitions(str(ORDERS))) == 3


def test_a_worker_creates_no_registry(empty_url: str, tmp_path: Path) -> None:
    place = tmp_path / "nothing.db"

    for url in (empty_url, f"sqlite:///{place}"):
        with worker_environment(url, str(tmp_path)), pytest.raises(RegistryMissingError, match="there is no registry at"):
            answer_arrays("0000", "list_partitions", (), {})

    assert not place.exists()
    open_registry(empty_url, create=True).close()  # still free for whoever creates one


def test_two_workers_that_run_the_same_task_retire_once(lake: Lake, another: Callable[[], Registry]) -> None:
    three_hours(lake)
    wanted = key(0)

    told = [
        answer(registry, lake.storage, "retire_partition_by_metadata", wanted).to_pylist()[0] for registry in (lake.registry, another())
    ]

    assert [o["outcome"] for o in told] == ["retired", "already_retired"]
    assert sum(run.job == "retire_partition_by_metadata" for run in list_runs(lake.registry)) == 1
