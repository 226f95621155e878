"""DataFrames over registered files: Spark's own reader on exactly these paths, the current names and types on top."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from lakebed.core.errors import FileChangedError, FileMissingError, PathRefusedError
from lakebed.core.schema.schema import RESERVED
from lakebed.pipeline.rows.types import select_current, to_spark_nullable
from lakebed.registry.queries.plans import list_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lakebed.core.schema.schema import Schema
    from lakebed.pipeline.context import Context
    from lakebed.storage.protocol import Storage

FILE = f"{RESERVED}file"
_PER_PATTERN = 200  # every text passed costs a round trip to the JVM, and the expansion of a pattern is quadratic in its names
_MEANS_SOMETHING = re.compile(r"([{}\[\]*?\\,])")  # in Hadoop's patterns
_LEAST_FOR_A_DIRECTORY = 2
_HIDDEN = ("_", ".")  # Spark ignores such names
# Directory names hold no columns here: the columns are in the files
_OPTIONS = {
    "parquet": {"recursiveFileLookup": "true", "mergeSchema": "false"},
    "json": {"recursiveFileLookup": "true", "mode": "FAILFAST", "timeZone": "UTC"},  # a malformed line is an error, not a row of NULLs
}


def frame_of(context: Context, schema: Schema, paths: Sequence[str]) -> DataFrame:
    """The rows of exactly these registered files, under the current names and types of `schema`.

    Nothing is inferred and no Spark job runs. The caller holds a lease, so that none of the files vanishes meanwhile.
    """
    physical = to_spark_nullable(schema, physical=True)
    if not paths:
        return select_current(_no_rows(context.spark, physical), schema)
    return select_current(_load_all(context, physical, paths), schema)


def frame_with_files(context: Context, schema: Schema, paths: Sequence[str]) -> DataFrame:
    """`frame_of`, with the location of each row's file in the column FILE."""
    loaded = _load_all(context, to_spark_nullable(schema, physical=True), paths, with_file=True)
    return select_current(loaded, schema, beside=[FILE])


def stored_rows(context: Context, schema: Schema, paths: Sequence[str]) -> DataFrame:
    """The rows of these files, which were written under exactly this schema: physical names; of JSON files too."""
    return _load_all(context, to_spark_nullable(schema, physical=True), paths)


def stored_frame(context: Context, schema: Schema, paths: Sequence[str]) -> DataFrame:
    """The rows of these Parquet files as they were written under exactly this schema: physical names."""
    return _load(context, to_spark_nullable(schema, physical=True), "parquet", paths)


def _no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    return spark.range(0).select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields))


def _by_kind(paths: Sequence[str], json: frozenset[str]) -> list[tuple[str, Sequence[str]]]:
    return [("parquet", [path for path in paths if path not in json] if json else paths), ("json", sorted(json))]


def _load_all(context: Context, schema: StructType, paths: Sequence[str], *, with_file: bool = False) -> DataFrame:
    json = list_json(context.registry, paths)
    parts = [_load(context, schema, kind, chosen) for kind, chosen in _by_kind(paths, json) if chosen]
    if with_file:
        parts = [part.select("*", F.col("_metadata.file_path").alias(FILE)) for part in parts]
    return reduce(lambda one, other: one.unionAll(other), parts)


def _load(context: Context, schema: StructType, kind: str, paths: Sequence[str]) -> DataFrame:
    """`schema` carries no field ids: Spark would look for columns by id once `fieldId.read.enabled` is set, and push filters by name."""
    given = spark_paths(context.storage, paths, is_remote=is_remote_session(context.spark))
    return context.spark.read.schema(schema).options(**_OPTIONS[kind]).load(given, format=kind)


def is_remote_session(spark: SparkSession) -> bool:
    """Whether it is Spark Connect, whose classes can only be imported if grpc is installed."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def spark_paths(storage: Storage, paths: Sequence[str], *, is_remote: bool = False) -> list[str]:
    """The paths for Spark's reader so that it lists exactly these files, in as few texts as possible.

    An operation's directory replaces its files if a listing agrees: no file is added to it once it is registered.
    A common parent never does, because another writer may be adding files. The others are passed as patterns that name each file.
    Spark Connect lists again for every action, when the lease may be over: there each file is named, and a missing one is an error.
    """
    directories, files = ([], list(paths)) if is_remote else _fold(storage, paths)
    _require_seen(files)
    if not storage.paths.warehouse.is_local:  # Spark looks up each file itself
        return [_as_s3a(_escape(path)) for path in [*directories, *files]]
    _require_present(storage, files)
    if any(":" in path for path in (storage.paths.root, *files)):  # Hadoop reads the text before it as a scheme
        return [_without_pattern(path) for path in [*directories, *files]]
    if is_remote:
        return [_escape(path) for path in files]
    return [_escape(path) for path in directories] + _patterns(files, alone=not directories)


def _fold(storage: Storage, paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Directories of operations, or leaf directories in them, whose files are all wanted; and the files of the others."""
    owned, loose = _group(paths, storage.paths.find_operation_directory)
    directories, parted = _take_whole(storage, owned)
    leaves, left = _take_whole(storage, _group(parted, lambda path: path.rpartition("/")[0])[0])
    return directories + leaves, loose + left


