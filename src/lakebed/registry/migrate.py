"""Migrate an older registry, in steps that can be resumed after a kill at any point.

Alembic keeps the order and the version; each step manages its own transactions, because copying
footers in one would hold the registry for as long as it takes. Every step can run again.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, pool
from sqlalchemy.exc import DBAPIError

from lakebed.core.errors import RegistryMissingError, StorageFullError
from lakebed.core.redaction import hide_secrets
from lakebed.registry.backends import postgres_errors, sqlite_errors
from lakebed.registry.connect import open_backend, parse_url
from lakebed.registry.registry import Registry
from lakebed.registry.verify import HEAD, REVISIONS, find_revision, require_known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine


def list_pending(url: str) -> list[str]:
    """Revisions that `migrate_registry` would apply, in order; refused where there is no registry."""
    registry = Registry(open_backend(url))
    try:
        found = find_revision(registry)
        if found is None:
            raise RegistryMissingError(registry.backend.shown_url)
        require_known(found)
        return list(REVISIONS[REVISIONS.index(found) + 1 :])
    finally:
        registry.close()


def migrate_registry(url: str, *, to: str = HEAD, report: Callable[[str], None] | None = None) -> list[str]:
    """Apply what is pending, as the only migrating process; the revisions applied. A second run applies nothing.

    `report` is called with a sentence before and after each step that may take long.
    """
    pending = [revision for revision in list_pending(url) if revision <= to]
    if pending:
        with _migrating(url), _translated(url):
            upgrade(url, to, report=report)
    return pending


def upgrade(url: str, to: str, *, report: Callable[[str], None] | None = None) -> None:
    config = Config(attributes={"report": report})
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    script = ScriptDirectory.from_config(config)
    engine = _engine(url)
    try:
        with engine.connect() as connection, EnvironmentContext(config, script, fn=lambda rev, _: script._upgrade_revs(to, rev)) as env:  # noqa: SLF001 - what Alembic's own command calls
            env.configure(connection=connection, transactional_ddl=False)
            env.run_migrations()
    finally:
        engine.dispose()


@contextmanager
def _migrating(url: str) -> Iterator[None]:
    backend = open_backend(url)
    try:
        with backend.migrating():
            yield
    finally:
        backend.close()


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """The registry's own errors: what was done stays, and the next run continues from there."""
    try:
        yield
    except DBAPIError as exc:
        _translate(exc, hide_secrets(url))
        raise


def _translate(exc: DBAPIError, where: str) -> None:
    try:
        if isinstance(exc.orig, sqlite3.Error):
            sqlite_errors.translate(exc.orig, where)
        if isinstance(exc.orig, psycopg.Error):
            postgres_errors.translate(exc.orig, where)
    except StorageFullError as full:
        message = (
            f"no room is left on the disk of {where}: free some and run `lakebed migrate` again, which continues where this run stopped"
        )
        raise StorageFullError(message) from full


def _engine(url: str) -> Engine:
    where = parse_url(url)
    if isinstance(where, Path):
        # autocommit: every transaction of a migration is explicit
        return create_engine(f"sqlite:///{where}", connect_args={"isolation_level": None, "timeout": 30}, poolclass=pool.NullPool)
    _, _, rest = where.partition("://")
    return create_engine(f"postgresql+psycopg://{rest}", isolation_level="AUTOCOMMIT", poolclass=pool.NullPool)
