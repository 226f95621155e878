"""The environment of Spark's Python workers: Java, and so each worker, inherits the variables that are set when the session starts."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

REGISTRY_VARIABLE, WAREHOUSE_VARIABLE = "LAKEBED_REGISTRY_URL", "LAKEBED_WAREHOUSE"  # users set them: never rename


@contextmanager
def worker_environment(url: str, warehouse: str) -> Iterator[None]:
    """Set both variables while a session starts, for its Java process and Python workers; then restore those of this process."""
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
