"""Wrong input, through Python, SQL and the command line: a typed error that says what is wrong and what to do, and nothing changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from shells import NAME, VIEW, Shell, make_view_set

from builders import SCHEMA, logical_dump
from lakebed.core.errors import LakebedError
from lakebed.core.errors.families import ConflictError, CorruptionError, RefusedError, UnavailableError
from lakebed.lake import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Databases
    from lakebed.lake import Lake

Act = Callable[["Lake"], object]
MISSING = "shop.order"
NEAR = r"no table 'shop\.order'.*did you mean shop\.orders"
DAY = datetime(2026, 3, 1, tzinfo=UTC)
REVERSED = {"insert_begin": DAY + timedelta(days=1), "insert_end": DAY}
OPTIONS = ("Options", "--help|-h")  # where a usage error points


@dataclass(frozen=True, slots=True)
class Wrong:
    """`says` is what is wrong, `remedy` what to do: both are in the message."""

    given: str
    code: str
    says: str
    remedy: str
    act: Act


def call(given: str, code: str, says: str, remedy: str, act: Act) -> Wrong:
    return Wrong(given, code, says, remedy, act)


def write_into_a_closed_writer(lake: Lake) -> None:
    writer = lake.writer(NAME)
    writer.close()
    writer.write(None)  # type: ignore[arg-type]


def use_a_closed_lake(lake: Lake) -> None:
    other = connect(lake._url, warehouse=lake.storage.paths.root, service="off", create=False)
    other.close()
    other.tables.list()


def schema(*columns: tuple[str, Any]) -> pa.Schema:
    return pa.schema(list(columns))


PYTHON = [
    # names
    call("a name without its database", "invalid_name", "'orders'", "database.name", lambda lake: lake.create_table("orders", SCHEMA)),
    call("a name with a dash", "invalid_name", "'-' is not allowed", "use letters", lambda lake: lake.create_table("shop.my-orders", SCHEMA)),
    call("no name at all", "invalid_name", "table name ''", "database.name", lambda lake: lake.create_table("", SCHEMA)),
    call("a number as a name", "invalid_name", "'7'", "database.name", lambda lake: lake.table(7)),  # type: ignore[arg-type]
    call("a name that is taken", "table_exists", "shop.orders exists", "choose another name", lambda lake: lake.create_table(NAME, SCHEMA)),
    call("a taken name in capitals", "table_exists", "shop.orders", "choose another name", lambda lake: lake.create_table("Shop.Orders", SCHEMA)),
    call("a misspelled table", "table_not_found", NEAR, "create it first|list the tables", lambda lake: lake.table(MISSING)),
    call("a misspelled table to read", "table_not_found", NEAR, "list the tables", lambda lake: lake.read(MISSING)),
    call("a misspelled table to drop", "table_not_found", NEAR, "list the tables", lambda lake: lake.tables.drop(MISSING)),
    call("an instance with spaces", "invalid_name", "' ' is not allowed", "use letters", lambda lake: lake.read(NAME, instance="a b")),
    call("a tag called main", "invalid_value", "main is reserved for the table itself", "choose another", lambda lake: lake.snapshots.tag(NAME, "main", 1)),
    # schemas and types
    call("no schema", "invalid_value", "shop.a", "give either a schema or `like`", lambda lake: lake.create_table("shop.a")),
    call("a schema without columns", "schema_refused", "at least one column", "column", lambda lake: lake.create_table("shop.a", schema())),
    call("two columns of one name", "schema_refused", "twice", "name|rename", lambda lake: lake.create_table("shop.a", schema(("a", pa.int64()), ("A", pa.int64())))),
    call("a type Iceberg lacks", "schema_refused", r"duration\[s\]", "cast it", lambda lake: lake.create_table("shop.a", schema(("a", pa.duration("s"))))),
    call("a misspelled type in DDL", "schema_refused", "BIGINTT", "use|BIGINT", lambda lake: lake.create_table("shop.a", "id BIGINTT")),
    call("an unknown event time", "schema_refused", "no column 'tss'", "did you mean ts|the columns are", lambda lake: lake.create_table("shop.a", SCHEMA, event_time="tss")),
    call("an event time of text", "schema_refused", "event time amount", "timestamp, date or long", lambda lake: lake.create_table("shop.a", SCHEMA, event_time="amount")),
    call("an unknown partition column", "schema_refused", "no column 'tss'", "did you mean ts|the columns are", lambda lake: lake.create_table("shop.a", SCHEMA, partition_by=["day(tss)"])),
    call("an unknown transform", "schema_refused", r"week\(ts\)", "year", lambda lake: lake.create_table("shop.a", SCHEMA, partition_by=["week(ts)"])),
    call("a column that is there", "schema_refused", "'amount'", "twice", lambda lake: lake.columns.add(NAME, "amount", "long")),
    call("a column of no type", "schema_refused", "'longg'", "use binary", lambda lake: lake.columns.add(NAME, "x", "longg")),
    call("a misspelled column to rename", "schema_refused", "no column 'amout'", "did you mean amount", lambda lake: lake.columns.rename(NAME, "amout", "a")),
    call("the event time to drop", "schema_refused", "ts cannot be dropped", "event time", lambda lake: lake.columns.drop(NAME, "ts")),
    call("a narrower type", "schema_refused", "widen id to int", "int to long", lambda lake: lake.columns.widen(NAME, "id", "int")),
    # times
    call("a word as a time", "invalid_value", "'yesterday'", "ISO 8601", lambda lake: lake.read(NAME, begin="yesterday")),
    call("a time without a zone", "invalid_range", "no time zone", "ISO 8601", lambda lake: lake.read(NAME, begin=datetime(2026, 1, 1))),  # noqa: DTZ001
    call("a range that ends first", "invalid_range", "ends before it begins", "begin < end", lambda lake: lake.read(NAME, begin=DAY, end=DAY - timedelta(days=1))),
    call("a number that does not exist", "invalid_value", "999999 cannot be read", "kept are", lambda lake: lake.read(NAME, as_of=999999)),
    call("a slice of seven hours", "invalid_value", "7h", "divides|whole", lambda lake: lake.create_view_set("shop.v", over=NAME, sql=f"SELECT id FROM {NAME}", slice="7h")),
    call("a slice that is not a duration", "invalid_value", "'often'", "15m", lambda lake: lake.create_view_set("shop.v", over=NAME, sql=f"SELECT id FROM {NAME}", slice="often")),
    call("a retention in the past", "invalid_value", "-1 day", "must be positive", lambda lake: lake.partitions.retire_expired(retention=timedelta(days=-1))),
    call("a retirement that ends first", "invalid_range", "ends before", "begin < end", lambda lake: lake.retire_partitions(NAME, **REVERSED)),  # type: ignore[arg-type]
    # paths
    call("a path outside", "path_refused", "/etc/passwd", "below the warehouse", lambda lake: lake.files.register(NAME, ["/etc/passwd"])),
    call("a relative path", "path_refused", "not absolute", "absolute", lambda lake: lake.files.footer("a.parquet")),
    call("no path", "invalid_value", "at least one path", "a list", lambda lake: lake.files.register(NAME, [])),
    call("one path as text", "invalid_value", "'a.parquet'", "a list", lambda lake: lake.files.register(NAME, "a.parquet")),
    # options
    call("a misspelled setting", "invalid_value", "retire_afer", "did you mean retire_after", lambda lake: lake.tables.configure(NAME, retire_afer="90d")),  # type: ignore[arg-type]
    call("a misspelled inner setting", "invalid_value", "triger", "trigger", lambda lake: lake.tables.configure(NAME, snapshot={"triger": "time"})),
    call("an unknown trigger", "invalid_value", "'weekly'", "every_insert", lambda lake: lake.tables.configure(NAME, snapshot={"trigger": "weekly"})),
    call("a negative rotation", "invalid_value", "rotate_after=-1", "must both be positive", lambda lake: lake.writer(NAME, rotate_after=-1)),
    call("an unknown format", "invalid_value", "'csv'", "parquet, json", lambda lake: lake.writer(NAME, format="csv")),  # type: ignore[arg-type]
    call("a negative file size", "invalid_value", "target_bytes=-5", "positive", lambda lake: lake.compact(NAME, target_bytes=-5)),
    call("a batch of no file", "invalid_value", "batch_size=0", "positive", lambda lake: lake.delete_expired_temporary_files(batch_size=0)),
    call("a page of length -1", "invalid_value", "-1", "must not be negative", lambda lake: lake.list_partitions(NAME, limit=-1)),
    call("a page after nothing", "partition_not_found", "after=99999", "continue with insert_begin", lambda lake: lake.list_partitions(NAME, after=99999)),
    call("administrators as text", "invalid_value", "'me'", "a list", lambda lake: lake.administrators.set("me")),
    call("rows that are no DataFrame", "invalid_value", "a list cannot be written", "give a Spark DataFrame", lambda lake: lake.insert(NAME, [1])),  # type: ignore[arg-type]
    call("no condition to delete by", "invalid_value", "which rows to delete", 'where="id = 7"', lambda lake: lake.delete(NAME, "")),
    call("an unknown repair", "invalid_value", "'magic'", "refresh, rebuild", lambda lake: lake.repair(NAME, how="magic")),  # type: ignore[arg-type]
    # states
    call("rows to delete from a view set", "invalid_value", "is a view set", "delete them from its source", lambda lake: lake.delete(VIEW, "id = 1")),
    call("a plain table to materialize", "definition_refused", "not a view set", "create_view_set", lambda lake: lake.materialize(NAME)),
    call("nothing to promote", "invalid_value", "no staged definition", "redefine it first", lambda lake: lake.views.promote(VIEW)),
    call("a snapshot that does not exist", "snapshot_not_found", "no snapshot 123", "list them", lambda lake: lake.snapshots.tag(NAME, "a", 123)),
    call("a tag that does not exist", "snapshot_not_found|invalid_value|tag_not_found", "nope", "list|tags", lambda lake: lake.snapshots.untag(NAME, "nope")),
    call("a rollback to a journal number", "invalid_value", "journal number 123 cannot be read", "kept are", lambda lake: lake.snapshots.rollback(NAME, 123)),
    call("a view over nothing", "table_not_found", NEAR, "list the tables", lambda lake: lake.create_view_set("shop.v", over=MISSING, sql=f"SELECT id FROM {MISSING}", slice="1h")),
    call("a view of no query", "definition_refused", "exactly one SELECT", "SELECT", lambda lake: lake.create_view_set("shop.v", over=NAME, sql="SELEC id", slice="1h")),
    # order of calls
    call("a lake that was closed", "lake_closed", "closed", "connect", use_a_closed_lake),
    call("a writer that was closed", "invalid_value", "closed", "open|writer", write_into_a_closed_writer),
]  # fmt: skip


def query(given: str, code: str, says: str, remedy: str, text: str) -> Wrong:
    return Wrong(given, code, says, remedy, lambda lake: lake.sql(text))


SQL = [
    query("no query", "query_refused", "'SELEC'", "only queries are allowed", "SELEC"),
    query("a statement that drops", "query_refused", "DROP TABLE", "methods of the lake", f"DROP TABLE {NAME}"),
    query("a misspelled table", "table_not_found", NEAR, "list the tables", f"SELECT * FROM list_partitions('{MISSING}')"),
    query("a table without its database", "invalid_name", "'orders'", "database.name", "SELECT * FROM list_partitions('orders')"),
    query("a word as a time", "invalid_value", "begin: .* got 'x'", "2026-01-01T00:00:00Z", "SELECT * FROM list_partitions(begin => 'x')"),
    query("an unknown argument", "invalid_value", "no argument 'nope'", "it takes begin", f"SELECT * FROM list_partitions('{NAME}', nope => 1)"),
    query("too many arguments", "invalid_value", "not 4", "takes 2 arguments", "SELECT * FROM list_files(1, 2, 3, 4)"),
    query("no range to retire", "invalid_value", "needs insert_begin", "insert_begin", f"SELECT * FROM retire_partitions('{NAME}')"),
    query("a range that ends first", "invalid_range", "ends before", "begin < end", f"SELECT * FROM retire_partitions('{NAME}', insert_begin => '2026-03-02', insert_end => '2026-03-01')"),
    query("a word for yes or no", "invalid_value", "dry_run: .* got 'perhaps'", "true or false", f"SELECT * FROM retire_partitions('{NAME}', insert_begin => '2026-03-01', insert_end => '2026-03-02', dry_run => 'perhaps')"),
    query("an instance with spaces", "invalid_name", "' ' is not allowed", "use letters", f"SELECT * FROM list_partitions('{NAME}', 'a b')"),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Command:
    words: tuple[str, ...]
    exit_code: int
    says: str
    remedy: str


def command(words: str, exit_code: int, says: str, remedy: str) -> Command:
    return Command(tuple(words.split("|")), exit_code, says, remedy)


COMMANDS = [
    command(f"tables|show|{MISSING}", 1, f"table_not_found: .*{NEAR}", "list the tables"),
    command("tables|show|orders", 1, "invalid_name: .*'orders'", "database.name"),
    command("tabels|list", 2, "tabels", "Did you mean|--help|-h"),
    command(f"partitions|list|{NAME}|--begin|yesterday", 2, "yesterday", "ISO 8601|2026"),
    command(f"partitions|retire|{NAME}", 2, "insert-begin", "Missing option"),
    command(f"partitions|retire|{NAME}|--insert-begin|2026-03-02|--insert-end|2026-03-01|--execute|--yes", 1, "ends before it begins", "begin < end"),
    command(f"partitions|retire-expired|{NAME}|--older-than-days|-1", 2, "-1", "range|>="),
    command("files|footer|w/nowhere.parquet", 1, "path_refused|footer_not_found", "below the warehouse|never registered"),
    command(f"files|register|/etc/passwd|--table|{NAME}", 1, "REFUSED", "below the warehouse"),
    command(f"views|promote|{VIEW}", 1, "no staged definition", "redefine it first"),
    command(f"views|regenerate|{NAME}", 1, "not a view set", "create_view_set"),
    command(f"snapshots|tag|{NAME}|a", 2, "Missing argument", "snapshot"),
    command(f"snapshots|tag|{NAME}|a b|123", 1, "' ' is not allowed", "use letters"),
    command(f"snapshots|untag|{NAME}|nope", 1, "nope", "list|tags"),
    command(f"compact|run|{NAME}|--target-mib|0", 2, "target-mib", "range|>="),
    command("clean|temp|--batch-size|0", 2, "batch-size", "range|>="),
    command(f"astha|retry|nobody|{NAME}", 1, "'nobody'", "the components are"),
    command(f"explain|DELETE FROM {NAME}", 1, "query_refused", "only queries are allowed"),
    command(f"read-with|{NAME}|--engine|excel", 2, "excel", "duckdb"),
    command(f"repair|{NAME}|--how|magic", 1, "'magic'", "refresh, rebuild"),
    command(f"columns|list|{MISSING}", 1, NEAR, "list the tables"),
    command(f"columns|add|{NAME}|x|longg", 1, "'longg'", "did you mean long"),
    command(f"columns|add|{NAME}|x|ARRAY<STRINGG>", 1, "STRINGG", "did you mean string"),
    command(f"columns|add|{NAME}|x|ARRAY<STRING>, y INT", 1, "more than one type", "one by one"),
    command(f"columns|rename|{NAME}|amout|price", 1, "no column 'amout'", "did you mean amount"),
    command(f"columns|drop|{NAME}|ts|--execute|--yes", 1, "ts cannot be dropped", "event time"),
    command(f"columns|widen|{NAME}|id|int", 1, "widen id to int", "int to long"),
    command(f"columns|make-optional|{NAME}|id", 1, "already has this schema", "make id optional"),
    command(f"columns|make-optional|{VIEW}|id", 1, "is a view set", "create_view_set"),
    command(f"configure|{NAME}|--snapshot|triger=time", 1, "triger", "did you mean trigger"),
    command(f"configure|{NAME}|--snapshot|trigger", 2, "trigger", "KEY=VALUE"),
    command(f"configure|{NAME}|--snapshot|trigger=weekly", 1, "'weekly'", "every_insert"),
    command(f"configure|{NAME}|--retention|all_s=-1", 1, "retention.all_s=-1", "not negative"),
    command(f"configure|{NAME}|--retention|all_s=NaN", 1, "retention.all_s=nan", "not negative"),
    command(f"configure|{NAME}|--retire-after|soon|--property|owner=ann", 1, "'soon'", "15m"),
    command(f"configure|{NAME}|--merge-window|0d", 1, "'0d'", "15m"),
    command(f"configure|{NAME}|--property|indexed=[1]", 1, "'indexed' is internal", "only Lakebed writes it"),
    command(f"configure|{NAME}|--property|retention=1", 1, "retention is a setting", "not among the properties"),
    command(f"configure|{NAME}|--retire-after|1d|--default|retire-after", 2, "retire-after", "same call sets it"),
    command(f"configure|{NAME}|--default|retire", 2, "'retire'", "retire-after"),
    command(f"rollback|{NAME}|123|--execute|--yes", 1, "123 cannot be read", "kept are"),
    command(f"rollback|{NAME}|monday", 2, "monday", "not a valid int"),
    command(f"rollback|{VIEW}|123", 1, "is a view set", "regenerate"),
    command("tables|create|shop.new", 2, "--like FILE", "id BIGINT"),
    command("tables|create|shop.new|id BIGINT|--like|a.parquet", 2, "--like FILE", "either"),
    command("tables|create|shop.new|id BIGINTT", 1, "BIGINTT", "did you mean bigint"),
    command(f"tables|create|{NAME}|id BIGINT", 1, "table_exists: .*shop.orders", "choose another name"),
    command(f"tables|create|{NAME}|id BIGINT|--dry-run", 1, "table_exists: .*shop.orders", "choose another name"),
    command("tables|create|shop.new|id BIGINT|--event-time|ts", 1, "no column 'ts'", "the columns are id"),
    command("tables|create|shop.new|id BIGINT|--partition-by|week(id)|--dry-run", 1, r"week\(id\)", "year"),
    command("tables|create|shop.new|--like|nowhere.parquet", 1, "path_refused: .*nowhere.parquet", "no such file"),
    command("tables|create|shop.new|--like|/etc/passwd", 1, "/etc/passwd", "Parquet"),
    command(f"insert|{MISSING}|a.csv", 1, NEAR, "list the tables"),
    command(f"insert|{NAME}|nowhere.csv", 1, "path_refused: .*nowhere.csv", "no such file"),
    command(f"insert|{NAME}|/etc/passwd", 1, "'/etc/passwd' has no known extension", "--input-format"),
    command(f"insert|{NAME}|/etc", 1, "path_refused: .*'/etc'", "--input-format"),
    command(f"insert|{NAME}|/etc/passwd|--input-format|excel", 2, "excel", "parquet"),
    command(f"insert|{NAME}|/etc/passwd|--mode|upsert", 2, "upsert", "append"),
    command(f"insert|{NAME}", 2, "Missing argument", "FILE"),
    command("sql|SELEC", 1, "query_refused: .*'SELEC'", "only queries are allowed"),
    command(f"sql|DROP TABLE {NAME}", 1, "query_refused", "use insert"),
    command("sql|SELECT 1|--limit|0", 2, "limit", "range|>="),
    command("sql|SELECT 1|--format|xml", 2, "xml", "csv"),
    command("sql|SELECT 1|--format|csv|--json", 2, "--json", "exclude each other"),
    command("serve|--listen|nonsense", 1, "'nonsense'", "127.0.0.1"),
    command(f"explain|SELECT * FROM {MISSING}", 1, NEAR, "list the tables"),
]  # fmt: skip


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def wronged(request: pytest.FixtureRequest, databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A lake that no wrong input changes serves them all."""
    url = databases.new(request.param)
    made = Shell(url, tmp_path_factory.mktemp("wronged") / "warehouse")
    with made.open() as lake:
        make_view_set(lake)
    yield made
    databases.drop(url)


