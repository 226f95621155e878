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


def test_the_figures_of_the_readme_are_those_of_the_newest_results() -> None:
    """Read from the files here once more, not by the script that writes them."""
    insert = next(one for one in newest("pipeline")["figures"] if one["work"] == "insert" and one["rows"] == 1_000_000)
    lag = next(one for one in newest("service")["figures"] if one.get("database") == "sqlite")
    measured = {one["work"]: one for run in by_date("regist") for one in run["figures"]}
    ducklake, pyiceberg = measured["register one of 2,000, DuckLake's best"], measured["register, PyIceberg add_files at 500"]
    shown = [line.split(" | ")[1].strip("| ") for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| ")]

    assert shown[1:5] == [
        f"{insert['ratio']:.3g} times as long",
        f"{lag['lag_p50_s']:.3g} s (median)",
        f"{ducklake['ratio']:.3g} and {pyiceberg['ratio']:.0f} times as fast",
        f"{measured['plan a point of 100,000, warm']['ours']:.3g} ms",
    ]


def by_date(prefix: str) -> list[dict[str, Any]]:
    """The oldest first; of each work the last one counts."""
    runs = [json.loads(path.read_text()) for path in (ROOT / "bench/results").glob(f"{prefix}*-20*.json")]
    return sorted(runs, key=lambda run: str(run["date"]))


def test_every_missed_aim_of_the_newest_registry_run_is_named() -> None:
    readme = (ROOT / "README.md").read_text()
    missed = [one["work"] for one in by_date("registry")[-1]["figures"] if one["reached"] is False and one["ratio"] is not None]
    page = (ROOT / "docs/performance.md").read_text().partition("## Registry")[0]

    assert [work for work in missed if f"| {work} |" not in page] == []
    assert [work for work in missed if work.startswith("retire") and "retiring files" not in readme] == []
