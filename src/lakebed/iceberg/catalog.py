"""The Iceberg catalog: one pointer per table, moved by compare-and-swap under a fence.

On PostgreSQL it is in the registry's database, on SQLite in a file beside it. Its two tables are those of PyIceberg's
SqlCatalog and of Java's JDBC catalog, so every engine can read it; only the committer writes.
"""

from __future__ import annotations

from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from lakebed.core.errors import LakebedError, LeaseLostError, OutcomeUnknownError, RegistryUnavailableError, StorageFullError
from lakebed.iceberg.pyiceberg_internals import catalog_tables, start_catalog
from lakebed.registry.backends.private_files import create_private
from lakebed.registry.backends.sqlite_errors import is_full
from lakebed.registry.backends.write_queue import FileLock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table import CommitTableResponse, Table
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from sqlalchemy import Connection

    from lakebed.core.names import TableName
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage

CATALOG_NAME = "lakebed"  # rows are keyed by it: never rename
_CREATE_LOCK = 7_521_904  # PostgreSQL: two processes must not create the tables at once
_DISK_FULL = "53100"  # PostgreSQL's code
_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA wal_autocheckpoint=250",  # 1 MB: a commit writes two pages
    "PRAGMA synchronous=FULL",
    "PRAGMA mmap_size=0",
    "PRAGMA cell_size_check=ON",
)
_FENCE_TABLE = """CREATE TABLE IF NOT EXISTS lakebed_fence (table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,
epoch BIGINT NOT NULL, PRIMARY KEY (table_namespace, table_name))"""
_FENCE, _POINTERS = "lakebed_fence", "iceberg_tables"  # the fence is the last table that is made
_FIND_TABLE = {
    "postgresql": "SELECT to_regclass(:name)::text",
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name = :name",
}
_WRITE = "INSERT INTO lakebed_fence (table_namespace, table_name, epoch) VALUES ('', '', 0)"
_TAKE_BACK = "DELETE FROM lakebed_fence WHERE table_namespace = '' AND table_name = ''"
_BOUND_SILENCE = "SET LOCAL idle_in_transaction_session_timeout = '60s'"  # a frozen process must not hold a table's fence for ever
_KEY = {"catalog": CATALOG_NAME}
_WHERE = "catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name"
_FIND = f"SELECT metadata_location, previous_metadata_location FROM iceberg_tables WHERE {_WHERE}"
_LIST = "SELECT catalog_name, table_namespace, table_name, metadata_location FROM iceberg_tables ORDER BY 1, 2, 3"
_SWAP = f"UPDATE iceberg_tables SET metadata_location = :new, previous_metadata_location = :old WHERE {_WHERE} AND metadata_location = :old"
_FORCE = f"UPDATE iceberg_tables SET metadata_location = :new, previous_metadata_location = NULL WHERE {_WHERE}"
_FORGET = f"DELETE FROM iceberg_tables WHERE {_WHERE} AND (metadata_location = :old OR (metadata_location IS NULL AND CAST(:old AS text) IS NULL))"
_ADD = """INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location, iceberg_type)
VALUES (:catalog, :namespace, :name, :new, NULL, 'TABLE') ON CONFLICT DO NOTHING"""
_ADD_NAMESPACE = """INSERT INTO iceberg_namespace_properties (catalog_name, namespace, property_key, property_value)
VALUES (:catalog, :namespace, 'exists', 'true') ON CONFLICT DO NOTHING"""
_RAISE = """INSERT INTO lakebed_fence (table_namespace, table_name, epoch) VALUES (:namespace, :name, 1)
ON CONFLICT (table_namespace, table_name) DO UPDATE SET epoch = lakebed_fence.epoch + 1 RETURNING epoch"""
_EPOCH = "SELECT epoch FROM lakebed_fence WHERE table_namespace = :namespace AND table_name = :name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """The location of a table's metadata, and the one before it; None for a row that names nothing."""

    location: str | None
    previous: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPointer:
    """One row of the catalog's tables, also of another catalog in the same database."""

    catalog: str
    table: str
    location: str | None


