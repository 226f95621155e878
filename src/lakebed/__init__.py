"""Lakebed: a transactional catalog for the Parquet files that Spark writes.

`lakebed.connect` opens a lake. Every error, result and option type can be imported from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakebed.admin import (
        Alteration,
        CleanUp,
        Drop,
        Expiry,
        FileHistory,
        Forgotten,
        Retirement,
        Rollback,
        Sweep,
    )
    from lakebed.adopt import Adoption
    from lakebed.astha import AsthaOptions
    from lakebed.check import CheckReport
    from lakebed.compaction import CompactionResult
    from lakebed.components.compactor import CompactorOptions
    from lakebed.core.errors import (
        AdoptionRefusedError,
        AmbiguousPartitionError,
        AnotherCheckpointError,
        BackPressureError,
        ClockRegressedError,
        ClockSkewedError,
        CommitTimeoutError,
        ConflictError,
        CorruptionError,
        DefinitionRefusedError,
        FileChangedError,
        FileConflictError,
        FileDamagedError,
        FileMissingError,
        FooterCorruptError,
        FooterNotFoundError,
        FooterRowsError,
        ForeignCommitError,
        ForkedConnectionError,
        IcebergDriftError,
        InvalidNameError,
        InvalidRangeError,
        InvalidValueError,
        JournalGapError,
        LakebedError,
        LakeClosedError,
        LeaseHeldError,
        LeaseLostError,
        LimitExceededError,
        NotAFileError,
        NotAllowedError,
        NotIcebergReadyError,
        OperationConflictError,
        OperationNotFoundError,
        OutcomeUnknownError,
        PartitionConflictError,
        PartitionNotFoundError,
        PartitionStraddlesError,
        PathRefusedError,
        QueryRefusedError,
        ReadExpiredError,
        RefusedError,
        RegistryBehindError,
        RegistryLockedError,
        RegistryMissingError,
        RegistryNewerError,
        RegistryOlderError,
        RegistryReadOnlyError,
        RegistryRefusedError,
        RegistryUnavailableError,
        RewriteMismatchError,
        RollbackRefusedError,
        RunNotFoundError,
        SchemaChangedError,
        SchemaRefusedError,
        SessionRefusedError,
        SnapshotNotFoundError,
        SourceChangedError,
        SparkRefusedError,
        SparkUnavailableError,
        StorageFullError,
        StorageUnavailableError,
        SubscriptionRefusedError,
        TableExistsError,
        TableNotFoundError,
        TagNotFoundError,
        TooManyPartitionsError,
        TriggersChangedError,
        UnavailableError,
        UndecodableChangeError,
        UnreadableFileError,
        VictimsChangedError,
        WrongLakeError,
    )
    from lakebed.core.results import Rows
    from lakebed.core.schema.altering import AddColumn, DropColumn, MakeOptional, RenameColumn, WidenColumn
    from lakebed.core.schema.schema import Schema
    from lakebed.lake import Lake, connect
    from lakebed.legacy import LegacyImport
    from lakebed.pipeline.change.delete import DeleteResult
    from lakebed.pipeline.read.explain import Explanation
    from lakebed.pipeline.results import InsertResult
    from lakebed.pipeline.views.merge import MergeResult
    from lakebed.pipeline.views.plan import MaterializePlan, MaterializeResult
    from lakebed.registry.partitions.publish import Published
    from lakebed.registry.queries.plans import ColumnRange, Plan
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.tables.view_sets import ViewSet
    from lakebed.repair import RepairResult

__version__ = "0.1.0"
_ERRORS = "lakebed.core.errors"
_MODULES = {
    "lakebed.admin": ("Alteration", "CleanUp", "Drop", "Expiry", "FileHistory", "Forgotten", "Retirement", "Rollback", "Sweep"),
    "lakebed.adopt": ("Adoption",),
    "lakebed.astha": ("AsthaOptions",),
    "lakebed.check": ("CheckReport",),
    "lakebed.compaction": ("CompactionResult",),
    "lakebed.components.compactor": ("CompactorOptions",),
    "lakebed.core.results": ("Rows",),
    "lakebed.core.schema.altering": ("AddColumn", "DropColumn", "MakeOptional", "RenameColumn", "WidenColumn"),
    "lakebed.core.schema.schema": ("Schema",),
    "lakebed.lake": ("Lake", "connect"),
    "lakebed.legacy": ("LegacyImport",),
    "lakebed.pipeline.change.delete": ("DeleteResult",),
    "lakebed.pipeline.read.explain": ("Explanation",),
    "lakebed.pipeline.results": ("InsertResult",),
    "lakebed.pipeline.views.merge": ("MergeResult",),
    "lakebed.pipeline.views.plan": ("MaterializePlan", "MaterializeResult"),
    "lakebed.registry.partitions.publish": ("Published",),
    "lakebed.registry.queries.plans": ("ColumnRange", "Plan"),
    "lakebed.registry.tables.lake_tables": ("LakeTable",),
    "lakebed.registry.tables.view_sets": ("ViewSet",),
    "lakebed.repair": ("RepairResult",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = [
    "AddColumn",
    "Adoption",
    "AdoptionRefusedError",
    "Alteration",
    "AmbiguousPartitionError",
    "AnotherCheckpointError",
    "AsthaOptions",
    "BackPressureError",
    "CheckReport",
    "CleanUp",
    "ClockRegressedError",
    "ClockSkewedError",
    "ColumnRange",
    "CommitTimeoutError",
    "CompactionResult",
    "CompactorOptions",
    "ConflictError",
    "CorruptionError",
    "DefinitionRefusedError",
    "DeleteResult",
    "Drop",
    "DropColumn",
    "Expiry",
    "Explanation",
    "FileChangedError",
    "FileConflictError",
    "FileDamagedError",
    "FileHistory",
    "FileMissingError",
    "FooterCorruptError",
    "FooterNotFoundError",
    "FooterRowsError",
    "ForeignCommitError",
    "Forgotten",
    "ForkedConnectionError",
    "IcebergDriftError",
    "InsertResult",
    "InvalidNameError",
    "InvalidRangeError",
    "InvalidValueError",
    "JournalGapError",
    "Lake",
    "LakeClosedError",
    "LakeTable",
    "LakebedError",
    "LeaseHeldError",
    "LeaseLostError",
    "LegacyImport",
    "LimitExceededError",
    "MakeOptional",
    "MaterializePlan",
    "MaterializeResult",
    "MergeResult",
    "NotAFileError",
    "NotAllowedError",
    "NotIcebergReadyError",
    "OperationConflictError",
    "OperationNotFoundError",
    "OutcomeUnknownError",
    "PartitionConflictError",
    "PartitionNotFoundError",
    "PartitionStraddlesError",
    "PathRefusedError",
    "Plan",
    "Published",
    "QueryRefusedError",
    "ReadExpiredError",
    "RefusedError",
    "RegistryBehindError",
    "RegistryLockedError",
    "RegistryMissingError",
    "RegistryNewerError",
    "RegistryOlderError",
    "RegistryReadOnlyError",
    "RegistryRefusedError",
    "RegistryUnavailableError",
    "RenameColumn",
    "RepairResult",
    "Retirement",
    "RewriteMismatchError",
    "Rollback",
    "RollbackRefusedError",
    "Rows",
    "RunNotFoundError",
    "Schema",
    "SchemaChangedError",
    "SchemaRefusedError",
    "SessionRefusedError",
    "SnapshotNotFoundError",
    "SourceChangedError",
    "SparkRefusedError",
    "SparkUnavailableError",
    "StorageFullError",
    "StorageUnavailableError",
    "SubscriptionRefusedError",
    "Sweep",
    "TableExistsError",
    "TableNotFoundError",
    "TagNotFoundError",
    "TooManyPartitionsError",
    "TriggersChangedError",
    "UnavailableError",
    "UndecodableChangeError",
    "UnreadableFileError",
    "VictimsChangedError",
    "ViewSet",
    "WidenColumn",
    "WrongLakeError",
    "__version__",
    "connect",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for at its first use: the parser's worker and the command line start without the rest."""
    if name not in __all__:
        message = f"module 'lakebed' has no attribute {name!r}"
        raise AttributeError(message)
    found = globals()[name] = getattr(import_module(_HOMES.get(name, _ERRORS)), name)
    return found


def __dir__() -> list[str]:
    return __all__
