"""What `bench/results` says of inserts: measured as it must be, and within the bound that was promised."""

from __future__ import annotations

import json
from typing import Any

from pages import ROOT

FEWEST_PAIRS, BOUND = 30, 1.05
SIZES = [1_000, 1_000_000, 10_000_000]


def newest(name: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(max((ROOT / "bench/results").glob(f"{name}-20*.json")).read_text())
    return answer


def test_inserts_were_measured_beside_plain_spark_in_pairs_with_their_interval_and_the_machines_facts() -> None:
    measured = newest("pipeline")
    figures = [one for one in measured["figures"] if one["work"] == "insert"]

    assert {"cpu", "cores", "memory_gb", "kernel", "file_system", "fsync_p50_ms", "python"} <= set(measured["machine"])
    assert [one["rows"] for one in figures] == SIZES
    assert all(one["pairs"] >= FEWEST_PAIRS and {"ours_ms", "plain_ms", "ratio", "interval"} <= set(one) for one in figures)


def test_an_insert_takes_less_than_a_twentieth_longer_than_plain_spark() -> None:
    figures = [one for one in newest("pipeline")["figures"] if one["work"] == "insert"]

    assert [one["rows"] for one in figures if one["interval"][1] >= BOUND or one["ratio"] > one["must"]] == []