def state_of(lake: Lake) -> tuple[object, ...]:
    files = sorted((str(path), path.stat().st_size) for path in Path(lake.storage.paths.root).rglob("*") if path.is_file())
    return logical_dump(lake.registry, without=frozenset({"leases", "lease_numbers"})), files


@pytest.mark.parametrize("wrong", [*PYTHON, *SQL], ids=lambda wrong: wrong.given)
def test_a_wrong_call_is_refused_with_what_to_do_and_changes_nothing(wronged: Shell, wrong: Wrong) -> None:
    with wronged.open() as lake:
        before = state_of(lake)

        with pytest.raises(LakebedError) as caught:
            wrong.act(lake)

        message = str(caught.value)
        assert re.fullmatch(wrong.code, caught.value.code), message
        assert re.search(wrong.says, message), message
        assert re.search(wrong.remedy, message), message
        assert isinstance(caught.value, RefusedError | ConflictError | UnavailableError | CorruptionError)
        assert state_of(lake) == before


@pytest.mark.parametrize("wrong", COMMANDS, ids=lambda wrong: " ".join(wrong.words))
def test_a_wrong_command_is_refused_with_what_to_do_and_changes_nothing(wronged: Shell, wrong: Command) -> None:
    with wronged.open() as lake:
        before = state_of(lake)

    done = wronged.run(*wrong.words)

    said = " ".join(f"{done.stdout} {done.stderr}".split())
    assert done.exit_code == wrong.exit_code, said
    assert re.search(wrong.says, said), said
    assert re.search(wrong.remedy, said), said
    with wronged.open() as lake:
        assert state_of(lake) == before


def test_the_table_holds_at_least_sixty() -> None:
    assert len(PYTHON) + len(SQL) + len(COMMANDS) >= 60
