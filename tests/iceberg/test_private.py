"""What is used of PyIceberg beyond its promises, pinned: a new version that changes it fails here, not in a lake."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pyiceberg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import LongType, NestedField, TimestamptzType
from sqlalchemy import create_engine

import lakebed
from lakebed.iceberg.pyiceberg_internals import catalog_tables, entry_schema, list_schema, start_catalog

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "ts", TimestamptzType()))
SPEC = PartitionSpec(PartitionField(2, 1000, DayTransform(), "ts_day"))


def test_the_version_is_the_one_these_contracts_were_written_for() -> None:
    assert pyiceberg.__version__.startswith("0.12.")


def test_a_catalog_starts_on_an_engine_of_ours() -> None:
    engine = create_engine("sqlite://")
    catalog_tables().create_all(engine)
    catalog = SqlCatalog.__new__(SqlCatalog)

    start_catalog(catalog, "lakebed", engine, {"warehouse": "/w"})
    catalog.create_namespace("shop")

    assert catalog.list_namespaces() == [("shop",)]
    assert catalog.list_tables("shop") == []
    engine.dispose()


def test_the_catalogs_tables_are_those_that_java_reads() -> None:
    tables = {name: set(table.columns.keys()) for name, table in catalog_tables().tables.items()}

    assert tables == {
        "iceberg_tables": {
            "catalog_name", "table_namespace", "table_name", "metadata_location", "previous_metadata_location", "iceberg_type",
        },
        "iceberg_namespace_properties": {"catalog_name", "namespace", "property_key", "property_value"},
    }  # fmt: skip


def test_entries_have_the_fields_of_the_specification() -> None:
    data_file = next(field for field in entry_schema(SPEC, SCHEMA)["fields"] if field["name"] == "data_file")

    ids = {field["name"]: field["field-id"] for field in data_file["type"]["fields"]}

    assert ids == {
        "content": 134, "file_path": 100, "file_format": 101, "partition": 102, "record_count": 103, "file_size_in_bytes": 104,
        "column_sizes": 108, "value_counts": 109, "null_value_counts": 110, "nan_value_counts": 137, "lower_bounds": 125,
        "upper_bounds": 128, "key_metadata": 131, "split_offsets": 132, "equality_ids": 135, "sort_order_id": 140,
    }  # fmt: skip


def test_a_partition_is_a_record_of_optional_fields_with_their_ids() -> None:
    data_file = next(field for field in entry_schema(SPEC, SCHEMA)["fields"] if field["name"] == "data_file")
    partition = next(field for field in data_file["type"]["fields"] if field["name"] == "partition")

    (day,) = partition["type"]["fields"]

    assert (day["name"], day["field-id"], day["type"][0]) == ("ts_day", 1000, "null")
    assert day["type"][1] == {"type": "int", "logicalType": "date"}


def test_the_list_has_the_fields_of_the_specification() -> None:
    ids = {field["name"]: field["field-id"] for field in list_schema()["fields"]}

    assert ids == {
        "manifest_path": 500, "manifest_length": 501, "partition_spec_id": 502, "content": 517, "sequence_number": 515,
        "min_sequence_number": 516, "added_snapshot_id": 503, "added_files_count": 504, "existing_files_count": 505,
        "deleted_files_count": 506, "added_rows_count": 512, "existing_rows_count": 513, "deleted_rows_count": 514, "partitions": 507,
        "key_metadata": 519,
    }  # fmt: skip
    assert json.dumps(list_schema())


def test_private_names_of_pyiceberg_are_used_in_one_module_only() -> None:
    package = Path(str(lakebed.__file__)).parent
    private = re.compile(r"from pyiceberg[\w.]* import .*\b_\w+|catalog\._schema_version|_init_catalog")
    users = {path.name for path in package.rglob("*.py") if private.search(path.read_text())}

    assert users == {"pyiceberg_internals.py"}


def test_pyiceberg_is_imported_only_behind_its_door() -> None:
    package = Path(str(lakebed.__file__)).parent
    users = {path.relative_to(package).parts[0] for path in package.rglob("*.py") if "pyiceberg" in _list_imports(path)}

    assert users == {"iceberg"}


def _list_imports(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    whole = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    parts = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.partition(".")[0] for name in whole | parts}
