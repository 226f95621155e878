"""The table functions inside a Spark worker: the registry is named by the worker's environment, never by the query's plan.

A plan can be shown, logged and shipped; it holds the function's name and nothing else.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import InvalidValueError, RegistryRefusedError
from lakebed.pipeline.function_answers import answer, bind_arguments
from lakebed.registry.create import open_registry
from lakebed.storage.connect import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lakebed.registry.engine import Registry
    from lakebed.storage.access import Storage

REGISTRY_VARIABLE, WAREHOUSE_VARIABLE = "LAKEBED_REGISTRY_URL", "LAKEBED_WAREHOUSE"  # users set them: never rename
_opened: dict[tuple[int, str], Registry] = {}


def answer_arrays(name: str, positional: tuple[pa.Array, ...], named: dict[str, pa.Array]) -> pa.Table:
    """For Arrow functions: arguments arrive as arrays of one value."""
    given = bind_arguments(name, [_scalar(name, a) for a in positional], {key: _scalar(name, a) for key, a in named.items()})
    return answer(_registry(), _storage, name, given)


def answer_rows(name: str, arguments: tuple[list[Any], dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """For functions that are called row by row."""
    found = answer(_registry(), _storage, name, bind_arguments(name, *arguments))
    yield from zip(*(column.to_pylist() for column in found.columns), strict=True)


@contextmanager
def worker_environment(url: str, warehouse: str) -> Iterator[None]:
    """While a session starts: its Java process, and so its Python workers, inherit both variables; this process keeps its own."""
    before = {name: os.environ.get(name) for name in (REGISTRY_VARIABLE, WAREHOUSE_VARIABLE)}
    os.environ.update({REGISTRY_VARIABLE: url, WAREHOUSE_VARIABLE: warehouse})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def close_registries() -> None:
    """Close what this process opened; the next question opens it again."""
    for key in [key for key in _opened if key[0] == os.getpid()]:
        _opened.pop(key).close()


def _registry() -> Registry:
    """One per process and place: a forked worker must not use its parent's."""
    key = (os.getpid(), _variable(REGISTRY_VARIABLE))
    if key not in _opened:
        _opened[key] = open_registry(key[1])
    return _opened[key]


def _storage() -> Storage:
    return open_storage(_variable(WAREHOUSE_VARIABLE), create=False)


def _variable(name: str) -> str:
    if not (found := os.environ.get(name)):
        message = (
            f"{name} is not set in the environment of Spark's Python workers: set it before the session (or the Spark Connect server) "
            f"starts, or give spark.executorEnv.{name} when the session is built"
        )
        raise RegistryRefusedError(message)
    return found


def _scalar(name: str, array: pa.Array) -> Any:
    if len(array) != 1:
        message = f"{name} takes single values, not columns of {len(array)}"
        raise InvalidValueError(message)
    return array[0].as_py()
