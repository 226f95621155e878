"""Plans how each file of a directory is adopted. Nothing is changed here; foreign footers are parsed in the isolated worker."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from lakebed.adopt.hive_paths import parse_value, read_path
from lakebed.adopt.places import open_place
from lakebed.adopt.results import COPY, EMPTY, IN_PLACE, KNOWN, LINK, REFUSED, REWRITE, TAKEN, AdoptedFile
from lakebed.adopt.schemas import IGNORE, Columns, ids_disagree, merge_columns
from lakebed.adopt.walk import walk_directory
from lakebed.core.errors import InvalidValueError, LakebedError, SchemaRefusedError
from lakebed.core.files import Verify
from lakebed.core.schema.evolution import evolve
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.transforms import parse_transform
from lakebed.core.schema.types import Primitive
from lakebed.parquet.footer.framing import read_tail
from lakebed.parquet.foreign.infer import Discovered, Discovery
from lakebed.parquet.foreign.preflight import check_files
from lakebed.parquet.foreign.sandbox import ForeignFile
from lakebed.registry.files.adoption import SourceStamp, list_adopted
from lakebed.registry.files.known_paths import list_unknown
from lakebed.registry.tables.lake_tables import find_table
from lakebed.registry.tables.versions import list_versions
from lakebed.storage.intake import can_link
from lakebed.storage.partition_paths import decode_partition_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakebed.adopt.hive_paths import PathValue
    from lakebed.adopt.results import AdoptRequest
    from lakebed.adopt.schemas import Merged
    from lakebed.adopt.walk import FoundFile, Walk
    from lakebed.core.names import TableName
    from lakebed.parquet.foreign.preflight import FileVerdict
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.storage.protocol import Storage

T = TypeVar("T")

_BATCH = 2000  # files per worker process; starting one costs as much as a hundred files
_BATCH_BYTES = 64 << 20  # of footers in memory
_ALWAYS_REWRITTEN = frozenset({"path_only_column"})
_REWRITABLE = _ALWAYS_REWRITTEN | {"int96", "schema", "missing_field_id", "missing_statistics", "field_ids"}
_OFFER = "or have it rewritten (rewrite)"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStep:
    """One file and how it is adopted; `constants` are the values of its path by physical name."""

    file: FoundFile
    how: str
    row_count: int = 0
    reason: str = ""
    partition_path: str | None = None
    constants: Mapping[str, PathValue] = field(default_factory=dict)

    @property
    def is_taken(self) -> bool:
        return self.how in TAKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table as it is or will be created. Without a schema there is neither a table nor a file to derive one from."""

    table: LakeTable | None
    schema: Schema | None
    partition_by: tuple[str, ...] = ()
    event_time: str | None = None
    differences: tuple[str, ...] = ()
    obstacles: Mapping[Schema, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionPlan:
    walk: Walk
    target: Target
    steps: tuple[FileStep, ...]

    def list_files(self) -> Iterator[AdoptedFile]:
        yield from map(describe_step, self.steps)
        for place in self.walk.refused:
            yield AdoptedFile(path=place.path, how=REFUSED, row_count=0, file_size=0, partition_path=None, reason=place.reason)


def describe_step(step: FileStep) -> AdoptedFile:
    return AdoptedFile(
        path=step.file.path,
        how=step.how,
        row_count=step.row_count,
        file_size=step.file.size_bytes,
        partition_path=step.partition_path,
        reason=step.reason,
    )


def source_key(path: str) -> str:
    """The key of a source: its whole path, independent of the directory that was adopted."""
    return hashlib.sha256(path.encode()).hexdigest()[:32]


def plan_adoption(registry: Registry, storage: Storage, name: TableName, directory: str, request: AdoptRequest) -> AdoptionPlan:
    """Files already adopted are recognized by path, size and modification time."""
    table = _find_plain(registry, name)
    walk = walk_directory(storage, directory)
    source = open_place(storage, walk.root)
    surveyed = [*_survey(source, walk.files, _known(registry, storage, table, walk.files))]
    fresh = [item for item in surveyed if isinstance(item, _Surveyed)]
    target = _find_target(registry, name, table, fresh, request)
    judged = iter(_judge(storage, source, fresh, target, request))
    steps = tuple(next(judged) if isinstance(item, _Surveyed) else item for item in surveyed)
    return AdoptionPlan(walk=walk, target=target, steps=steps)


# -- what is known already --------------------------------------------------------------------


def _find_plain(registry: Registry, name: TableName) -> LakeTable | None:
    table = find_table(registry, name)
    if table is not None and table.row.kind != "table":
        message = f"{name} is a view set, which is filled only by its definition: adopt into a plain table"
        raise InvalidValueError(message)
    return table


def _known(registry: Registry, storage: Storage, table: LakeTable | None, files: Sequence[FoundFile]) -> dict[str, FileStep]:
    """Steps for files that are registered, queued, being written or already adopted."""
    inside = [file.path for file in files if storage.paths.holds(file.path)]
    unknown = {path for batch in _batches(inside, 1000) for path in list_unknown(registry, batch)}
    adopted = list_adopted(registry, table.table_id) if table is not None else {}
    steps: dict[str, FileStep] = {}
    for file in files:
        before = adopted.get(source_key(file.path))
        if before is not None and before != SourceStamp(size_bytes=file.size_bytes, modified_ns=file.modified_ns):
            reason = "it changed since it was adopted: retire those rows and give the new file another name"
            steps[file.path] = FileStep(file=file, how=REFUSED, reason=reason)
        elif before is not None or (storage.paths.holds(file.path) and file.path not in unknown):
            steps[file.path] = FileStep(file=file, how=KNOWN)
    return steps


# -- what the footers say ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Surveyed:
    file: FoundFile
    found: Discovered
    path: Mapping[str, str | None]
    tail_bytes: int

    @property
    def columns(self) -> Columns:
        return Columns(schema=self.found.schema, has_ids=self.found.ids != "none", path=self.path)


def _survey(source: Storage, files: Sequence[FoundFile], known: Mapping[str, FileStep]) -> Iterator[_Surveyed | FileStep]:
    """Tails are kept in memory for one batch only: a lake of many files has gigabytes of them."""
    discovery = Discovery()
    looked = ((file, known.get(file.path) or _look(source, file)) for file in files)
    for batch in _batches(looked, _BATCH, weigh=lambda pair: len(pair[1].tail) if isinstance(pair[1], ForeignFile) else 0):
        answers = iter(discovery.discover([item for _, item in batch if isinstance(item, ForeignFile)]))
        for file, item in batch:
            yield item if isinstance(item, FileStep) else _settle(file, next(answers), tail_bytes=len(item.tail))


def _look(source: Storage, file: FoundFile) -> ForeignFile | FileStep:
    try:
        tail = read_tail(partial(source.read_range, file.path), file.size_bytes, path=file.path)
    except LakebedError as exc:
        return FileStep(file=file, how=REFUSED, reason=str(exc))
    return ForeignFile(path=file.path, tail=tail, size_bytes=file.size_bytes)


def _settle(file: FoundFile, answer: Discovered | LakebedError, *, tail_bytes: int) -> _Surveyed | FileStep:
    if isinstance(answer, LakebedError):
        return FileStep(file=file, how=REFUSED, reason=str(answer))
    if not answer.rows:
        return FileStep(file=file, how=EMPTY, reason="it has no rows")
    try:
        return _Surveyed(file=file, found=answer, path=read_path(file.relative), tail_bytes=tail_bytes)
    except InvalidValueError as exc:
        return FileStep(file=file, how=REFUSED, reason=str(exc), row_count=answer.rows)


# -- the table --------------------------------------------------------------------------------


def _find_target(registry: Registry, name: TableName, table: LakeTable | None, files: Sequence[_Surveyed], request: AdoptRequest) -> Target:
    types = request.path_types or {}
    if table is not None:
        return _existing(registry, table, files, request, types)
    if not files:
        return Target(table=None, schema=None)
    merged = merge_columns(str(name), [file.columns for file in files], types=types)
    if request.event_time is not None:
        merged.schema.require(request.event_time)
    return Target(
        table=None,
        schema=merged.schema,
        partition_by=_partition_by(merged, request),
        event_time=request.event_time,
        differences=merged.differences,
        obstacles=merged.obstacles,
    )


def _partition_by(merged: Merged, request: AdoptRequest) -> tuple[str, ...]:
    if request.partition_by is not None:
        for text in request.partition_by:
            merged.schema.require(parse_transform(text).column)
        return tuple(request.partition_by)
    floats = {f.name for f in merged.schema.fields if not isinstance(f.type, Primitive) or f.type.name in {"float", "double"}}
    return tuple(name for name in merged.path_columns if name not in floats)


def _existing(registry: Registry, table: LakeTable, files: Sequence[_Surveyed], request: AdoptRequest, types: Mapping[str, str]) -> Target:
    """The properties of an existing table are fixed; a request that differs is refused."""
    partition_by = table.partition_by
    event_field = table.schema.by_id.get(table.row.event_time_field or 0)
    event_time = event_field.name if event_field is not None else None
    if request.partition_by is not None and tuple(request.partition_by) != partition_by:
        message = f"{table.name} is partitioned by {', '.join(partition_by) or 'nothing'}, which cannot change: leave partition_by out"
        raise InvalidValueError(message)
    if request.event_time not in {None, event_time}:
        message = f"the event time of {table.name} is {event_time or 'not set'}, which cannot change: leave event_time out"
        raise InvalidValueError(message)
    schema, obstacles = table.schema, dict[Schema, str]()
    differences: tuple[str, ...] = ()
    if request.evolve and files:
        merged = merge_columns(str(table.name), [file.columns for file in files], types=types)
        schema, obstacles, differences = _grow(registry, table, merged), merged.obstacles, merged.differences
    return Target(
        table=table, schema=schema, partition_by=partition_by, event_time=event_time, differences=differences, obstacles=obstacles
    )  # fmt: skip


def _grow(registry: Registry, table: LakeTable, merged: Merged) -> Schema:
    with registry.read() as reader:
        history = [Schema.from_json(version.schema) for version in list_versions(reader, table.table_id)]
    return evolve(str(table.name), table.schema, merged.schema, history=history)


# -- verdicts ---------------------------------------------------------------------------------


def _judge(
    storage: Storage, source: Storage, files: Sequence[_Surveyed], target: Target, request: AdoptRequest
) -> Iterator[FileStep]:  # fmt: skip
    for batch in _batches(files, _BATCH, weigh=lambda item: item.tail_bytes):
        verdicts = _check(storage, source, batch, target, Verify.parse(request.verify))
        for item in batch:
            yield _decide(storage, item, verdicts[item.file.path], target, request)


def _check(storage: Storage, source: Storage, batch: Sequence[_Surveyed], target: Target, verify: Verify) -> dict[str, FileVerdict]:
    """Partition values of files in the warehouse come from their path in it, those of others from their path in the directory."""
    assert target.schema is not None  # noqa: S101 - there are files
    event_time = target.schema.require(target.event_time).field_id if target.event_time else None
    verdicts: dict[str, FileVerdict] = {}
    for place, is_inside in ((storage, True), (source, False)):
        paths = [item.file.path for item in batch if storage.paths.holds(item.file.path) == is_inside]
        if paths:
            found = check_files(place, paths, target.schema, target.partition_by, event_time=event_time, adopt=True, verify=verify)
            verdicts.update(zip(paths, found, strict=True))
    return verdicts


def _decide(storage: Storage, item: _Surveyed, verdict: FileVerdict, target: Target, request: AdoptRequest) -> FileStep:
    step = FileStep(file=item.file, how=REFUSED, row_count=item.found.rows, partition_path=verdict.partition_path)
    assert target.schema is not None  # noqa: S101
    try:
        constants = _constants(item, target.schema, request)
    except LakebedError as exc:
        return replace(step, reason=str(exc))
    if (obstacle := target.obstacles.get(item.found.schema)) is not None:
        return replace(step, reason=obstacle)
    problems = [(problem.kind, str(problem), problem.column) for problem in verdict.problems]
    problems += [*_own_problems(item, target, constants), *_contradictions(item, verdict, target, request)]
    lost = {kind for kind, _, column in problems if kind == "path_only_column" and _physical(target.schema, column) not in constants}
    kinds, reasons = (
        {kind for kind, _, _ in problems} | {f"{kind} without a value" for kind in lost},
        "; ".join(text for _, text, _ in problems),
    )
    if not problems and not constants:
        return replace(step, how=_transfer(storage, item.file, request))
    if kinds <= (_REWRITABLE if request.rewrite else _ALWAYS_REWRITTEN):
        return replace(step, how=REWRITE, reason=reasons, constants=constants, partition_path=None)
    return replace(step, reason=f"{reasons}; {_OFFER}" if kinds <= _REWRITABLE else reasons)


def _physical(schema: Schema, name: str | None) -> str | None:
    column = schema.find(name or "")
    return column.physical_name if column is not None else None


def _own_problems(item: _Surveyed, target: Target, constants: Mapping[str, PathValue]) -> Iterator[tuple[str, str, str | None]]:
    """Problems that only the whole directory shows: ids that mean other columns, and a missing event time."""
    assert target.schema is not None  # noqa: S101
    if item.found.ids == "some":
        yield "field_ids", "only some of its columns have a field id: write it again with all or none", None
    elif item.found.ids == "all" and (disagreement := ids_disagree(item.found.schema, target.schema)) is not None:
        yield "field_ids", f"{disagreement}: write it again without field ids", None
    known = {f.physical_name.lower() for f in target.schema.fields}
    for column in item.found.schema.fields:
        if column.name.lower() not in known:
            yield "unknown_column", f"column {column.name!a} is not in the table: allow new columns (evolve)", None
    if target.event_time is not None:
        event = target.schema.require(target.event_time)
        if event.physical_name not in constants and all(f.name != event.physical_name for f in item.found.schema.fields):
            yield "no_event_time", f"it lacks the event time {target.event_time!a}: write the column into the file", None


def _contradictions(item: _Surveyed, verdict: FileVerdict, target: Target, request: AdoptRequest) -> Iterator[tuple[str, str, str | None]]:
    """A column that is in both path and file must have one value; otherwise readers of the path and of the file would disagree."""
    assert target.schema is not None  # noqa: S101
    inside = dict(decode_partition_path(verdict.partition_path or ""))
    for name, text in item.path.items():
        column = target.schema.find(name)
        if column is None or name not in inside or (request.path_types or {}).get(name) == IGNORE:
            continue
        if isinstance(column.type, Primitive) and _differ(text, inside[name], column.type, column=name):
            message = f"the path has {name}={text!a}, the rows have {inside[name]!a}: move the file, or ignore the path (path_types)"
            yield "path_disagrees", message, name


def _differ(left: str | None, right: str | None, kind: Primitive, *, column: str) -> bool:
    try:
        return parse_value(left, kind, column=column) != parse_value(right, kind, column=column)
    except InvalidValueError:
        return left != right


def _constants(item: _Surveyed, schema: Schema, request: AdoptRequest) -> dict[str, PathValue]:
    """Values of the path for columns that the file itself lacks."""
    inside = {f.name.lower() for f in item.found.schema.fields}
    values: dict[str, PathValue] = {}
    for name, text in item.path.items():
        if (request.path_types or {}).get(name) == IGNORE or name.lower() in inside:
            continue
        column = schema.find(name) or next((f for f in schema.fields if f.physical_name == name), None)
        if column is None:
            message = f"the path names the column {name!a}, which the table lacks: add it (evolve), or ignore it (path_types)"
            raise SchemaRefusedError(message)
        if not isinstance(column.type, Primitive):
            message = f"the path names the column {name!a}, which is nested in the table: move the file"
            raise SchemaRefusedError(message)
        values[column.physical_name] = parse_value(text, column.type, column=name)
    return values


def _transfer(storage: Storage, file: FoundFile, request: AdoptRequest) -> str:
    if storage.paths.holds(file.path):
        return IN_PLACE
    return LINK if not request.copy and file.device is not None and can_link(storage, file.device) else COPY


def _batches(items: Iterable[T], size: int, *, weigh: Callable[[T], int] = lambda _: 0) -> Iterator[list[T]]:
    """Batches of at most `size` files, fewer where their weight requires it."""
    batch: list[T] = []
    weight = 0
    for item in items:
        batch.append(item)
        weight += weigh(item)
        if len(batch) >= size or weight >= _BATCH_BYTES:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch
