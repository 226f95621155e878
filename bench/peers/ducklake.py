"""DuckLake from the PyPI wheels of its extensions, no network: register | concurrent | plan | retire.

Catalog: duckdb | sqlite | postgres.
"""

import functools
import importlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from batches import ROWS, make_batch, write_files
from harness import Commit, best_ms, emit, fresh, part_of, run_step, run_writers, settle, timed_commits
from postgres import new_database

COLUMNS = "id BIGINT, part INTEGER, ts TIMESTAMP, " + ", ".join(f"f{k} DOUBLE" for k in range(7))
EXTENSIONS = ("ducklake", "sqlite_scanner", "postgres_scanner")


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    kind: str
    directory: Path
    dsn: str = ""

    @property
    def peer(self) -> str:
        return f"ducklake_{self.kind}"

    @property
    def uri(self) -> str:
        """What DuckDB attaches as the catalog's own database."""
        return {
            "duckdb": f"{self.directory}/catalog.duckdb",
            "sqlite": f"sqlite:{self.directory}/catalog.sqlite",
            "postgres": f"postgres:{self.dsn}",
        }[self.kind]

    def connect(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect()
        connection.execute("SET threads=2")
        for name in EXTENSIONS:
            connection.execute(f"LOAD '{find_extension(name)}'")
        connection.execute(f"ATTACH 'ducklake:{self.uri}' AS l (DATA_PATH '{self.directory}/data')")
        connection.execute("USE l")
        return connection


def find_extension(name: str) -> Path:
    package = importlib.import_module(f"duckdb_extension_{name}")
    return next(Path(str(package.__file__)).parent.rglob(f"{name}.duckdb_extension"))


@contextmanager
def new_catalog(directory: Path, kind: str, step: str) -> Iterator[Catalog]:
    place = fresh(directory, f"ducklake_{step}_{kind}")
    if kind == "postgres":
        with new_database(f"ducklake_{step}") as dsn:
            yield Catalog(kind=kind, directory=place, dsn=dsn)
    else:
        yield Catalog(kind=kind, directory=place)


def add_file(connection: duckdb.DuckDBPyConnection, path: Path, options: str = "") -> None:
    connection.execute(f"CALL ducklake_add_data_files('l', 't', '{path}'{options})")


def register(directory: Path, *, catalog: str, commits: int) -> None:
    with new_catalog(directory, catalog, "register") as lake:
        files = write_files(lake.directory / "in", range(commits))
        connection = lake.connect()
        connection.execute(f"CREATE TABLE t({COLUMNS})")
        timed_commits(lake.peer, "commit_only", commits, lambda number: add_file(connection, files[number]))
        connection.close()


def concurrent(directory: Path, *, catalog: str, writers: int, each: int) -> None:
    with new_catalog(directory, catalog, "concurrent") as lake:
        files = write_files(lake.directory / "in", range(writers * each))
        connection = lake.connect()
        connection.execute(f"CREATE TABLE t({COLUMNS})")
        connection.close()
        outcome = run_writers(writers, each, functools.partial(prepare_writer, lake, files))
        connection = lake.connect()
        outcome.emit(lake.peer, (int(Path(path).stem[1:]) for path in list_files(connection)))
        connection.close()


def prepare_writer(lake: Catalog, files: Sequence[Path], _writer: int) -> Commit:
    connection = lake.connect()
    connection.execute("SET ducklake_max_retry_count=100")
    return lambda number: add_file(connection, files[number])


def list_files(connection: duckdb.DuckDBPyConnection) -> list[str]:
    return [path for (path,) in connection.execute("SELECT data_file FROM ducklake_list_files('l', 't')").fetchall()]


def plan(directory: Path, *, catalog: str, files: int) -> None:
    """Attach, find a point, list all.

    One partition is left out: DuckLake plans a filter only by scanning, and the files of that partition have no bytes.
    """
    with new_catalog(directory, catalog, f"plan_{files}") as lake:
        emit(lake.peer, "plan", "build", build_planned(lake, files), "s", n=files)
        for name in ("attach", "point", "all"):
            cold = best_ms(functools.partial(plan_cold, lake, name, files), 3)
            emit(lake.peer, "plan", f"{name}_cold", cold, "ms", n=files)
        connection = lake.connect()
        for name in ("point", "all"):
            plan_one(connection, name, files)
            warm = best_ms(functools.partial(plan_one, connection, name, files), 5)
            emit(lake.peer, "plan", f"{name}_warm", warm, "ms", n=files)
        connection.close()


def plan_cold(lake: Catalog, name: str, files: int) -> None:
    connection = lake.connect()
    plan_one(connection, name, files)
    connection.close()


def plan_one(connection: duckdb.DuckDBPyConnection, name: str, files: int) -> None:
    if name == "point":
        key = files // 2 * ROWS + 5
        assert connection.execute(f"SELECT count(*) FROM t WHERE id = {key}").fetchall() == [(1,)]
    elif name == "all":
        assert len(list_files(connection)) == files


def build_planned(lake: Catalog, files: int) -> float:
    """Fill the catalog by SQL; only the file that holds the point is real."""
    middle = files // 2
    connection = lake.connect()
    connection.execute(f"CREATE TABLE t({COLUMNS})")
    connection.execute("ALTER TABLE t SET PARTITIONED BY (part)")
    connection.register("point", make_batch(middle, part=part_of(middle, files)))
    connection.execute("INSERT INTO t SELECT * FROM point")
    connection.execute("USE memory")
    connection.execute("DETACH l")
    connection.execute(f"ATTACH '{lake.uri}' AS m")
    row = connection.execute("SELECT table_id, partition_id, begin_snapshot FROM m.ducklake_data_file").fetchone()
    assert row is not None
    table_id, partition_id, snapshot = row
    numbers = f"range({files}) r(i)"
    part = f"(i * 100 // {files})"
    start = time.perf_counter()
    connection.execute(f"""
        INSERT INTO m.ducklake_data_file(data_file_id, table_id, begin_snapshot, path, path_is_relative, file_format,
                                         record_count, file_size_bytes, footer_size, row_id_start, partition_id)
        SELECT i + 10, {table_id}, {snapshot}, 'part=' || {part} || '/f' || i || '.parquet', true, 'parquet',
               {ROWS}, 20000, 3000, (i + 2) * {ROWS}, {partition_id}
        FROM {numbers} WHERE i <> {middle}""")
    connection.execute(f"""
        INSERT INTO m.ducklake_file_partition_value
        SELECT i + 10, {table_id}, 0, {part}::VARCHAR FROM {numbers} WHERE i <> {middle}""")
    connection.execute(f"""
        INSERT INTO m.ducklake_file_column_stats(data_file_id, table_id, column_id, column_size_bytes, value_count,
                                                 null_count, min_value, max_value, contains_nan)
        SELECT i + 10, {table_id}, k, 2000, {ROWS}, 0,
               CASE k WHEN 1 THEN (i * {ROWS})::VARCHAR WHEN 2 THEN {part}::VARCHAR ELSE '0.001' END,
               CASE k WHEN 1 THEN (i * {ROWS} + {ROWS - 1})::VARCHAR WHEN 2 THEN {part}::VARCHAR ELSE '0.999' END,
               CASE WHEN k > 3 THEN false END
        FROM {numbers}, range(1, 11) q(k) WHERE i <> {middle} AND k <> 3""")
    seconds = time.perf_counter() - start
    connection.close()
    return seconds


def retire(directory: Path, *, catalog: str, files: int) -> None:
    """Delete five of ten partitions, then expire snapshots and clean up old files."""
    with new_catalog(directory, catalog, "retire") as lake:
        connection = lake.connect()
        connection.execute(f"CREATE TABLE t({COLUMNS})")
        connection.execute("ALTER TABLE t SET PARTITIONED BY (part)")
        paths = move_to_parts(write_files(lake.directory / "in", range(files)))
        connection.execute("BEGIN")
        for path in paths:
            add_file(connection, path, ", hive_partitioning => true")
        connection.execute("COMMIT")
        settle()
        start = time.perf_counter()
        connection.execute("DELETE FROM t WHERE part < 5")
        emit(lake.peer, "retire", "metadata", files // 2 / (time.perf_counter() - start), "files/s", n=files)
        start = time.perf_counter()
        connection.execute("CALL ducklake_expire_snapshots('l', older_than => now() + INTERVAL 1 day)")
        connection.execute("CALL ducklake_cleanup_old_files('l', cleanup_all => true)")
        seconds = time.perf_counter() - start
        removed = sum(not path.exists() for path in paths)
        emit(lake.peer, "retire", "physical", removed / seconds, "files/s", n=files, removed=removed)
        connection.close()


def move_to_parts(paths: Sequence[Path]) -> list[Path]:
    moved = []
    for number, path in enumerate(paths):
        part = path.parent / f"part={part_of(number)}"
        part.mkdir(exist_ok=True)
        moved.append(path.rename(part / path.name))
    return moved


if __name__ == "__main__":
    run_step({"register": register, "concurrent": concurrent, "plan": plan, "retire": retire})
