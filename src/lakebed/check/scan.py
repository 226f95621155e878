"""The definition of a rule, and the access that it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lakebed.check.report import Finding, Severity
from lakebed.core.times import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lakebed.storage.protocol import Storage

    Row = tuple[Any, ...]
    Query = Callable[[str, Mapping[str, Any] | None], list[Row]]

PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of the lake. The name is what programs match on: never rename one."""

    name: str
    severity: Severity = Severity.DAMAGE

    def broken(
        self, table: str | None, subject: str, message: str, *, facts: Sequence[Any] = (), partition_id: int | None = None
    ) -> Finding:
        return Finding(
            rule=self.name, severity=self.severity, table=table, subject=subject, message=message,
            facts=tuple(facts), partition_id=partition_id,
        )  # fmt: skip


class Progress:
    """Counts what was looked at; the callback gets (done, total), never decreasing."""

    def __init__(self, total: int, callback: Callable[[int, int], None] | None) -> None:
        self.done, self.seen, self.total, self._callback = 0, 0, total, callback

    def step(self, count: int) -> None:
        self.seen += count
        self.move_to(self.done + count)

    def move_to(self, done: int) -> None:
        self.done = min(max(self.done, done), self.total)
        if self._callback is not None:
            self._callback(self.done, self.total)


@dataclass(slots=True, kw_only=True)
class Scan:
    """One check under way. `query` sees one snapshot in the short passes and the present in the long ones."""

    query: Query
    open_snapshot: Callable[[], AbstractContextManager[Query]]
    storage: Storage | None
    deep: bool
    dialect: Literal["sqlite", "postgresql"]
    now: int
    names: dict[int, str]
    progress: Progress
    decodes_pages: bool = False
    catalog_url: str = ""  # on SQLite the Iceberg catalog is a file of its own

    def require_storage(self) -> Storage:
        if self.storage is None:
            raise AssertionError  # pragma: no cover - passes over the warehouse run only with one
        return self.storage

    def name(self, table_id: int | None) -> str | None:
        return None if table_id is None else self.names.get(table_id, f"table {table_id}")

    def pages(self, sql: str, *, after: int | str, size: int = PAGE, params: Mapping[str, Any] | None = None) -> Iterator[list[Row]]:
        """Rows in pages, by the rising key in their first column; the statement says `> :after ... LIMIT :size`."""
        while page := self.query(sql, {**(params or {}), "after": after, "size": size}):
            yield page
            after = page[-1][0]
            self.progress.step(len(page))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One walk over the rows of `over`, which may prove several rules at once."""

    rules: tuple[Rule, ...]
    over: str
    find: Callable[[Scan], Iterator[Finding]]


def list_rows(rule: Rule, *, over: str, sql: str, message: str) -> Pass:
    """Every row of the statement breaks the rule: the lake table's id, the subject, then what the message shows."""

    def find(scan: Scan) -> Iterator[Finding]:
        for table_id, subject, *shown in scan.query(sql, None):
            yield rule.broken(scan.name(table_id), str(subject), message.format(*shown), facts=shown)

    return Pass(rules=(rule,), over=over, find=find)


def list_slices(rule: Rule, *, sql: str, message: str) -> Pass:
    """As `list_rows`, for partitions: id, table id, instance, begin and end come first."""

    def find(scan: Scan) -> Iterator[Finding]:
        for partition_id, table_id, instance, begin, end, *shown in scan.query(sql, None):
            subject, text = show_slice(instance, begin, end), message.format(*shown)
            yield rule.broken(scan.name(table_id), subject, text, facts=shown, partition_id=partition_id)

    return Pass(rules=(rule,), over="partitions", find=find)


def show_slice(instance: str, begin: int, end: int) -> str:
    return f"{instance} [{show(begin)}, {show(end)})"


def in_batches(items: Iterator[Any], size: int) -> Iterator[Sequence[Any]]:
    batch: list[Any] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
