"""The table functions inside a Spark worker: the worker's environment names the registry, never the query's plan.

A plan can be shown, logged and sent elsewhere; it holds only the function's name and the id of the lake that registered it. Java
keeps the environment it was started with, which may name a different lake: then the worker refuses.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import InvalidValueError, LakebedError, RegistryRefusedError, WrongLakeError
from lakebed.pipeline.spark.environment import REGISTRY_VARIABLE, WAREHOUSE_VARIABLE
from lakebed.pipeline.sql.functions.answers import answer, bind_arguments
from lakebed.registry.key_values import read_facts
from lakebed.registry.open import open_registry
from lakebed.storage.open import open_storage, read_marker

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage

_opened: dict[tuple[int, str], Registry] = {}


def answer_arrays(lake_id: str, name: str, positional: tuple[pa.Array, ...], named: dict[str, pa.Array]) -> pa.Table:
    """For Arrow functions: arguments arrive as arrays of one value."""
    given = bind_arguments(name, [_scalar(name, a) for a in positional], {key: _scalar(name, a) for key, a in named.items()})
    return answer(_require_registry(lake_id), partial(_require_storage, lake_id), name, given)


def answer_rows(lake_id: str, name: str, arguments: tuple[list[Any], dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """For functions that are called row by row."""
    given = bind_arguments(name, *arguments)
    found = answer(_require_registry(lake_id), partial(_require_storage, lake_id), name, given)
    yield from zip(*(column.to_pylist() for column in found.columns), strict=True)


def find_obstacle(lake_id: str) -> str | None:
    """Why this worker cannot answer for the lake; None if it can."""
    try:
        _require_storage(lake_id)
    except LakebedError as exc:
        return str(exc)
    return None


def close_registries() -> None:
    """Close what this process opened; the next call opens it again."""
    for key in [key for key in _opened if key[0] == os.getpid()]:
        _opened.pop(key).close()


def _require_registry(lake_id: str) -> Registry:
    """The registry that the environment names, if it is the lake's."""
    url = _variable(REGISTRY_VARIABLE)
    if _id_of(_open(url)) != lake_id:
        close_registries()  # another file may have replaced the open one
    registry = _open(url)
    if _id_of(registry) != lake_id:
        raise WrongLakeError(f"the registry {registry.backend.shown_url}", lake_id=lake_id, advice=_advice(REGISTRY_VARIABLE))
    return registry


def _open(url: str) -> Registry:
    """One per process and URL: a forked worker must not use its parent's."""
    key = (os.getpid(), url)
    if key not in _opened:
        _opened[key] = open_registry(url, migrate=False, create=False)
    return _opened[key]


def _id_of(registry: Registry) -> str:
    return read_facts(registry)["registry_id"]


def _require_storage(lake_id: str) -> Storage:
    """The warehouse that the environment names, if it is the lake's: a registry knows the id of its own."""
    bound = read_facts(_require_registry(lake_id)).get("warehouse_id")
    storage = open_storage(_variable(WAREHOUSE_VARIABLE), create=False)
    if bound is not None and read_marker(storage).warehouse_id != bound:
        raise WrongLakeError(f"the warehouse {storage.paths.root}", lake_id=lake_id, advice=_advice(WAREHOUSE_VARIABLE))
    return storage


def _variable(name: str) -> str:
    if not (found := os.environ.get(name)):
        message = f"{name} is not set in the environment of Spark's Python workers: {_advice(name)}"
        raise RegistryRefusedError(message)
    return found


def _advice(name: str) -> str:
    return f"set {name} before the session (or the Spark Connect server) starts, or give spark.executorEnv.{name} when the session is built"


def _scalar(name: str, array: pa.Array) -> Any:
    if len(array) != 1:
        message = f"{name} takes single values, not columns of {len(array)}"
        raise InvalidValueError(message)
    return array[0].as_py()
