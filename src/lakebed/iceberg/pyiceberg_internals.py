"""Every part of PyIceberg that its authors do not promise, in one place; a contract test pins each of them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import fastavro
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, data_file_with_partition, manifest_entry_schema_with_data_file
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from sqlalchemy import Engine, MetaData

FORMAT_VERSION: Final = 2
_SCHEMA_VERSION = "v1"  # of the catalog's own tables: the one with a column for the type, which Java's JDBC catalog writes too


def start_catalog(catalog: SqlCatalog, name: str, engine: Engine, properties: dict[str, str]) -> None:
    """What `SqlCatalog.__init__` does, on an engine that is there already; its tables must exist."""
    MetastoreCatalog.__init__(catalog, name, **properties)
    catalog.engine = engine
    catalog._schema_version = _SCHEMA_VERSION  # noqa: SLF001 - this module is the door for it


def catalog_tables() -> MetaData:
    return SqlCatalogBaseTable.metadata


def entry_schema(spec: PartitionSpec, schema: Schema) -> dict[str, Any]:
    """The Avro schema of a manifest's entries for one partition spec."""
    data_file = data_file_with_partition(spec.partition_type(schema), FORMAT_VERSION)
    return _to_avro(manifest_entry_schema_with_data_file(FORMAT_VERSION, data_file), "manifest_entry")


@lru_cache(maxsize=1)
def list_schema() -> dict[str, Any]:
    """The Avro schema of a manifest list."""
    return _to_avro(MANIFEST_LIST_FILE_SCHEMAS[FORMAT_VERSION], "manifest_file")


def _to_avro(schema: Schema, name: str) -> dict[str, Any]:
    parsed: dict[str, Any] = fastavro.parse_schema(AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name))  # type: ignore[assignment]
    return parsed
