from lakebed.adopting.directory import adopt
from lakebed.adopting.legacy_import import import_legacy
from lakebed.adopting.legacy_plan import LegacyFinding
from lakebed.adopting.legacy_results import ImportedViewSet, ImportOptions, ImportRequest, LegacyImport
from lakebed.adopting.results import AdoptedFile, Adoption, AdoptOptions, AdoptRequest

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
