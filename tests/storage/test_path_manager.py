from __future__ import annotations

import os
import random
import re
from contextlib import suppress
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakebed.core.errors import InvalidNameError, InvalidValueError, PathRefusedError
from lakebed.core.names import TableName
from lakebed.storage.local import LocalStorage
from lakebed.storage.locations import find_paths
from lakebed.storage.paths import PathManager, Warehouse, below, normalize, parse_location
from strategies import hostile_text, op_ids, relative_paths, table_names

LOCAL = PathManager(warehouse=Warehouse(root="/data/lake/warehouse"))
BUCKET = PathManager(warehouse=Warehouse(root="s3://bucket/prefix"))
ORDERS = TableName("shop", "orders")
OP_ID = "0199a8f0c4d27f3a9b1e5c6d7e8f9a0b"
managers = st.sampled_from([LOCAL, BUCKET])


def test_paths_are_readable_and_hold_the_ids() -> None:
    operation = LOCAL.operation_directory(7, ORDERS, OP_ID)

    assert operation == f"/data/lake/warehouse/shop/orders-7/data/{OP_ID}"
    assert LOCAL.new_file(operation, 3, "parquet") == f"{operation}/part-00003.parquet"
    assert BUCKET.metadata_directory(7, ORDERS) == "s3://bucket/prefix/shop/orders-7/metadata"
    assert BUCKET.relative("s3a://bucket/prefix/shop/x") == "shop/x"


@given(
    managers, st.lists(hostile_text | st.sampled_from(["", ".", "..", "a/b", "/", "a/../b", "...", "x.parquet"]), min_size=1, max_size=3)
)
@example(LOCAL, ["task-1", "key=a"])
def test_what_is_below_a_directory_never_leaves_it(paths: PathManager, names: list[str]) -> None:
    with suppress(PathRefusedError):
        made = below(paths.root, *names)

        assert made.removeprefix(f"{paths.root}/").split("/") == names
        assert paths is BUCKET or normalize(made) == made


