"""Every error Lakebed raises: one root, four families, stable codes.

    LakebedError
    ├── RefusedError       fix the request; nothing was changed
    ├── ConflictError      somebody else was first: read again, then retry
    ├── UnavailableError   nothing is wrong with the request: try later
    └── CorruptionError    stop and tell a person

A code is what programs match on: never rename one.
"""

from lakebed.core.errors.conflict import (
    FileConflictError,
    LeaseHeldError,
    LeaseLostError,
    OperationConflictError,
    PartitionConflictError,
    VictimsChangedError,
)
from lakebed.core.errors.corruption import (
    FileChangedError,
    FooterCorruptError,
    FooterRowsError,
    JournalGapError,
    TriggersChangedError,
    UndecodableChangeError,
)
from lakebed.core.errors.families import ConflictError, CorruptionError, LakebedError, RefusedError, UnavailableError
from lakebed.core.errors.refused import (
    AmbiguousPartitionError,
    ClockRegressedError,
    FileMissingError,
    FooterNotFoundError,
    ForkedConnectionError,
    InvalidNameError,
    InvalidRangeError,
    InvalidValueError,
    LimitExceededError,
    NotAFileError,
    NotIcebergReadyError,
    OperationNotFoundError,
    PartitionNotFoundError,
    PathRefusedError,
    RegistryNewerError,
    RegistryOlderError,
    RegistryReadOnlyError,
    RegistryRefusedError,
    RunNotFoundError,
    SchemaRefusedError,
    TableExistsError,
    TableNotFoundError,
    UnreadableFileError,
)
from lakebed.core.errors.unavailable import (
    OutcomeUnknownError,
    ReadExpiredError,
    RegistryLockedError,
    RegistryUnavailableError,
    StorageFullError,
    StorageUnavailableError,
)

__all__ = [
    "AmbiguousPartitionError",
    "ClockRegressedError",
    "ConflictError",
    "CorruptionError",
    "FileChangedError",
    "FileConflictError",
    "FileMissingError",
    "FooterCorruptError",
    "FooterNotFoundError",
    "FooterRowsError",
    "ForkedConnectionError",
    "InvalidNameError",
    "InvalidRangeError",
    "InvalidValueError",
    "JournalGapError",
    "LakebedError",
    "LeaseHeldError",
    "LeaseLostError",
    "LimitExceededError",
    "NotAFileError",
    "NotIcebergReadyError",
    "OperationConflictError",
    "OperationNotFoundError",
    "OutcomeUnknownError",
    "PartitionConflictError",
    "PartitionNotFoundError",
    "PathRefusedError",
    "ReadExpiredError",
    "RefusedError",
    "RegistryLockedError",
    "RegistryNewerError",
    "RegistryOlderError",
    "RegistryReadOnlyError",
    "RegistryRefusedError",
    "RegistryUnavailableError",
    "RunNotFoundError",
    "SchemaRefusedError",
    "StorageFullError",
    "StorageUnavailableError",
    "TableExistsError",
    "TableNotFoundError",
    "TriggersChangedError",
    "UnavailableError",
    "UndecodableChangeError",
    "UnreadableFileError",
    "VictimsChangedError",
]
