"""Columns and constraints as the registry's tables declare them, on both databases."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, Text, text

_KEY = BigInteger().with_variant(Integer, "sqlite")  # only INTEGER is SQLite's rowid


def required_int(name: str, **options: Any) -> Column[int]:
    return Column(name, BigInteger, nullable=False, **options)


def nullable_int(name: str, **options: Any) -> Column[int]:
    return Column(name, BigInteger, nullable=True, **options)


def required_text(name: str, **options: Any) -> Column[str]:
    return Column(name, Text, nullable=False, **options)


def nullable_text(name: str) -> Column[str]:
    return Column(name, Text, nullable=True)


def key(name: str = "id", *, allocated: bool = True) -> Column[int]:
    return Column(name, _KEY, primary_key=True, autoincrement=not allocated)


def one_of(column: str, *values: str) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")


def where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}