class LakeCatalog(SqlCatalog):
    """Readable like any SqlCatalog; its pointers move only by `swap`, for the owner of the fence."""

    def __init__(self, engine: Engine, *, shown_url: str, lock: FileLock | None, properties: dict[str, str]) -> None:
        self.shown_url, self._lock = shown_url, lock
        start_catalog(self, CATALOG_NAME, engine, properties)

    def create_tables(self) -> None:
        with _translated(self.shown_url):
            _create_tables(self.engine)

    def has_pointers(self) -> bool:
        """Whether Lakebed, or another program, has made the table of pointers."""
        with _translated(self.shown_url), self._reading() as connection:
            return _has_table(connection, _POINTERS)

    def find_pointer(self, name: TableName) -> Pointer | None:
        with _translated(self.shown_url), self._reading() as connection:
            row = connection.execute(text(_FIND), _params(name)).one_or_none()
        return None if row is None else Pointer(location=row[0], previous=row[1])

    def list_pointers(self) -> list[NamedPointer]:
        """Every table of every catalog that keeps its pointers here."""
        with _translated(self.shown_url), self._reading() as connection:
            rows = connection.execute(text(_LIST)).all()
        return [
            NamedPointer(catalog=catalog, table=f"{namespace}.{name}", location=location) for catalog, namespace, name, location in rows
        ]

    def ping(self) -> None:
        """Returns at once when the catalog answers, raises when not."""
        with _translated(self.shown_url), self._reading() as connection:
            connection.execute(text("SELECT 1 FROM lakebed_fence LIMIT 1"))

    def raise_fence(self, name: TableName) -> int:
        """Become the owner: a process that read the table before can no longer move its pointer."""
        with _translated(self.shown_url), self._writing() as connection:
            return int(connection.execute(text(_RAISE), _params(name)).scalar_one())

    def swap(self, name: TableName, *, old: str | None, new: str, epoch: int, force: bool = False) -> bool:
        """Point to `new` if the fence is still at `epoch` and the pointer still at `old`; False when the pointer moved, and only then.

        `force` replaces a pointer whatever it says, for a table that is rebuilt. A lost answer is looked up under the
        fence's lock, which waits for the transaction in doubt to end.
        """
        params = {**_params(name), "old": old, "new": new}
        sent = False
        try:
            with self._writing() as connection:
                self._require_epoch(connection, name, epoch)
                moved = self._move(connection, params, force=force)
                sent = True
        except SQLAlchemyError as exc:
            if not sent:
                raise _unavailable(self.shown_url, exc) from exc
            if moved and not self._settle(name, new, cause=exc):
                raise _unavailable(self.shown_url, exc) from exc
        return moved

    def forget(self, name: TableName, *, old: str | None, epoch: int) -> bool:
        """Remove the pointer if it is still at `old`; False when it moved or is gone."""
        with _translated(self.shown_url), self._writing() as connection:
            self._require_epoch(connection, name, epoch)
            return connection.execute(text(_FORGET), {**_params(name), "old": old}).rowcount == 1

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Always refused: the registry decides what a table holds."""
        del requirements, updates
        message = f"{'.'.join(table.name())} follows Lakebed's registry: insert, retire or evolve it through Lakebed"
        raise CommitFailedException(message)

    def close(self) -> None:
        """On SQLite under the writers' lock, because the last close checkpoints."""
        if self._lock is None:
            self.engine.dispose()
            return
        with _held(self._lock):
            self.engine.dispose()
        self._lock.close()

    def _move(self, connection: Connection, params: dict[str, Any], *, force: bool) -> bool:
        connection.execute(text(_ADD_NAMESPACE), {"catalog": params["catalog"], "namespace": params["namespace"]})
        if params["old"] is None or force:
            added = connection.execute(text(_ADD), params).rowcount == 1
            return added or (force and connection.execute(text(_FORCE), params).rowcount == 1)
        return connection.execute(text(_SWAP), params).rowcount == 1

    def _require_epoch(self, connection: Connection, name: TableName, epoch: int) -> None:
        locking = f"{_EPOCH} FOR UPDATE" if self.engine.dialect.name == "postgresql" else _EPOCH
        found = connection.execute(text(locking), _params(name)).scalar_one_or_none()
        if found != epoch:
            raise LeaseLostError(f"iceberg/{name}", epoch=epoch)

    def _settle(self, name: TableName, new: str, *, cause: BaseException) -> bool:
        try:
            with self._writing() as connection:
                locking = f"{_EPOCH} FOR UPDATE" if self.engine.dialect.name == "postgresql" else _EPOCH
                connection.execute(text(locking), _params(name))
                row = connection.execute(text(_FIND), _params(name)).one_or_none()
                if self._lock is not None:  # a commit that failed behind its last page stands whole in the WAL: it is written over
                    connection.exec_driver_sql(_WRITE)
                    connection.exec_driver_sql(_TAKE_BACK)
        except (SQLAlchemyError, LakebedError):  # the lock file has errors of its own
            raise OutcomeUnknownError(f"of the Iceberg commit {new}") from cause
        return row is not None and row[0] == new

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """SQLite: behind the lock file and BEGIN IMMEDIATE. PostgreSQL: READ COMMITTED, rows are locked one by one."""
        if self._lock is None:
            with self.engine.begin() as connection:
                connection.exec_driver_sql(_BOUND_SILENCE)
                yield connection
            return
        with _held(self._lock), self._reading() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                with suppress(SQLAlchemyError):
                    connection.exec_driver_sql("ROLLBACK")
                raise