@pytest.mark.parametrize("name", ["", ".", "..", "/", "a/b", "../x", "a\x00", "a\nb", "a\\b"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(PathRefusedError, match="one file or directory"):
        below(LOCAL.root, "shop", name)


@given(managers, table_names, table_names, st.integers(1, 2**63 - 1), st.integers(1, 2**63 - 1))
def test_different_tables_never_share_a_directory(
    paths: PathManager, first: TableName, second: TableName, first_id: int, second_id: int
) -> None:
    same = paths.table_directory(first_id, first) == paths.table_directory(second_id, second)

    assert same == ((first_id, first) == (second_id, second))


@given(managers, table_names, st.integers(1, 2**63 - 1), op_ids, st.integers(0, 10**9))
def test_every_path_that_is_made_is_canonical(paths: PathManager, name: TableName, table_id: int, op_id: str, ordinal: int) -> None:
    operation = paths.operation_directory(table_id, name, op_id)
    file = paths.new_file(operation, ordinal, "parquet")

    assert paths.canonical(file) == file
    assert paths.find_operation_directory(file) == operation == paths.require_operation_directory(operation)


def test_what_cannot_be_part_of_a_path_is_refused() -> None:
    operation = LOCAL.operation_directory(7, ORDERS, OP_ID)

    with pytest.raises(InvalidValueError):
        LOCAL.table_directory(0, ORDERS)
    with pytest.raises(InvalidValueError):
        LOCAL.operation_directory(7, ORDERS, "../../../etc")
    for ordinal, extension in ((-1, "parquet"), (0, "../x"), (0, "")):
        with pytest.raises(InvalidValueError):
            LOCAL.new_file(operation, ordinal, extension)
    with pytest.raises(PathRefusedError):
        LOCAL.new_file("/data/lake/warehouse/shop", 0, "parquet")


def spell_local(path: str, seed: int) -> str:
    """The same local path in another spelling."""
    draw = random.Random(seed)
    noisy = "".join(draw.choice(["/", "//", "/./", "/.//"]) if c == "/" else c for c in path) + draw.choice(["", "/", "/.", "//"])
    if draw.random() < 0.4:
        return noisy
    escaped = "".join(f"%{ord(c):02x}" if c.isascii() and c != "/" and draw.random() < 0.2 else quote(c, safe="/") for c in noisy)
    if draw.random() < 0.3:
        return "file:/" + escaped.lstrip("/")  # as Hadoop writes it; two slashes would begin a host
    return draw.choice(["file://", "FILE://localhost", "File:///"]) + escaped


def spell_object(path: str, seed: int) -> str:
    draw = random.Random(seed)
    bucket, _, key = path.removeprefix("s3://").partition("/")
    noisy = "".join(draw.choice(["/", "//", "/./"]) if c == "/" else c for c in f"/{key}") + draw.choice(["", "/", "/."])
    return draw.choice(["s3://", "s3a://", "s3n://", "S3A://"]) + bucket + noisy


@given(relative_paths, st.integers())
@example("a%2Fb", 1)
@example("%2e%2e", 2)
def test_every_spelling_of_a_local_path_gets_the_same_verdict(relative: str, seed: int) -> None:
    inside, outside = f"{LOCAL.root}/{relative}", f"/data/lake/warehouse2/{relative}"

    assert LOCAL.canonical(spell_local(inside, seed)) == inside
    with pytest.raises(PathRefusedError):
        LOCAL.canonical(spell_local(outside, seed))


@given(relative_paths, st.integers())
def test_every_spelling_of_an_object_gets_the_same_verdict(relative: str, seed: int) -> None:
    inside, outside = f"{BUCKET.root}/{relative}", f"s3://bucket/prefix2/{relative}"

    assert BUCKET.canonical(spell_object(inside, seed)) == inside
    with pytest.raises(PathRefusedError):
        BUCKET.canonical(spell_object(outside, seed))


@given(managers, hostile_text)
def test_a_hostile_path_is_refused_or_stays_inside(paths: PathManager, text: str) -> None:
    for spelled in (text, f"{paths.root}/{text}", f"file://{paths.root}/{text}", f"{paths.root}{text}"):
        try:
            canonical = paths.canonical(spelled)
        except PathRefusedError:
            continue
        assert canonical.startswith(paths.root + "/")
        assert not set(canonical.removeprefix(paths.root).split("/")[1:]) & {"", ".", ".."}
        assert re.search(r"[\x00-\x1f\x7f\\\u2028\u2029]", canonical) is None


@given(managers, hostile_text)
@example(BUCKET, "?")
@example(LOCAL, "?")
def test_canonical_is_its_own_spelling(paths: PathManager, text: str) -> None:
    try:
        canonical = paths.canonical(f"{paths.root}/{text}")
    except PathRefusedError:
        return

    assert paths.canonical(canonical) == canonical == normalize(canonical)


@pytest.mark.parametrize(
    "path",
    [
        "", ".", "warehouse/a", "/", "/data", "/data/lake/warehouse", "/data/lake/warehouse/", "/data/lake/warehouse2/a", "/data/lake/Warehouse/a",
        "/data/lake/warehouse/../a", "/data/lake/warehouse/a/..", "file:///data/lake/warehouse/%2e%2e/a", "file://host/data/lake/warehouse/a",
        "file:///data/lake/warehouse/a%00b", "file:///data/lake/warehouse/a%0Ab", "file:///data/lake/warehouse/%zz", "file:///data/lake/warehouse/%ff",
        "/data/lake/warehouse/a\x00b", "/data/lake/warehouse/a\nb", "/data/lake/warehouse/a\\b", "/data/lake/warehouse/a\x85b",
        "/data/lake/warehouse/a\u2028b", "/data/lake/warehouse/a\udc80b", "file:data/lake/warehouse/a", "http://host/a", "s3://bucket/prefix/a",
        "file:///data/lake/warehouse/a?b", "file:///data/lake/warehouse/a#b",
    ],
)  # fmt: skip
def test_a_path_outside_or_unclean_is_refused(path: str) -> None:
    with pytest.raises(PathRefusedError):
        LOCAL.canonical(path)


@pytest.mark.parametrize(
    "location",
    [
        "s3://AKIAKEY:SECRET@bucket/prefix/a", "s3://AKIAKEY:SEC/SECRET@bucket/prefix/a", "s3://AKIAKEY:SECRET", "s3a://bucket/prefix/a?secret_key=SECRET",
        "s3://bucket/prefix/../a?secret_key=SECRET", "https://user:SECRET@host/a", "file://user:SECRET@host/a", "s3://bucket/SECRET@x/../a",
    ],
)  # fmt: skip
def test_a_secret_in_a_location_is_refused_and_not_repeated(location: str) -> None:
    with pytest.raises(PathRefusedError) as caught:
        BUCKET.canonical(location)

    assert "SECRET" not in str(caught.value)
    assert "SECRET" not in caught.value.path


def fuzz_names(number: int) -> list[str]:
    draw = random.Random(20261115)
    pieces = [
        "..",
        ".",
        "/",
        "\\",
        "\x00",
        "\n",
        "%2e",
        "%2F",
        "~",
        "a",
        "Z",
        "9",
        "_",
        "-",
        "\u043e",
        "\uff4f",
        "\u202e",
        "'",
        '"',
        ";",
        "=",
        " ",
        "s3:",
        "file:",
        "\ud800",
    ]
    return ["".join(draw.choices(pieces, k=draw.randint(1, 12))) for _ in range(number)] + [
        "../../evil",
        "shop.orders",
        "shop...",
        "a" * 300,
    ]


def test_five_thousand_names_are_refused_or_stay_inside(tmp_path: object) -> None:
    root = os.path.realpath(str(tmp_path))
    paths = PathManager(warehouse=Warehouse(root=root))
    accepted = 0
    for name in fuzz_names(5_000):
        for text in (name, f"shop.{name}", f"{name}.orders"):
            try:
                directory = paths.table_directory(7, TableName.parse(text))
            except InvalidNameError:
                continue
            accepted += 1
            assert os.path.realpath(directory) == directory
            assert directory.startswith(f"{root}/")
    assert accepted > 100


@given(hostile_text)
def test_a_hostile_op_id_or_extension_is_refused_or_harmless(text: str) -> None:
    operation = LOCAL.operation_directory(7, ORDERS, OP_ID)

    with suppress(InvalidValueError):
        assert LOCAL.canonical(made := LOCAL.operation_directory(7, ORDERS, text)) == made
    with suppress(InvalidValueError):
        assert LOCAL.canonical(made := LOCAL.new_file(operation, 0, text)) == made


@pytest.mark.parametrize(
    "root",
    ["/", "", "relative", "/data/", "/data//lake", "/data/../lake", "s3://", "s3://b", "s3a://bucket/x", "s3://bucket/", "gs://bucket"],
)
def test_only_a_canonical_root_makes_a_warehouse(root: str) -> None:
    with pytest.raises(PathRefusedError):
        Warehouse(root=root)


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/a/b c", "/a/b c"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("file://localhost/a/b", "/a/b"),
        ("FILE:/a//./b/", "/a/b"),
        ("file:/a/x=b%2Fc/d e#f?", "/a/x=b%2Fc/d e#f?"),
        ("s3a://bucket/a%20b", "s3://bucket/a%20b"),
        ("s3n://bucket/a/b", "s3://bucket/a/b"),
        ("s3://bucket/a/b", "s3://bucket/a/b"),
    ],
)
def test_every_spelling_of_a_location_names_one_path(location: str, path: str) -> None:
    assert parse_location(location) == path


@pytest.mark.parametrize("location", ["", "a/b", "file:a/b", "file://elsewhere/a", "hdfs://host/a", "file:/a/../b", "file:/a\x00b"])
def test_a_location_that_names_no_path_is_refused(location: str) -> None:
    with pytest.raises(PathRefusedError):
        parse_location(location)


@pytest.mark.parametrize(
    ("location", "paths"),
    [
        ("file:/data/lake/warehouse/a", ("a",)),
        ("file:///data/lake/warehouse/x=b%20c", ("x=b%20c", "x=b c")),
        ("file:/data/lake%2Fwarehouse/a", ("a",)),
        ("file:/data/lake/warehouse/%2e%2e/a", ("%2e%2e/a",)),
        ("file:/data/lake/warehouse2/a", ()),
        ("hdfs://host/data/lake/warehouse/a", ()),
        ("s3://bucket/data/lake/warehouse/a", ()),
    ],
)
def test_a_location_is_looked_for_as_written_and_decoded(location: str, paths: tuple[str, ...]) -> None:
    storage = LocalStorage(paths=LOCAL)

    assert find_paths(storage, location) == tuple(f"{LOCAL.root}/{path}" for path in paths)
