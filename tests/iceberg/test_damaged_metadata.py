"""Metadata of ours that somebody damaged: whatever part is missing or of another kind, `repair` makes the table whole again."""

from __future__ import annotations

import gzip
import json
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from builders import ORDERS
from ice import IceLake, open_ice
from lakebed.core.errors import ForeignCommitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.iceberg.repair import Repair
    from lakebed.lake import Lake

    Damage = Callable[[dict[str, Any]], None]


def parts(content: dict[str, Any]) -> Iterator[tuple[str, Callable[[dict[str, Any]], Any], str]]:
    """Every key of the metadata, of its newest snapshot and of that one's summary."""
    for key in content:
        yield key, lambda metadata: metadata, key
    for key in content["snapshots"][-1]:
        yield f"snapshots.{key}", lambda metadata: metadata["snapshots"][-1], key
    for key in content["snapshots"][-1]["summary"]:
        yield f"summary.{key}", lambda metadata: metadata["snapshots"][-1]["summary"], key
    for key in content["properties"]:
        yield f"properties.{key}", lambda metadata: metadata["properties"], key


def read(ice: IceLake) -> tuple[Path, bytes]:
    path = Path(ice.base().location.removeprefix("file://"))
    return path, path.read_bytes()


def mend(lake: Lake) -> None:
    """What may be the work of another program is undone only when a person says so."""
    lake.repair(dry_run=False)
    decisions: list[Repair] = ["discard_foreign", "rebuild"]
    for how in decisions:
        try:
            with closing(open_ice(lake)) as ice:
                ice.committer.advance(ice.table_id())
        except ForeignCommitError:
            with suppress(ForeignCommitError):
                lake.repair(str(ORDERS), how=how, dry_run=False)


def require_clean(lake: Lake) -> None:
    assert [str(finding) for finding in lake.check().findings if finding.severity != "info"] == []


@pytest.mark.filterwarnings("ignore:Encountered invalid snapshot summary")
@pytest.mark.parametrize(
    "value",
    [
        pytest.param("missing", id="missing"),
        pytest.param(None, id="null", marks=pytest.mark.long),
        pytest.param("x", id="a text", marks=pytest.mark.long),
        pytest.param({"x": "x"}, id="an object", marks=pytest.mark.long),
    ],
)
def test_metadata_with_a_damaged_part_is_repaired(lake: Lake, value: object) -> None:
    with closing(open_ice(lake)) as ice:
        ice.create()
        ice.insert(1)
        ice.insert(2)
        names = [name for name, _, _ in parts(json.loads(gzip.decompress(read(ice)[1])))]
    failed: list[str] = []
    for number, name in enumerate(names):
        with closing(open_ice(lake)) as ice:
            path, text = read(ice)
        content = json.loads(gzip.decompress(text))
        found = next((part for part in parts(content) if part[0] == name), None)
        if found is None:  # of a table that was made again
            continue
        _, inside, key = found
        if value == "missing":
            del inside(content)[key]
        else:
            inside(content)[key] = value
        path.write_bytes(gzip.compress(json.dumps(content).encode()))
        try:
            mend(lake)
            with closing(open_ice(lake)) as ice:
                ice.insert(10 + number)
                ice.require_true()
            require_clean(lake)
        except Exception as exc:  # noqa: BLE001 - all of them are shown together
            failed.append(f"{name}: {type(exc).__name__}: {exc}")
            lake.repair(str(ORDERS), how="rebuild", dry_run=False)
    assert not failed, "\n".join(line[:300] for line in failed)


@pytest.mark.parametrize("kept", [0, 1, 20, -1])
def test_truncated_metadata_is_repaired(lake: Lake, kept: int) -> None:
    with closing(open_ice(lake)) as ice:
        ice.create()
        ice.insert(1)
        path, text = read(ice)
    path.write_bytes(text[:kept])

    assert lake.repair(dry_run=False).clean

    with closing(open_ice(lake)) as ice:
        ice.insert(2)
        ice.require_true()
