"""A write that fails leaves rows, files and counters as they were, whatever fails and wherever."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from insert_lakes import AUDIT, ORDERS, Failing, files_in, make_orders, meanwhile, orders, rows_of, stepped

from builders import count, logical_dump
from lakebed.core.errors import (
    LakebedError,
    OperationConflictError,
    OutcomeUnknownError,
    RegistryUnavailableError,
    SparkRefusedError,
    SparkUnavailableError,
    StorageFullError,
    StorageUnavailableError,
    UnavailableError,
)
from lakebed.pipeline.spark.errors import translate
from lakebed.pipeline.write.files import publish_files, write_frame
from lakebed.pipeline.write.insert import insert
from lakebed.staging.write import roll_back, staging
from lakebed.testing import Steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.lake import Lake
    from lakebed.pipeline.context import Context
    from lakebed.storage.protocol import Storage

Before = tuple[object, list[str]]


@pytest.fixture
def filled(spark_lake: Lake, spark: SparkSession) -> Lake:
    make_orders(spark_lake)
    make_orders(spark_lake, "shop.parted", partition_by=["day(ts)"])
    insert(spark_lake._context, ORDERS, orders(spark, 0, 10))
    return spark_lake


def state(lake: Lake) -> Before:
    return logical_dump(lake.registry, without=AUDIT), files_in(lake)


FAILING_ROW = "IF(id = 57, CAST(raise_error('row 57') AS DOUBLE), amount) AS amount"


@pytest.mark.parametrize("name", [ORDERS, "shop.parted"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_row_that_makes_a_task_fail_changes_nothing(filled: Lake, spark: SparkSession, name: str, mode: str) -> None:
    before = state(filled)

    with pytest.raises(SparkRefusedError, match=r"writing rows into shop.*row 57"):
        insert(filled._context, name, orders(spark, 0, 100).selectExpr("id", "ts", FAILING_ROW), mode=mode)  # type: ignore[arg-type]

    assert state(filled) == before
    assert count(filled.registry, "operations", "state = 'rolled_back'") == 1
    assert filled.check().clean


def test_a_python_function_that_fails_changes_nothing(filled: Lake, spark: SparkSession) -> None:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    before = state(filled)
    broken = F.udf(lambda number: 1 / (number - 3), "double")

    with pytest.raises(SparkRefusedError, match="ZeroDivisionError"):
        insert(filled._context, ORDERS, orders(spark, 0, 5).withColumn("amount", broken("id")))

    assert state(filled) == before
    assert filled.check().clean


def test_a_query_that_does_not_analyse_is_refused(spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    with pytest.raises(AnalysisException) as found:
        orders(spark, 0, 1).selectExpr("nowhere")

    assert isinstance(translate(found.value, "reading"), SparkRefusedError)


def test_a_directory_that_cannot_be_written_changes_nothing(filled: Lake, spark: SparkSession) -> None:
    """A file where the operation's directory must go: root may write anywhere else."""
    before = state(filled)
    data = Path(filled.storage.paths.table_directory(filled.table("shop.parted").table_id, filled.table("shop.parted").name))
    data.mkdir(parents=True)
    (data / "data").write_text("in the way")

    with pytest.raises(UnavailableError):
        insert(filled._context, "shop.parted", orders(spark, 0, 3))

    (data / "data").unlink()
    filled.files.recover()
    assert state(filled) == before
    assert count(filled.registry, "table_files") == len(before[1])


def test_a_warehouse_that_vanished_is_reported_and_nothing_changes(filled: Lake, spark: SparkSession) -> None:
    root = Path(filled.storage.paths.root)
    before = state(filled)
    hidden = root.with_name("elsewhere")
    root.rename(hidden)

    with pytest.raises(StorageUnavailableError, match="has no marker: mount it"):
        insert(filled._context, ORDERS, orders(spark, 0, 3))

    assert not root.exists()
    hidden.rename(root)
    assert state(filled) == before


def lost(_: str) -> None:
    message = "the database went away"
    raise RegistryUnavailableError(message)


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_registry_that_goes_away_at_any_step_leaves_everything_as_it_was(
    filled: Lake, spark: SparkSession, url: str, *, partitioned: bool
) -> None:
    """Each step once: the registry answers no more from there on, and recovery undoes what the writer could not."""
    name = "shop.parted" if partitioned else ORDERS
    before = state(filled)
    for at in range(1, 200, 3 if partitioned else 2):
        steps = Failing(at=at, act=lost)
        with stepped(filled, url, steps) as context, suppress(RegistryUnavailableError, OutcomeUnknownError):
            insert(context, name, orders(spark, 0, 3))
        if count(filled.registry, "table_files") > len(before[1]):
            break  # the transaction was through: at most its answer was lost
        _recover(filled)
        assert state(filled) == before, steps.done
    assert at > 6
    assert filled.check().clean


def _recover(lake: Lake) -> None:
    """As if the leases of dead writers had ended."""
    with lake.registry.write() as tx:
        tx.run("UPDATE operations SET lease_until = 0 WHERE state IN ('writing', 'rolling_back')")
    lake.files.recover()


