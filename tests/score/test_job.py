"""A job: what an interrupted one leaves, what continues it, and what does not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tests.support.run_cli import command, environment
from tests.support.score_models import (
    as_table,
    expected_labels,
    nameless_model,
    random_rows,
    score,
    scored,
    table_model,
)
from turnpike.score.errors import ScoreError, UsageError
from turnpike.score.job.folder import PLAN_FILE
from turnpike.score.job.options import OutputOptions
from turnpike.score.job.score_part import score_part
from turnpike.score.job.scoring_model import ScoringModel
from turnpike.score.readers.files import split_file

FILES, ROWS_PER_FILE = 6, 50


@pytest.fixture
def source(tmp_path: Path) -> str:
    """Several files, each of which is a part."""
    folder = tmp_path / "rows"
    folder.mkdir()
    for number in range(FILES):
        np.save(folder / f"{number}.npy", random_rows(ROWS_PER_FILE, seed=number))
    return f"{folder}/*.npy"


@pytest.mark.slow
def test_finished_parts_are_kept(tmp_path: Path, source: str) -> None:
    model, output = nameless_model(tmp_path / "models"), tmp_path / "out"
    assert score(model, source, output).parts == FILES
    whole = scored(output)
    kept = output / "part-000000-00000.parquet"
    before = kept.stat().st_mtime_ns
    (output / "part-000003-00000.parquet").unlink()
    # a part that was half-written when its process was killed
    (output / ".part-000004-00000.0123abcd.parquet").write_bytes(b"half")
    (output / "._job.0123abcd.json").write_bytes(b"half")
    result = score(model, source, output)
    assert (result.rows, result.reused_parts) == (ROWS_PER_FILE, FILES - 1)
    assert kept.stat().st_mtime_ns == before
    assert scored(output).equals(whole)
    assert sorted(path.name for path in output.iterdir()) == [
        PLAN_FILE,
        *(f"part-{number:06}-00000.parquet" for number in range(FILES)),
    ]
    rows = np.concatenate([random_rows(ROWS_PER_FILE, seed=number) for number in range(FILES)])
    assert whole["label"].to_pylist() == expected_labels(model, rows)


@pytest.mark.slow
def test_another_job_is_refused(tmp_path: Path, source: str) -> None:
    model, output = nameless_model(tmp_path / "models"), tmp_path / "out"
    score(model, source, output)
    before = (output / "part-000000-00000.parquet").read_bytes()
    with pytest.raises(UsageError, match=r"has a job with no --gates; choose another folder, or --overwrite"):
        score(model, source, output, gates=True)
    other = table_model(tmp_path / "others", seed=1)
    with pytest.raises(UsageError, match="has a job with another model, .*net with digest"):
        score(other, source, output)
    moved = model.rename(tmp_path / "moved")
    assert score(moved, source, output).reused_parts == FILES
    model = moved
    (tmp_path / "rows/0.npy").rename(tmp_path / "0.npy")
    with pytest.raises(UsageError, match=r"has rows of .*0\.npy, which is not in --input any more"):
        score(model, source, output)
    assert (output / "part-000000-00000.parquet").read_bytes() == before
    assert score(model, source, output, overwrite=True).rows == (FILES - 1) * ROWS_PER_FILE
    assert scored(output).num_rows == (FILES - 1) * ROWS_PER_FILE
    (output / PLAN_FILE).write_text('{"format": 1}')
    with pytest.raises(
        UsageError, match="has a job with a _job.json that this version of turnpike cannot read"
    ):
        score(model, source, output)
    assert score(model, source, output, overwrite=True).rows == (FILES - 1) * ROWS_PER_FILE


def test_two_jobs_do_not_share_a_folder(tmp_path: Path, source: str) -> None:
    import fcntl

    model, output = nameless_model(tmp_path / "models"), tmp_path / "out"
    output.mkdir()
    descriptor = os.open(output, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="another job is writing into"):
            score(model, source, output)
    finally:
        os.close(descriptor)
    assert score(model, source, output).rows == FILES * ROWS_PER_FILE


def test_a_bad_file_stops_the_job_and_keeps_the_others(tmp_path: Path, source: str) -> None:
    model, output = nameless_model(tmp_path / "models"), tmp_path / "out"
    bad = random_rows(ROWS_PER_FILE)
    bad[7] = np.nan
    np.save(tmp_path / "rows/5.npy", bad)
    with pytest.raises(ScoreError, match=r"5\.npy, row 8: expected a finite number, got nan"):
        score(model, source, output)
    assert not (output / "part-000005-00000.parquet").exists()
    assert scored(output).num_rows == (FILES - 1) * ROWS_PER_FILE


def test_a_part_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    model = ScoringModel(nameless_model(tmp_path / "models"), OutputOptions())
    rows = tmp_path / "rows.npy"
    np.save(rows, random_rows(3 * model.batch_rows))
    (part,) = split_file(rows, tmp_path)
    target = tmp_path / "part.parquet"
    calls: list[int] = []

    def stop(count: int) -> None:
        calls.append(count)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_part(model, part, target, stop)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models", "rows.npy"]
    assert score_part(model, part, target, calls.append) == 3 * model.batch_rows
    assert parquet.read_metadata(target).num_rows == 3 * model.batch_rows


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_job_killed_ten_times_with_ten_bad_files_has_each_row_once(tmp_path: Path) -> None:
    """SIGKILL at random moments. The same command continues, also after a repair, and no process is left."""
    model, output, folder = table_model(tmp_path / "models"), tmp_path / "out", tmp_path / "rows"
    count, files = 40_000, 60
    folder.mkdir()
    rows = random_rows(count * files)
    generator = random.Random(0)
    bad = set(generator.sample(range(files), 10))

    def write(number: int) -> None:
        span = slice(number * count, (number + 1) * count)
        table = as_table(rows[span], id=pyarrow.array(range(span.start, span.stop)))
        parquet.write_table(table, folder / f"{number:03}.parquet")

    for number in range(files):
        if number not in bad:
            write(number)
        elif number % 2:
            (folder / f"{number:03}.parquet").write_bytes(b"damaged")
        else:
            parquet.write_table(pyarrow.table({"id": range(count)}), folder / f"{number:03}.parquet")
    words = command("score", "-m", str(model), "-i", str(folder), "-o", str(output), "-q")
    unfinished = 0
    for kill in range(10):
        process = subprocess.Popen(words, env=environment(), stderr=subprocess.DEVNULL)
        time.sleep(generator.uniform(0.5, 0.9))
        process.send_signal(signal.SIGKILL)
        process.wait()
        unfinished += len(list(output.glob("part-*"))) < files - len(bad)
        if kill == 5:  # half of them are repaired meanwhile
            for number in sorted(bad)[:5]:
                write(number)
    ran = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False, timeout=200)
    assert ran.returncode == 1
    assert [line.split(": ")[0] for line in ran.stderr.splitlines()[:-1]] == [
        f"{folder}/{number:03}.parquet" for number in sorted(bad)[5:]
    ]
    for number in sorted(bad)[5:]:
        write(number)
    subprocess.run(words, env=environment(), check=True, timeout=200)
    table = scored(output)
    np.testing.assert_array_equal(table["id"].to_numpy(), np.arange(count * files))
    assert table["label"].to_pylist() == expected_labels(model, rows)
    assert unfinished > 3, "most of the kills came after the end"
