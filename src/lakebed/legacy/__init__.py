from lakebed.legacy.importer import import_legacy
from lakebed.legacy.plan import LegacyFinding
from lakebed.legacy.results import ImportedViewSet, ImportRequest, LegacyImport

__all__ = ["ImportRequest", "ImportedViewSet", "LegacyFinding", "LegacyImport", "import_legacy"]
