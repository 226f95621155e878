"""Partition tuples: typed from the path, equal to what Iceberg's own transforms say, and good for pruning."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import parse_transform as parse_iceberg_transform

from builders import TIMESTAMP
from ice import ROWS, IceLake
from lakebed.core.errors import InvalidValueError
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.transforms import resolve_transforms
from lakebed.core.schema.types import Field, Primitive
from lakebed.iceberg.types.partitions import make_partitioning, parse_value
from lakebed.iceberg.types.schemas import INSTANCE_COLUMN, INSTANCE_FIELD_ID, to_iceberg_type
from lakebed.storage.partition_paths import encode_partition_path
from strategies import values_of

if TYPE_CHECKING:
    from lakebed.core.schema.bounds import Value

KINDS = ("int", "long", "date", "timestamp", "timestamptz", "string", "uuid", "binary", "boolean")
TRANSFORMS = {
    "identity": KINDS,
    "bucket": ("int", "long", "date", "timestamp", "timestamptz", "string", "uuid", "binary"),
    "truncate": ("int", "long", "string", "binary"),
    "year": ("date", "timestamp", "timestamptz"),
    "month": ("date", "timestamp", "timestamptz"),
    "day": ("date", "timestamp", "timestamptz"),
    "hour": ("timestamp", "timestamptz"),
}
CASES = [(transform, kind) for transform, kinds in TRANSFORMS.items() for kind in kinds]


def _spell(transform: str, column: str) -> str:
    return {"identity": column, "bucket": f"bucket(16, {column})", "truncate": f"truncate(4, {column})"}.get(
        transform, f"{transform}({column})"
    )


@pytest.mark.parametrize(("transform", "kind"), CASES)
def test_a_partition_path_gives_the_value_that_icebergs_transform_gives(transform: str, kind: str) -> None:
    source = Primitive(name=kind)
    schema = Schema(fields=(Field(field_id=7, name="c", type=source),))
    spelled = _spell(transform, "c")
    partitioning = make_partitioning(schema, [spelled], with_instance=False, spec_id=0)
    ((ours, _),) = resolve_transforms(schema, [spelled])
    theirs = parse_iceberg_transform(str(partitioning.spec.fields[0].transform)).transform(to_iceberg_type(source))

    @given(st.none() | values_of(source))
    def holds(value: Value | None) -> None:
        path = encode_partition_path([(ours.name, ours.apply(value, source))])
        (found,) = partitioning.values(path, "global")
        assert found == theirs(_as_iceberg(value))

    holds()


def _as_iceberg(value: Value | None) -> object:
    """PyIceberg's transforms take days and microseconds."""
    match value:
        case datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution)
        case date():
            return (value - date(1970, 1, 1)).days
        case _:
            return value


def test_decimals_are_typed_with_their_scale() -> None:
    assert parse_value(Primitive(name="decimal", precision=9, scale=2), "-12.30") == Decimal("-12.30")
    assert parse_value(Primitive(name="uuid"), "00000000-0000-0000-0000-000000000001") == UUID(int=1).bytes


def test_a_path_of_another_shape_is_refused() -> None:
    schema = Schema(fields=(Field(field_id=1, name="ts", type=TIMESTAMP),))
    partitioning = make_partitioning(schema, ["day(ts)"], with_instance=False, spec_id=0)

    with pytest.raises(InvalidValueError, match="1"):
        partitioning.values("", "global")


def test_a_filter_on_a_partition_opens_only_its_files(ice: IceLake) -> None:
    ice.create(partition_by=("day(ts)", "country"))
    for number, (country, day) in enumerate([("DE", 0), ("FR", 1), ("DE", 2), (None, 3), ("", 4)]):
        ice.insert(number, country=country, day=day)

    table = ice.static()

    assert len(list(table.scan(row_filter="country = 'DE'").plan_files())) == 2
    assert len(list(table.scan(row_filter="ts >= '2026-01-03T00:00:00+00:00'").plan_files())) == 3
    assert table.scan(row_filter="country IS NULL").to_arrow().num_rows == ROWS
    assert table.scan(row_filter="country = ''").to_arrow().num_rows == ROWS
    ice.require_true()


def test_a_manifest_says_which_partitions_it_holds(ice: IceLake) -> None:
    ice.create(partition_by=("day(ts)",))
    ice.write(1, day=0)
    ice.write(2, day=9)
    ice.seal()
    ice.advance()

    (manifest,) = ice.manifests()

    (summary,) = manifest.partitions
    days = [int.from_bytes(summary[end], "little") for end in ("lower_bound", "upper_bound")]
    assert days == [20454, 20463]
    assert summary["contains_null"] is False


def test_instances_are_a_partition_field_that_readers_can_ask_for(ice: IceLake) -> None:
    ice.create(kind="view_set", partition_by=("country",))
    ice.insert(1, instance="tenant-a")
    ice.insert(2, instance="tenant-b")

    table = ice.static()

    assert table.scan(row_filter=f"{INSTANCE_COLUMN} = 'tenant-b'").to_arrow()["id"].to_pylist()[0] == 2000
    assert len(list(table.scan(row_filter=f"{INSTANCE_COLUMN} = 'tenant-b'").plan_files())) == 1
    assert set(table.scan().to_arrow()[INSTANCE_COLUMN].to_pylist()) == {"tenant-a", "tenant-b"}
    assert table.spec().fields[-1].source_id == INSTANCE_FIELD_ID
    ice.require_true()


def test_a_table_that_gets_its_second_instance_says_of_every_earlier_file_that_it_is_global(ice: IceLake) -> None:
    ice.create(kind="view_set", partition_by=("country",))
    ice.insert(1)
    ice.insert(2)
    assert INSTANCE_COLUMN not in ice.static().schema().column_names

    ice.insert(3, instance="tenant-b")

    read = ice.static().scan().to_arrow()
    assert sorted(read[INSTANCE_COLUMN].to_pylist()) == ["global"] * (2 * ROWS) + ["tenant-b"] * ROWS
    assert {manifest.partition_spec_id for manifest in ice.manifests()} == {1}
    assert all(entry["data_file"]["partition"][INSTANCE_COLUMN] for entry in ice.entries())
    ice.require_true()
    ice.insert(4)
    ice.require_true()


def test_a_renamed_partition_column_keeps_its_partitions(ice: IceLake) -> None:
    ice.create(partition_by=("country",))
    ice.insert(1, country="DE")
    ice.evolve(lambda fields: [replace(f, name="nation") if f.name == "country" else f for f in fields])
    ice.insert(2, country="FR")

    assert len(list(ice.static().scan(row_filter="nation = 'FR'").plan_files())) == 1
    assert ice.static().scan(row_filter="nation = 'DE'").to_arrow().num_rows == ROWS
    assert len(ice.base().metadata.partition_specs) == 1
