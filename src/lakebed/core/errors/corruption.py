"""Stored state is damaged: stop and investigate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.errors.families import CorruptionError

if TYPE_CHECKING:
    from collections.abc import Sequence


class FooterCorruptError(CorruptionError):
    """A footer is not Parquet metadata, does not match its checksum, or points outside its file; then `row_group` and `column` say where."""

    code = "footer_corrupt"

    def __init__(self, message: str, *, row_group: int | None = None, column: str | None = None) -> None:
        super().__init__(message)
        self.row_group, self.column = row_group, column


class FooterRowsError(CorruptionError):
    """Row groups and registry (or the footer's own file level) disagree about the number of rows."""

    code = "footer_rows_disagree"

    def __init__(self, *, footer_rows: int, registry_rows: int, source: str = "the registry") -> None:
        super().__init__(f"the footer's row groups hold {footer_rows} rows, {source} says {registry_rows}: run `lakebed check`")
        self.footer_rows, self.registry_rows = footer_rows, registry_rows


class FileChangedError(CorruptionError):
    """A file is not what was registered."""

    code = "file_changed"

    def __init__(self, path: str, *, reason: str) -> None:
        super().__init__(f"{path!a} changed after it was written: {reason}")
        self.path, self.reason = path, reason


class FileDamagedError(CorruptionError):
    """Pages of a registered file cannot be decoded; `row_group` and `column` say which, where that is known."""

    code = "file_damaged"

    def __init__(self, path: str, *, reason: str, row_group: int | None = None, column: str | None = None) -> None:
        super().__init__(
            f"{path!a} cannot be decoded: {reason}; restore it from a backup, or retire its partition and write the rows again"
        )
        self.path, self.reason, self.row_group, self.column = path, reason, row_group, column


class JournalGapError(CorruptionError):
    """A journal number is missing: changes were lost, only a refresh can help."""

    code = "journal_gap"

    def __init__(self, table_id: int, *, expected: int, found: int) -> None:
        super().__init__(f"the journal of table {table_id} goes from {expected - 1} to {found}: refresh the component from the registry")
        self.table_id, self.expected, self.found = table_id, expected, found


class RegistryBehindError(CorruptionError):
    """The warehouse holds files of operations that this registry does not know: it was restored from an older backup."""

    code = "registry_behind"

    def __init__(self, warehouse: str, *, operations: int, example: str) -> None:
        super().__init__(
            f"{warehouse} holds files of {operations} operation(s) that this registry does not know, such as {example}: it was restored "
            "from an older backup, and nothing is swept until you decide; restore a newer backup, register the files that you need, "
            "or give them up with `lakebed repair --give-up-newer --execute`"
        )
        self.warehouse, self.operations, self.example = warehouse, operations, example


class RewriteMismatchError(CorruptionError):
    """Rewriting files gave another number of rows, or other rows, than they are registered with; nothing was swapped."""

    code = "rewrite_mismatch"

    def __init__(self, what: str, *, expected: int, found: int, other_rows: bool = False) -> None:
        gave = f"{found} rows that differ from the registered ones" if other_rows else f"{found} rows instead of {expected}"
        super().__init__(f"rewriting {what} gave {gave}; nothing was changed: run `lakebed check --deep`")
        self.what, self.expected, self.found = what, expected, found


class TriggersChangedError(CorruptionError):
    """The journal's triggers are not the ones this program generated."""

    code = "triggers_changed"

    def __init__(self, *, missing: tuple[str, ...], changed: tuple[str, ...]) -> None:
        super().__init__(
            f"the journal's triggers were altered (missing: {', '.join(missing) or 'none'}; changed: {', '.join(changed) or 'none'}): "
            "stop the writers and run `lakebed repair`; writes are refused until then",
        )
        self.missing, self.changed = missing, changed


class UndecodableChangeError(CorruptionError):
    """A journal image does not fit the row type."""

    code = "undecodable_change"


class ForeignCommitError(CorruptionError):
    """Another program changed a table's Iceberg metadata; commits to that table stop, inserts continue."""

    code = "foreign_commit"

    def __init__(self, table: str, *, snapshot_id: int | None, location: str, changed: Sequence[str] = ()) -> None:
        what = ", ".join(changed) or "metadata"
        at = "" if snapshot_id is None else f" at snapshot {snapshot_id}"
        super().__init__(
            f"{table}: another program changed the table's {what}{at} in {location}; Lakebed publishes no snapshot of this table until that is "
            f"settled, inserts go on and their rows are registered: {_foreign_remedy(table, changed)}"
        )
        self.table, self.snapshot_id, self.location, self.changed = table, snapshot_id, location, tuple(changed)


def _foreign_remedy(table: str, changed: Sequence[str]) -> str:
    if "format version" in changed:  # no table goes back to an earlier version
        return (
            f"`lakebed repair {table} --how rebuild --execute` recreates the Iceberg table from the registry, without its earlier snapshots"
        )
    discard = f"`lakebed repair {table} --how discard_foreign --execute` goes back to what Lakebed wrote"
    if tuple(changed) == ("main",):
        return f"`lakebed repair {table} --how adopt_foreign --execute` registers the files that it added, {discard}"
    return discard


class IcebergDriftError(CorruptionError):
    """A table's Iceberg history contradicts the registry."""

    code = "iceberg_drift"

    def __init__(self, table: str, *, problem: str) -> None:
        super().__init__(f"{table}: Iceberg and the registry disagree: {problem}; rebuild the Iceberg table from the registry")
        self.table, self.problem = table, problem
