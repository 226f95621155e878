"""The environment of Spark's Python workers: Java, and so each worker, inherits what the session was started with."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

REGISTRY_VARIABLE, WAREHOUSE_VARIABLE = "LAKEBED_REGISTRY_URL", "LAKEBED_WAREHOUSE"  # users set them: never rename


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
