"""Small state of the registry under keys: `astha_state` for what changes at run time, `registry_facts` for its identity."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakebed.registry.backends.protocol import Connection, Queryable
    from lakebed.registry.transaction import Transaction

_FIND = "SELECT value FROM astha_state WHERE key = :key"
_LIST = "SELECT key, value FROM astha_state WHERE key LIKE :prefix"
_SET = """INSERT INTO astha_state (key, value, updated_at) VALUES (:key, :value, :now)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at"""
_FIND_FACT = "SELECT value FROM registry_facts WHERE key = :key"
_SET_FACT = "INSERT INTO registry_facts (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_ADD_FACT = "INSERT INTO registry_facts (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING"


def find_value(reader: Queryable, key: str) -> str | None:
    rows = reader.query(_FIND, {"key": key})
    return str(rows[0][0]) if rows else None


def find_value_since(reader: Queryable, key: str, since: int) -> str | None:
    """The value, if it was set after `since` (microseconds)."""
    rows = reader.query(f"{_FIND} AND updated_at > :since", {"key": key, "since": since})
    return str(rows[0][0]) if rows else None


def list_values(reader: Queryable, prefix: str) -> dict[str, str]:
    """Values by the rest of their keys."""
    return {key.removeprefix(prefix): value for key, value in reader.query(_LIST, {"prefix": f"{prefix}%"})}


def set_value(tx: Transaction, key: str, value: str) -> None:
    tx.run(_SET, {"key": key, "value": value, "now": tx.now})


def delete_value(tx: Transaction, key: str) -> bool:
    """Whether there was one."""
    return tx.run("DELETE FROM astha_state WHERE key = :key", {"key": key}) > 0


def find_fact(reader: Queryable, key: str) -> str | None:
    rows = reader.query(_FIND_FACT, {"key": key})
    return str(rows[0][0]) if rows else None


def read_facts(reader: Queryable) -> dict[str, str]:
    """What the registry records about itself: its id, and the id of the warehouse that it belongs to."""
    return dict(reader.query("SELECT key, value FROM registry_facts"))


def set_fact(writer: Transaction | Connection, key: str, value: str) -> None:
    writer.run(_SET_FACT, {"key": key, "value": value})


def add_fact(writer: Transaction | Connection, key: str, value: str) -> None:
    """Set it where it is not set yet; the first value stays."""
    writer.run(_ADD_FACT, {"key": key, "value": value})
