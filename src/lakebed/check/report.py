"""The result of a check: one finding per broken rule, and how much was checked."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lakebed.core.results import single_result

if TYPE_CHECKING:
    from collections.abc import Mapping


class Severity(StrEnum):
    """Shown in reports and matched on by programs: never rename."""

    DAMAGE = "damage"  # stored state contradicts itself, or files are not what was registered
    WARNING = "warning"  # nothing is lost, but action is needed
    INFO = "info"  # for information; nothing is wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken rule. `rule` is stable; the message is for people and ends with what to do.

    `facts` are the values that the message shows, for programs; `partition_id` is set where a partition is at fault.
    """

    rule: str
    severity: Severity
    table: str | None
    subject: str
    message: str
    facts: tuple[Any, ...] = ()
    partition_id: int | None = None


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """`checked` counts what each rule looked at; `omitted` the findings beyond the first thousand of a rule."""

    findings: tuple[Finding, ...]
    checked: Mapping[str, int]
    omitted: Mapping[str, int]
    seconds: float

    @property
    def clean(self) -> bool:
        return all(finding.severity is Severity.INFO for finding in self.findings)
