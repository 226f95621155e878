"""`lakebed repair`: plans repairs from the findings of the check and applies them. Nothing here invents data."""

from lakebed.iceberg.repair import Repair
from lakebed.repair.remedies import Allowed, Left, Remedy, RepairPlan, RepairStep, plan_repairs
from lakebed.repair.run import RepairOptions, RepairResult, StepOutcome, repair

__all__ = [
    "Allowed",
    "Left",
    "Remedy",
    "Repair",
    "RepairOptions",
    "RepairPlan",
    "RepairResult",
    "RepairStep",
    "StepOutcome",
    "plan_repairs",
    "repair",
]
