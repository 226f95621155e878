"""`lakebed check`: an independent proof of what the registry promises. It shares no code with the writers."""

from lakebed.check.report import CheckReport, Finding, Severity
from lakebed.check.run import RULES, check
from lakebed.check.scan import Rule

__all__ = ["RULES", "CheckReport", "Finding", "Rule", "Severity", "check"]
