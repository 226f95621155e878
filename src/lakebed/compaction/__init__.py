"""Merging small files into larger ones."""

from lakebed.compaction.compact import CompactionResult, Control, compact
from lakebed.compaction.damage import DamagedFile
from lakebed.compaction.engines import Engine, Engines, LocalEngine, RewriteRequest, Rewriting
from lakebed.compaction.plan import CompactionOptions, CompactionPlan, RunPlan, plan_compaction
from lakebed.compaction.swap import SwappedRun, swap

__all__ = [
    "CompactionOptions",
    "CompactionPlan",
    "CompactionResult",
    "Control",
    "DamagedFile",
    "Engine",
    "Engines",
    "LocalEngine",
    "RewriteRequest",
    "Rewriting",
    "RunPlan",
    "SwappedRun",
    "compact",
    "plan_compaction",
    "swap",
]
