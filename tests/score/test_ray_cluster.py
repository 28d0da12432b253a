"""`--engine ray` on a real cluster of several nodes on this machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tests.support.ray_cluster import ray_programs
from tests.support.score_models import FEATURES, as_table, expected_labels, random_rows, scored, table_model
from tests.support.virtualenvs import run_client

FILES, ROWS_PER_FILE = 25, 40_000


@pytest.mark.endurance
@pytest.mark.timeout(600)
def test_a_killed_node_costs_no_row(tmp_path: Path) -> None:
    """A million rows are there once each, in order, although a node is lost midway."""
    model = table_model(tmp_path / "models")
    rows = random_rows(FILES * ROWS_PER_FILE)
    (tmp_path / "rows").mkdir()
    for number in range(FILES):
        span = slice(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
        ids = pyarrow.array(range(span.start, span.stop))
        parquet.write_table(as_table(rows[span], id=ids), tmp_path / f"rows/{number:02}.parquet")
    bad = tmp_path / "bad.csv"
    bad.write_text(f"{','.join(FEATURES)}\n1,2,3,4\n1,2,x,4\n")
    result = run_client("ray_job.py", ray_programs(), model, tmp_path / "rows", bad, tmp_path / "out")
    assert result["error"] == f"{bad}, line 3, column 'age': expected a finite number, got 'x'"
    assert result["killed_after"] == [FILES // 4]
    (note,) = result["notes"]
    assert note.endswith(" is lost: other nodes score its parts")
    assert (result["rows"], result["parts"]) == (FILES * ROWS_PER_FILE, FILES)
    table = scored(tmp_path / "out")
    np.testing.assert_array_equal(table["id"].to_numpy(), np.arange(FILES * ROWS_PER_FILE))
    assert table["label"].to_pylist() == expected_labels(model, rows)
