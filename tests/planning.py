"""Plans of a read, each in a snapshot of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebed.registry.queries.plans import read_plan

if TYPE_CHECKING:
    from lakebed.core.names import TableName
    from lakebed.registry.queries.plans import Plan
    from lakebed.registry.registry import Registry


def plan_files(registry: Registry, name: TableName, **asked: Any) -> Plan:
    with registry.read() as reader:
        return read_plan(reader, name, **asked)
