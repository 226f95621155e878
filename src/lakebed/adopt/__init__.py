from lakebed.adopt.directory import adopt
from lakebed.adopt.results import AdoptedFile, Adoption, AdoptOptions, AdoptRequest

__all__ = ["AdoptOptions", "AdoptRequest", "AdoptedFile", "Adoption", "adopt"]
