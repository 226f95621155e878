from lakebed.adopt.directory import adopt
from lakebed.adopt.results import AdoptedFile, Adoption, AdoptRequest

__all__ = ["AdoptRequest", "AdoptedFile", "Adoption", "adopt"]
