"""A lake to be hurt, and the list of all damages."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage

ORDERS_ID, DAILY_ID, OLD_ID, LINES_ID = 1, 2, 3, 4
BOTH = ("sqlite", "postgresql")


class Patient:
    """A lake to be hurt: raw SQL past the write door, raw bytes past the storage."""

    def __init__(self, registry: Registry, storage: Storage) -> None:
        self.storage, self.dialect = storage, registry.dialect
        self._connection = registry.backend.connect()
        self._catalog_url = registry.backend.catalog_url

    @property
    def is_sqlite(self) -> bool:
        return self.dialect == "sqlite"

    def run(self, sql: str, **params: Any) -> None:
        self._connection.run(sql, params or None)

    def one(self, sql: str, **params: Any) -> Any:
        return self._connection.query(sql, params or None)[0][0]

    def run_in_catalog(self, sql: str, **params: Any) -> None:
        if not self.is_sqlite:
            self.run(sql, **params)
            return
        with closing(sqlite3.connect(self._catalog_url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute(sql, params)

    def metadata_location(self) -> str:
        """Where the newest snapshot of the Iceberg table was committed."""
        return str(self.one("SELECT metadata_location FROM table_snapshots WHERE table_id = :t ORDER BY id DESC", t=LINES_ID))

    def live_path(self, table_id: int = ORDERS_ID) -> str:
        sql = "SELECT file_path FROM table_files WHERE table_id = :t AND retired_seq IS NULL AND file_type = 'parquet' ORDER BY id LIMIT 1"
        return str(self.one(sql, t=table_id))

    def retired_path(self) -> str:
        return str(self.one("SELECT file_path FROM table_files WHERE table_id = :t AND retired_seq IS NOT NULL", t=OLD_ID))

    @contextmanager
    def past_triggers(self, table: str) -> Iterator[None]:
        """Nothing is captured or refused inside; afterwards the triggers are as before."""
        if not self.is_sqlite:
            self.run(f"ALTER TABLE {table} DISABLE TRIGGER USER")
            yield
            self.run(f"ALTER TABLE {table} ENABLE TRIGGER USER")
            return
        sql = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = :table"
        found = self._connection.query(sql, {"table": table})
        for name, _ in found:
            self.run(f"DROP TRIGGER {name}")
        yield
        for _, ddl in found:
            self.run(ddl)

    def drop_check(self, table: str, constraint: str) -> None:
        self.run("PRAGMA ignore_check_constraints=ON" if self.is_sqlite else f"ALTER TABLE {table} DROP CONSTRAINT {constraint}")

    def drop_reference(self, table: str, constraint: str) -> None:
        self.run("PRAGMA foreign_keys=OFF" if self.is_sqlite else f"ALTER TABLE {table} DROP CONSTRAINT {constraint}")

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    name: str
    inflict: Callable[[Patient], None]
    rules: frozenset[str]
    also: dict[str, frozenset[str]]  # what one of the databases sees besides
    kinds: tuple[str, ...]
    deep: bool

    def expected(self, kind: str) -> set[str]:
        return set(self.rules | self.also.get(kind, frozenset()))


DAMAGES: list[Damage] = []


def found_by(
    *rules: str, sqlite: str | None = None, postgresql: str | None = None, kinds: tuple[str, ...] = BOTH, deep: bool = False
) -> Callable[[Callable[[Patient], None]], Callable[[Patient], None]]:
    def add(inflict: Callable[[Patient], None]) -> Callable[[Patient], None]:
        seen = {"sqlite": sqlite, "postgresql": postgresql}
        also = {kind: frozenset({rule}) for kind, rule in seen.items() if rule is not None}
        damage = Damage(name=inflict.__name__, inflict=inflict, rules=frozenset(rules), also=also, kinds=kinds, deep=deep)
        DAMAGES.append(damage)
        return inflict

    return add


def forget_journal(lake: Patient, table_id: int) -> None:
    """As a purge does: afterwards no replay can show what was changed."""
    lake.run("DELETE FROM change_log WHERE table_id = :t", t=table_id)
    lake.run("DELETE FROM subscriber_cursor WHERE table_id = :t", t=table_id)
    lake.run("UPDATE table_seq SET purged_seq = last_seq WHERE table_id = :t", t=table_id)
