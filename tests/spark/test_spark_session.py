"""The session is built with what correctness needs, or checked; without Java the message says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lakebed.core.errors import SessionRefusedError
from lakebed.pipeline.spark.session import NEEDED, SparkSource

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ASK = """
from lakebed.core.errors import SessionRefusedError
from lakebed.pipeline.spark.session import SparkSource
try:
    SparkSource().spark
except SessionRefusedError as exc:
    print(exc)
"""


def test_the_built_session_has_what_correct_files_need(spark: SparkSession) -> None:
    assert {key: spark.conf.get(key) for key in NEEDED} == NEEDED
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"


def test_a_session_that_lacks_something_is_refused_and_what_it_lacks_is_named(spark: SparkSession) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    own.conf.set("spark.sql.caseSensitive", "true")

    with pytest.raises(SessionRefusedError) as refused:
        _ = SparkSource(own).spark

    assert "spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS, spark.sql.caseSensitive=false" in str(refused.value)
    own.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    own.conf.set("spark.sql.caseSensitive", "false")
    assert SparkSource(own).spark is own


def test_nothing_starts_before_the_session_is_asked_for() -> None:
    source = SparkSource(options={"spark.master": "no such master"})

    assert source._ready is None


def ask(environment: dict[str, str]) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PYSPARK"))}
    done = subprocess.run([sys.executable, "-c", ASK], env=kept | environment, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def test_without_java_the_message_says_what_to_install(tmp_path: Path) -> None:
    said = ask({"JAVA_HOME": str(tmp_path / "nowhere")})

    assert "cannot be run: install Java 17 or newer and set JAVA_HOME to it" in said


CALLS = """
import sys
import lakebed
from lakebed.core.errors import SessionRefusedError
with lakebed.connect(f"sqlite:///{sys.argv[1]}/lake.db", warehouse=f"{sys.argv[1]}/warehouse", service="off") as lake:
    lake.create_table("shop.orders", "id BIGINT, ts TIMESTAMP", event_time="ts")
    calls = {
        "spark": lambda: lake.spark,
        "read": lambda: lake.read("shop.orders", where="id = 1"),
        "sql": lambda: lake.sql("SELECT * FROM shop.orders"),
        "delete": lambda: lake.delete("shop.orders", "id = 1"),
        "create_view_set": lambda: lake.create_view_set("shop.ids", sql="SELECT id FROM shop.orders", over="shop.orders"),
        "register_functions": lambda: lake.register_functions(),
    }
    for name, call in calls.items():
        try:
            call()
        except SessionRefusedError as exc:
            print(name, exc)
"""


def test_whatever_call_starts_spark_says_in_one_sentence_what_to_install(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PYSPARK"))}
    words = [sys.executable, "-c", CALLS, str(tmp_path)]

    done = subprocess.run(words, env={**kept, "PATH": str(tmp_path)}, capture_output=True, text=True, timeout=120, check=True)

    said = "Spark needs Java, and there is none on the PATH: install Java 17 or newer and set JAVA_HOME to it"
    calls = ("spark", "read", "sql", "delete", "create_view_set", "register_functions")
    assert done.stdout.splitlines() == [f"{name} {said}" for name in calls]


def test_an_old_java_is_detected_by_its_version(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\nexit 1\n")
    java.chmod(0o755)

    said = ask({"JAVA_HOME": str(tmp_path)})

    assert f"Spark needs Java 17 or newer, {java} is 11" in said


TALK = """
import sys
from lakebed.core.errors import SparkRefusedError
from lakebed.lake import connect

def speak(_):
    print("a worker speaks", file=sys.stderr)

with connect("sqlite:///lake.db", warehouse="warehouse", service="off", spark_options={options!r}) as lake:
    lake.create_table("shop.orders", like=lake.spark.sql("SELECT 1L AS id"))
    lake.insert("shop.orders", lake.spark.sql("SELECT id FROM range(10)"))
    try:
        lake.sql("SELECT idd FROM shop.orders")
    except SparkRefusedError:
        lake.spark.sparkContext.parallelize([1], 1).foreach(speak)
"""


def listen(directory: Path, options: dict[str, str]) -> list[str]:
    """The lines of standard error."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    done = subprocess.run(
        [sys.executable, "-c", TALK.format(options=options)],
        cwd=directory,
        env=own,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return done.stderr.splitlines()


def test_spark_starts_without_a_word_of_its_own(tmp_path: Path) -> None:
    assert listen(tmp_path, {}) == ["a worker speaks"]


def test_who_asks_for_the_lines_of_spark_gets_them(tmp_path: Path) -> None:
    lines = listen(tmp_path, {"spark.log.level": "WARN"})

    assert any("Using Spark's default log4j profile" in line for line in lines)
    assert any("SQLQueryContextLogger" in line for line in lines)
    assert "a worker speaks" in lines
