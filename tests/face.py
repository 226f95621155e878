"""The public calls of a lake, by the names under which a user writes them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from lakebed.lake import Lake, connect

if TYPE_CHECKING:
    from collections.abc import Callable

GROUPS = ("administrators", "columns", "files", "partitions", "snapshots", "tables", "views")


def list_calls() -> dict[str, Callable[..., Any]]:
    """`insert`, `columns.add`, ..., and `connect`."""
    found = {name: call for name, call in inspect.getmembers(Lake, inspect.isfunction) if not name.startswith("_")}
    for noun in GROUPS:
        found |= {
            f"{noun}.{name}": call for name, call in inspect.getmembers(group_of(noun), inspect.isfunction) if not name.startswith("_")
        }
    return found | {"connect": connect}


def group_of(noun: str) -> type:
    group: type = inspect.get_annotations(getattr(Lake, noun).fget, eval_str=True)["return"]
    return group
