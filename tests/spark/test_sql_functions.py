"""The SQL functions in real Spark sessions: a plain one over SQLite, and a Spark Connect server over PostgreSQL."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from connect_servers import connect_server

from builders import DAILY, ORDERS, fake_file, logical_dump, make_table, make_view, promote, publish, stage, write_partition
from lakebed.core.errors import SessionRefusedError
from lakebed.lake import connect
from lakebed.pipeline.sql.functions.answers import FUNCTIONS
from lakebed.registry.key_values import read_facts
from lakebed.registry.maintenance.runs import list_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from lakebed.lake import Lake

SESSION = Path(__file__).with_name("function_session.py")
HOURS = [datetime(2026, 1, 1, hour, tzinfo=UTC).isoformat() for hour in range(3)]
KEY = "'shop.orders', 'global', TIMESTAMP '2026-01-01T00:00:00Z', '2026-01-01T01:00:00Z'"
QUESTIONS = [
    "SELECT view_set_name, num_rows, begin_insert_time, file_count, file_path FROM list_partitions(view_set_name => 'shop.orders')",
    f"SELECT outcome, file_count, begin_insert_time FROM retire_partition_by_metadata({KEY})",
    f"SELECT outcome, file_count, begin_insert_time FROM retire_partition_by_metadata({KEY})",
    """SELECT outcome, num_rows FROM retire_partitions(view_set_name => 'shop.orders', insert_end => TIMESTAMP_NTZ '2026-01-01 03:00:00',
       insert_begin => DATE '2026-01-01')""",
    """SELECT p.reason, r.outcome, r.num_rows FROM list_incompatible_partitions() p, LATERAL retire_partition_by_metadata(
       p.view_set_name, p.view_instance_id, p.begin_insert_time, p.end_insert_time, p.schema_hash) r""",
    "SELECT job, state FROM materialize_partitions('shop.daily', insert_begin => '2026-01-01', insert_end => '2026-01-02')",
    "SELECT outcome FROM retire_partitions('shop.nothing', '2026-01-01', '2026-01-02')",
    "SELECT count(*) AS n FROM list_files() f JOIN list_partitions() p USING (partition_id)",
]

RETIRE = "SELECT outcome, num_rows FROM retire_partitions('shop.orders', '2026-01-01', '2026-01-02', dry_run => false)"


def prepare(lake: Lake) -> None:
    """Orders: hours 0 to 2, the second empty. Daily: an hour and an empty hour of a definition that serves no more."""
    make_table(lake.registry)
    write_partition(lake, 1, hours=(0, 1))
    write_partition(lake, 2, files=0, hours=(1, 2))
    write_partition(lake, 3, hours=(2, 3))
    view = make_view(lake.registry)
    publish(lake.registry, view, fake_file(1), hours=(0, 1))
    publish(lake.registry, view, hours=(1, 2))
    promote(lake.registry, stage(lake.registry))


def require_story(answers: list[Any], lake: Lake) -> None:
    """What the questions must answer on any database and in any kind of session."""
    listed, first, again, preview, incompatible, asked, refused, joined = answers
    assert [a for a in (listed, first, again, preview, incompatible, asked, joined) if isinstance(a, str)] == []
    assert [(p["num_rows"], p["file_count"]) for p in listed] == [(50, 1), (0, 0), (50, 1)]
    assert [p["begin_insert_time"] for p in listed] == HOURS
    assert first == [{"outcome": "retired", "file_count": 1, "begin_insert_time": HOURS[0]}]
    assert again == [{"outcome": "already_retired", "file_count": 0, "begin_insert_time": HOURS[0]}]
    assert [(o["outcome"], o["num_rows"]) for o in preview] == [("would_retire", 0), ("would_retire", 50)]
    assert sorted((o["reason"], o["outcome"], o["num_rows"]) for o in incompatible) == [
        ("schema", "retired", 0),
        ("schema", "retired", 100),
    ]
    assert asked == [{"job": "materialize_partitions", "state": "requested"}]
    assert refused.startswith("lakebed.core.errors.refused.TableNotFoundError: there is no table 'shop.nothing'")
    assert joined == [{"n": 1}]
    assert [p.num_rows for p in lake.list_partitions(str(ORDERS))] == [0, 50]
    assert lake.list_partitions(str(DAILY)) == []
    assert {run.actor.split()[0] for run in list_runs(lake.registry)} == {"sql"}


@pytest.fixture
def served(spark: SparkSession, worker_place: Path) -> Iterator[Lake]:
    """A new lake where the workers of the shared session look for one; workers may still have the last one's registry open."""
    shutil.rmtree(worker_place)
    worker_place.mkdir()
    with connect(f"sqlite:///{worker_place}/lake.db", warehouse=str(worker_place / "warehouse"), spark=spark) as lake:
        yield lake


def id_of(lake: Lake) -> str:
    return read_facts(lake.registry)["registry_id"]


def test_a_plain_session_lists_and_retires_over_sqlite(spark: SparkSession, served: Lake) -> None:
    from function_session import ask  # noqa: PLC0415 - brings pyspark

    served.register_functions()
    empty = [ask(spark, f"SELECT * FROM {name}()") for name in FUNCTIONS if name.startswith("list_")]
    prepare(served)
    answers = json.loads(json.dumps([ask(spark, question) for question in QUESTIONS], default=in_utc))

    assert empty == [[], [], [], []]
    require_story(answers, served)


def in_utc(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


def test_explaining_a_call_shows_no_registry(spark: SparkSession, served: Lake, worker_place: Path) -> None:
    served.register_functions()

    plan = spark.sql("EXPLAIN EXTENDED SELECT * FROM list_partitions()").collect()[0][0]

    assert "list_partitions" in plan
    assert str(worker_place) not in plan


def test_a_lake_that_the_workers_do_not_open_is_refused_and_the_functions_stay_those_of_the_other(served: Lake, spark_lake: Lake) -> None:
    """Two lakes in one Java process, whose environment names the first."""
    from function_session import ask  # noqa: PLC0415 - brings pyspark

    for lake in (served, spark_lake):
        prepare(lake)
    before = logical_dump(spark_lake.registry)
    served.register_functions()

    with pytest.raises(
        SessionRefusedError, match=r"cannot answer for this lake: the registry .* set LAKEBED_REGISTRY_URL before the session"
    ):
        spark_lake.register_functions()

    assert ask(spark_lake.spark, RETIRE) == [{"outcome": "retired", "num_rows": rows} for rows in (50, 0, 50)]
    assert [partition.num_rows for partition in served.list_partitions(str(ORDERS))] == []
    assert logical_dump(spark_lake.registry) == before


def test_a_function_refuses_to_act_on_another_lake_than_its_own(served: Lake, spark_lake: Lake) -> None:
    from function_session import ask  # noqa: PLC0415 - brings pyspark

    from lakebed.pipeline.sql.functions.register import add_functions  # noqa: PLC0415

    for lake in (served, spark_lake):
        prepare(lake)
    before = [logical_dump(lake.registry) for lake in (served, spark_lake)]
    add_functions(spark_lake.spark, id_of(spark_lake))

    told = [ask(spark_lake.spark, question) for question in (RETIRE, "SELECT * FROM list_partitions()")]

    assert [str(answer).partition(":")[0] for answer in told] == ["lakebed.core.errors.opening.WrongLakeError"] * 2
    assert [logical_dump(lake.registry) for lake in (served, spark_lake)] == before
    assert spark_lake.sql(RETIRE).collect()[0]["outcome"] == "retired"  # answered in this process, on the lake that was asked
    assert logical_dump(served.registry) == before[0]


@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_connect_server_lists_and_retires_over_postgresql_for_a_client_that_knows_no_registry(url: str, tmp_path: Path) -> None:
    warehouse = str(tmp_path / "warehouse")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LAKEBED_", "SPARK_", "PYSPARK_"))}
    environment = {**kept, "PYSPARK_PYTHON": sys.executable, "TZ": "Europe/Paris"}  # session, server and test live in three zones
    with connect(url, warehouse=warehouse) as lake:
        prepare(lake)
        with connect_server({**environment, "LAKEBED_REGISTRY_URL": url, "LAKEBED_WAREHOUSE": warehouse}) as remote:
            told = converse(remote, id_of(lake), environment)

        assert told["knows_registry"] is False
        assert "cannot answer for this lake" in told["another"][0]
        assert told["another"][1].startswith("lakebed.core.errors.opening.WrongLakeError: the registry postgresql://")
        require_story(told["answers"], lake)
        assert set(told["schemas"]) == {name for name in FUNCTIONS if name.startswith("list_")}


def converse(remote: str, lake_id: str, environment: dict[str, str]) -> Any:
    """Questions to the server from another process; what it printed."""
    command = [sys.executable, str(SESSION), remote, lake_id, *QUESTIONS]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout.splitlines()[-1])