def _group(paths: Sequence[str], key: Callable[[str], str | None]) -> tuple[dict[str, list[str]], list[str]]:
    grouped: dict[str, list[str]] = defaultdict(list)
    loose: list[str] = []
    for path in paths:
        owner = key(path)
        (loose if owner is None else grouped[owner]).append(path)
    return grouped, loose


def _take_whole(storage: Storage, grouped: dict[str, list[str]]) -> tuple[list[str], list[str]]:
    whole = {directory for directory, members in grouped.items() if _is_whole(storage, directory, members)}
    return sorted(whole), [path for directory, members in grouped.items() if directory not in whole for path in members]


def _is_whole(storage: Storage, directory: str, members: Sequence[str]) -> bool:
    if len(members) < _LEAST_FOR_A_DIRECTORY:
        return False  # the file itself needs no listing
    if storage.paths.warehouse.is_local:
        return _list_local(directory) == set(members)
    return {facts.path for facts in storage.list_files(directory) if not _is_hidden(facts.path, directory)} == set(members)


def _list_local(directory: str) -> set[str]:
    """As Spark lists it, without sizes, in half the time of `Storage.list_files`. Empty if it cannot be listed."""
    found: set[str] = set()
    waiting = [directory]
    try:
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if not entry.name.startswith(_HIDDEN):
                        (waiting.append if entry.is_dir(follow_symlinks=False) else found.add)(entry.path)
    except OSError:
        return set()  # looking up the files one by one reports the error
    return found


def _is_hidden(path: str, directory: str) -> bool:
    return any(segment.startswith(_HIDDEN) for segment in path[len(directory) + 1 :].split("/"))


def _require_seen(files: Iterable[str]) -> None:
    for path in files:
        if path[path.rindex("/") + 1 :].startswith(_HIDDEN):
            raise PathRefusedError(path, reason="Spark ignores names that begin with _ or . : register the file under another name")


def _require_present(storage: Storage, files: Iterable[str]) -> None:
    """A pattern ignores a missing file, so its rows would be missing silently."""
    for path in files:
        if not os.path.exists(path):  # noqa: PTH110 - ten thousand Path objects take longer than the calls
            _raise_missing(storage, path)


def _raise_missing(storage: Storage, path: str) -> None:
    try:
        storage.stat(path)
    except FileMissingError as exc:
        raise FileChangedError(path, reason="it is registered but missing; run `lakebed check`") from exc


def _patterns(files: Sequence[str], *, alone: bool) -> list[str]:
    """`data/{op1/part-0.parquet,op2/part-0.parquet}`: with a slash between the braces every name is looked up, not matched.

    A pattern passed `alone` is split, because Spark first treats a single text as a directory and logs a warning.
    """
    grouped: dict[str, list[str]] = defaultdict(list)
    for path in files:
        above, directory, name = path.rsplit("/", 2)
        grouped[above].append(_escape(f"{directory}/{name}"))
    size = _PER_PATTERN if not alone or len(files) > _PER_PATTERN else -(-len(files) // 2) or 1
    return [pattern for above, names in grouped.items() for pattern in _chunks(_escape(above), names, size)]


def _chunks(above: str, names: Sequence[str], size: int) -> list[str]:
    chunks = [names[start : start + size] for start in range(0, len(names), size)]
    return [f"{above}/{chunk[0]}" if len(chunk) == 1 else f"{above}/{{{','.join(chunk)}}}" for chunk in chunks]


def _escape(path: str) -> str:
    return _MEANS_SOMETHING.sub(r"\\\1", path)


def _without_pattern(path: str) -> str:
    if _MEANS_SOMETHING.search(path):
        raise PathRefusedError(path, reason="Spark cannot read a path with a colon and one of {}[]*?, in it: move the warehouse")
    return path


def _as_s3a(path: str) -> str:
    """Stored paths say `s3://`; Hadoop's driver for it is called `s3a://`."""
    return f"s3a://{path.removeprefix('s3://')}"
