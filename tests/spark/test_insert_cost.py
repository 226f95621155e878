"""What a very large insert costs the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from spark_worker import told, working

if TYPE_CHECKING:
    from pathlib import Path


ROWS, FILES, DRIVER_MB = 10_000_000, 1_000, 600


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_ten_million_rows_in_a_thousand_files_fit_into_a_small_driver(url: str, tmp_path: Path) -> None:
    with working("insert_much", url, str(tmp_path / "warehouse"), ROWS, FILES) as worker:
        answer = told(worker)

    assert answer["driver_mb"] < DRIVER_MB
    assert {name: answer[name] for name in ("rows", "files", "clean")} == {"rows": ROWS, "files": FILES, "clean": True}