def open_catalog(registry: Registry, storage: Storage) -> LakeCatalog:
    """The catalog that belongs to this registry, created where there is none: for those who write to it."""
    if (path := _find_file(registry)) is not None:
        create_private(path, what="Iceberg catalog")
    catalog = _connect(registry, storage)
    catalog.create_tables()
    return catalog


@contextmanager
def looking_at_catalog(registry: Registry, storage: Storage) -> Iterator[LakeCatalog | None]:
    """The same for those who read: None where there is none, and nothing is created."""
    path = _find_file(registry)
    if path is not None and not path.exists():
        yield None
        return
    with closing(_connect(registry, storage)) as catalog:
        yield catalog if catalog.has_pointers() else None


def _find_file(registry: Registry) -> Path | None:
    """Of a catalog that is a file of its own."""
    url = make_url(registry.backend.catalog_url)
    return Path(url.database or "") if url.drivername == "sqlite" else None


def _connect(registry: Registry, storage: Storage) -> LakeCatalog:
    url = make_url(registry.backend.catalog_url)
    properties = {"warehouse": storage.paths.root}
    if url.drivername != "sqlite":
        engine = create_engine(url, pool_pre_ping=True, connect_args={"prepare_threshold": None})
        return LakeCatalog(engine, shown_url=url.render_as_string(hide_password=True), lock=None, properties=properties)
    path = Path(url.database or "")
    engine = create_engine(
        url,
        poolclass=QueuePool,
        connect_args={"timeout": registry.backend.timeout_s, "check_same_thread": False, "isolation_level": None},
    )
    event.listen(engine, "connect", _set_pragmas)
    lock = FileLock(Path(f"{path}.lock"), timeout_s=registry.backend.timeout_s)
    return LakeCatalog(engine, shown_url=str(url), lock=lock, properties=properties)


def _set_pragmas(connection: Any, _: object) -> None:
    for pragma in _PRAGMAS:
        connection.execute(pragma)


def _create_tables(engine: Engine) -> None:
    """Where they are missing. SQLAlchemy keeps each engine that it looked for tables with, so a reader must not let it look."""
    with engine.begin() as connection:
        if _has_table(connection, _FENCE):
            return
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _CREATE_LOCK})
        else:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        catalog_tables().create_all(connection)
        connection.execute(text(_FENCE_TABLE))
        if engine.dialect.name != "postgresql":
            connection.exec_driver_sql("COMMIT")


def _has_table(connection: Connection, name: str) -> bool:
    return connection.execute(text(_FIND_TABLE[connection.dialect.name]), {"name": name}).scalar_one_or_none() is not None


@contextmanager
def _held(lock: FileLock) -> Iterator[None]:
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _params(name: TableName) -> dict[str, Any]:
    return {**_KEY, "namespace": name.database, "name": name.name}


@contextmanager
def _translated(where: str) -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as exc:
        _raise_unavailable(where, exc)


def _raise_unavailable(where: str, exc: SQLAlchemyError) -> NoReturn:
    raise _unavailable(where, exc) from exc


def _unavailable(where: str, exc: SQLAlchemyError) -> LakebedError:
    told = exc.orig if isinstance(exc, DBAPIError) else exc
    if is_full(told) or getattr(told, "sqlstate", None) == _DISK_FULL:
        return StorageFullError(f"no room is left on the disk of the Iceberg catalog {where}: free some and retry")
    lines = str(told).strip().splitlines()
    return RegistryUnavailableError(f"the Iceberg catalog {where} failed: {lines[0][:200] if lines else type(told).__name__}")
