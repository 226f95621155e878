from lakebed.adopt.directory import adopt
from lakebed.adopt.results import AdoptedFile, Adoption, AdoptOptions, AdoptRequest
from lakebed.legacy.importer import import_legacy
from lakebed.legacy.plan import LegacyFinding
from lakebed.legacy.results import ImportedViewSet, ImportOptions, ImportRequest, LegacyImport

__all__ = [
    "AdoptOptions",
    "AdoptRequest",
    "AdoptedFile",
    "Adoption",
    "ImportOptions",
    "ImportRequest",
    "ImportedViewSet",
    "LegacyFinding",
    "LegacyImport",
    "adopt",
    "import_legacy",
]
