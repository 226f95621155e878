"""The files behind rows of an older registry: where they are, whether they match their row, and which footer is right."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakebed.core.errors import CorruptionError, FileMissingError, FooterRowsError, LakebedError, NotAFileError, PathRefusedError
from lakebed.core.files import ChecksumKind, Footer, NewFile
from lakebed.core.partitions import join_event_ranges
from lakebed.legacy.plan import BAD_FOOTER, CHANGED_FILE, MISSING_FILE, OUTSIDE, ROWS_DIFFER, UNFIT, LegacyFinding, find
from lakebed.parquet.footer.framing import find_meta, normalize, read_tail
from lakebed.parquet.footer.upgrade import count_rows, upgrade_v1
from lakebed.parquet.foreign.sandbox import ForeignFile, inspect_isolated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.core.schema.schema import Schema
    from lakebed.legacy.plan import PlannedPartition
    from lakebed.legacy.source import LegacyFooter, LegacyPartition
    from lakebed.parquet.inspect import Inspection, StatisticsSpec
    from lakebed.storage.protocol import Storage

_OWN = "the file's own footer was used"


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """A row whose file exists; `path` is the file's present location."""

    planned: PlannedPartition
    path: str
    footer: Footer


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A partition ready to be published; without a file it is empty. `file.path` is still the file's present location."""

    planned: PlannedPartition
    file: NewFile | None
    event_range: tuple[int, int] | None


def locate(
    place: Storage, root: str, planned: PlannedPartition, stored: LegacyFooter | None, findings: list[LegacyFinding]
) -> Located | None:  # fmt: skip
    """The file and the footer to use for it; None, with a finding, if the row cannot be imported."""
    row = planned.row
    try:
        path = find_path(place, root, row.file_path or "")
        size = place.stat(path).size_bytes
    except PathRefusedError as exc:
        findings.append(find(OUTSIDE, row, f"{exc.reason}: move the file below the old lake's root"))
    except (FileMissingError, NotAFileError):
        findings.append(find(MISSING_FILE, row, "the file is missing: restore it, or retire the partition in the old lake"))
    else:
        if size == row.file_size:
            return _choose_footer(place, planned, path, stored, findings)
        findings.append(find(CHANGED_FILE, row, f"the file has {size} bytes, its row says {row.file_size}: find out which is right"))
    return None


def prepare(
    located: Sequence[Located], schema: Schema, spec: StatisticsSpec, *, has_event_time: bool, findings: list[LegacyFinding]
) -> list[Prepared]:
    """Statistics from the footers, parsed in the isolated worker; a file that cannot be read under `schema` becomes a finding."""
    answers = inspect_isolated([ForeignFile(path=one.path, tail=one.footer.tail) for one in located], schema, spec=spec)
    prepared: list[Prepared] = []
    for one, answer in zip(located, answers, strict=True):
        problem = _find_problem(one, answer, has_event_time=has_event_time)
        if problem is not None:
            findings.append(find(UNFIT, one.planned.row, problem))
        elif not isinstance(answer, LakebedError):
            prepared.append(_prepared(one, answer))
    return prepared


def find_path(place: Storage, root: str, path: str) -> str:
    """The location of a path of the old registry; a path that leaves the old lake's root is refused."""
    if not path or path.startswith("/") or "://" in path:
        raise PathRefusedError(path, reason="it is not a path below the old lake's root")
    return place.paths.canonical(f"{root}/{path}")


def _choose_footer(
    place: Storage, planned: PlannedPartition, path: str, stored: LegacyFooter | None, findings: list[LegacyFinding]
) -> Located | None:  # fmt: skip
    """The stored footer, if it matches the file's: one that differs from the file would mislead every reader."""
    row = planned.row
    try:
        own = read_tail(partial(place.read_range, path), row.file_size, path=path)
        footer, problem = _agree(own, stored, row)
    except FooterRowsError as exc:
        findings.append(find(ROWS_DIFFER, row, f"{exc}; find out which is right"))
    except (CorruptionError, LakebedError) as exc:
        findings.append(find(CHANGED_FILE, row, f"the file cannot be read: {exc}"))
    else:
        if problem is not None:
            findings.append(find(BAD_FOOTER, row, f"{problem}: {_OWN}", kept=True))
        return Located(planned=planned, path=path, footer=footer)
    return None


def _agree(own: bytes, stored: LegacyFooter | None, row: LegacyPartition) -> tuple[Footer, str | None]:
    """The footer to use, and what is wrong with the stored one. In both cases its row count must match the row."""
    if stored is None:
        return _own_footer(own, row), "the old registry has no footer for it"
    try:
        footer = _decode(stored, row)
    except FooterRowsError:
        raise
    except CorruptionError as exc:
        return _own_footer(own, row), f"the stored footer does not parse ({exc})"
    if footer.tail == own or footer.tail == upgrade_v1(own, registry_rows=row.num_rows).tail:
        return footer, None
    return _own_footer(own, row), "the stored footer differs from the file's"


def _decode(stored: LegacyFooter, row: LegacyPartition) -> Footer:
    """Upgrades version 1 to version 2: true row counts, no pointers to unusable page indexes."""
    if stored.format_version < 2:  # noqa: PLR2004 - the format of raw tails
        return upgrade_v1(stored.stored, registry_rows=row.num_rows)
    return _footer(normalize(stored.stored), row)


def _own_footer(own: bytes, row: LegacyPartition) -> Footer:
    """The file's footer, upgraded if it has no row count at file level."""
    if not count_rows(find_meta(own)).file_rows:
        return upgrade_v1(own, registry_rows=row.num_rows)
    return _footer(own, row)


def _footer(tail: bytes, row: LegacyPartition) -> Footer:
    counts = count_rows(find_meta(tail))
    for counted in (counts.row_group_rows, counts.file_rows):
        if counted != row.num_rows:
            raise FooterRowsError(footer_rows=counted or 0, registry_rows=row.num_rows)
    return Footer(tail=tail, num_rows=row.num_rows, checksum=hashlib.sha256(tail).hexdigest())


def _find_problem(one: Located, answer: Inspection | LakebedError, *, has_event_time: bool) -> str | None:
    if isinstance(answer, LakebedError):
        return str(answer)
    if answer.problems:
        return "; ".join(map(str, answer.problems))
    if has_event_time and one.planned.row.min_event is None and answer.event_range is None:
        return "neither the row nor the footer has its event times: import the view set without an event time"
    return None


def _prepared(one: Located, answer: Inspection) -> Prepared:
    row = one.planned.row
    file = NewFile(
        path=one.path,
        size_bytes=row.file_size,
        row_count=row.num_rows,
        checksum=one.footer.checksum,  # a hash of each file would read the whole lake
        checksum_kind=ChecksumKind.FOOTER,
        footer=one.footer,
        columns=answer.columns,
    )
    return Prepared(planned=one.planned, file=file, event_range=_event_range(row, answer))


def _event_range(row: LegacyPartition, answer: Inspection) -> tuple[int, int] | None:
    """The range of the row, widened by that of the footer: pruning must never miss a row."""
    registered = (row.min_event, row.max_event) if row.min_event is not None and row.max_event is not None else None
    return join_event_ranges([registered, answer.event_range])


def load_located(
    place: Storage,
    root: str,
    partitions: Sequence[PlannedPartition],
    footers: Mapping[str, LegacyFooter],
    findings: list[LegacyFinding],
) -> list[Located]:
    found = (locate(place, root, planned, footers.get(planned.row.file_path or ""), findings) for planned in partitions)
    return [one for one in found if one is not None]