def interrupt(_: str) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_between_files_and_registration_leaves_nothing(filled: Lake, spark: SparkSession, url: str) -> None:
    before = state(filled)
    steps = Steps()

    def interrupted(context: Context) -> None:
        with staging(context.registry, context.storage, filled.table(ORDERS)) as work:
            captured = write_frame(context, work, work.table, orders(spark, 0, 3))
            assert len(files_in(filled)) > len(before[1])
            steps.at, steps.act = len(steps.done) + 2, interrupt
            publish_files(context, work, work.table, captured)

    with stepped(filled, url, steps) as context, pytest.raises(KeyboardInterrupt):
        interrupted(context)

    assert state(filled) == before
    assert filled.check().clean


@dataclass(slots=True)
class WatchedStorage:
    """A real storage whose flush to the disk is a step like those of the registry."""

    real: Storage
    steps: Steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def sync_tree(self, directory: str) -> None:
        self.steps.reach("sync")
        self.real.sync_tree(directory)
        self.steps.reach("synced")


@pytest.mark.parametrize("name", [ORDERS, "shop.parted"])
def test_rows_are_registered_only_when_their_files_are_on_the_disk(filled: Lake, spark: SparkSession, url: str, name: str) -> None:
    steps = Steps()
    with stepped(filled, url, steps) as plain:
        context = replace(plain, storage=WatchedStorage(filled.storage, steps))
        done = insert(context, name, orders(spark, 10, 50))

    intended, *_, committed = [number for number, step in enumerate(steps.done) if step == "committed"]
    (registered,) = [number for number, step in enumerate(steps.done) if "state = 'registered'" in step]
    assert intended < steps.done.index("sync") < steps.done.index("synced") < registered < committed
    assert done.rows == 50
    assert filled.check().clean


def test_a_flush_that_fails_registers_nothing_and_leaves_no_file(filled: Lake, spark: SparkSession, url: str) -> None:
    before, steps = state(filled), Steps()

    class FailingFlush(WatchedStorage):
        def sync_tree(self, directory: str) -> None:
            assert len(files_in(filled)) > len(before[1])
            raise StorageFullError(directory)

    with stepped(filled, url, steps) as plain, pytest.raises(StorageFullError):
        insert(replace(plain, storage=FailingFlush(filled.storage, steps)), ORDERS, orders(spark, 10, 50))

    assert not any("state = 'registered'" in step for step in steps.done)
    assert state(filled) == before
    assert filled.check().clean


def test_a_writer_that_was_recovered_meanwhile_cannot_register(filled: Lake, spark: SparkSession, url: str) -> None:
    before = state(filled)

    def recover() -> None:
        ((op_id, directory),) = filled.registry.query("SELECT op_id, staging_path FROM operations WHERE state = 'writing'")
        roll_back(filled.registry, filled.storage, filled.table(ORDERS), op_id, directory, error="its lease ended")

    with meanwhile(filled, url, recover) as context, pytest.raises(OperationConflictError):
        insert(context, ORDERS, orders(spark, 0, 3))

    _sweep(filled, before[1])
    assert state(filled) == before


def _sweep(lake: Lake, known: list[str]) -> None:
    """What a writer wrote after its directory was taken away is an orphan; sweeping it is another issue's."""
    root = Path(lake.storage.paths.root)
    for name in set(files_in(lake)) - set(known):
        (root / name).unlink()


def test_a_block_that_publishes_nothing_leaves_nothing(filled: Lake, spark: SparkSession) -> None:
    before = state(filled)

    with staging(filled._context.registry, filled._context.storage, filled.table(ORDERS)) as work:
        write_frame(filled._context, work, work.table, orders(spark, 0, 3))

    assert state(filled) == before
    assert filled.check().clean


def test_the_lease_is_renewed_while_the_writer_works(filled: Lake) -> None:
    with staging(filled._context.registry, filled._context.storage, filled.table(ORDERS), lease_us=3_000_000) as work:
        assert work.directory  # which waits for the intent
        first = _lease(filled, work.operation.op_id)
        while _lease(filled, work.operation.op_id) == first:
            pass
        assert filled.files.recover() == []


def _lease(lake: Lake, op_id: str) -> int:
    return int(lake.registry.query("SELECT lease_until FROM operations WHERE op_id = :o", {"o": op_id})[0][0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("java.io.IOException: No space left on device", StorageFullError),
        ("Cannot call methods on a stopped SparkContext", SparkUnavailableError),
        ("Job aborted\norg.apache.spark.shuffle.MetadataFetchFailedException: Missing an output location", SparkUnavailableError),
        ("Job aborted\nCaused by: java.io.FileNotFoundException: /x", SparkUnavailableError),
        ("Job aborted\nCaused by: java.lang.ArithmeticException: overflow", SparkRefusedError),
        ("", SparkRefusedError),
    ],
)
def test_what_spark_says_becomes_a_typed_error(text: str, expected: type[LakebedError]) -> None:
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415

    assert type(translate(PySparkRuntimeError(text), "writing")) is expected


def test_rows_stay_readable_after_a_failure(filled: Lake, spark: SparkSession) -> None:
    with pytest.raises(SparkRefusedError):
        insert(filled._context, ORDERS, orders(spark, 0, 100).selectExpr("id", "ts", FAILING_ROW), mode="overwrite")

    assert rows_of(filled, ORDERS) == rows_of(orders(spark, 0, 10))
