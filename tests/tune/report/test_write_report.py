"""The files of a search: settings that serve reads back, and a page; each whole or not at all."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.support.tune_results import BASE, sample_result, sample_trial
from turnpike.reporting.svg import draw
from turnpike.service.config.auto_workers import TUNED_SETTINGS, read_tuned_file
from turnpike.service.config.resolve import resolve
from turnpike.service.config.settings import Settings
from turnpike.tune.errors import TuneError, UsageError
from turnpike.tune.report.charts import make_charts
from turnpike.tune.report.page import render_html
from turnpike.tune.report.sentences import result_sentences
from turnpike.tune.report.write_report import prepare_folder, render_tuned_toml, write_results
from turnpike.tune.result import Alternative
from turnpike.tune.search.candidates import Candidate

INT8 = Alternative("int8", 2.61, 0.03, sample_trial(3000, 9000, 15000))


@pytest.mark.usefixtures("without_variables")
def test_serve_reads_the_settings_back(tmp_path: Path) -> None:
    result = sample_result(
        {Candidate(2, 1, 32, 0.5): sample_trial(1500, 4000, 6000), BASE: sample_trial(1, 2, 3)}
    )
    settings, _ = write_results(tmp_path, result)
    expected = Settings(workers=2, threads=1, max_batch=32, max_delay_ms=0.5)
    assert resolve({}, settings).settings == expected
    assert Settings(**read_tuned_file(settings, result.machine)) == expected


def test_the_file_says_how_it_was_measured() -> None:
    text = render_tuned_toml(sample_result(model="a 🙂 model"))
    measured = tomllib.loads(text)["measured"]
    assert measured["model"] == "a 🙂 model"
    assert measured["cpu"] == "AMD EPYC"
    assert measured["date"] == "2026-02-03T04:05:00+00:00"
    assert measured["turnpike"] == "0.1.0"
    assert (measured["slo"], measured["kept"], measured["users"]) == (
        "p99<50ms, errors<0.1%",
        True,
        [1, 16, 64],
    )
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert (
        "# 1 x 2              1.00  1,600/s p99 1.25 ms  3,000/s p99 0.667 ms  4,000/s p99 0.5 ms" in comments
    )
    assert max(map(len, comments)) <= 110


def test_a_name_cannot_end_its_comment() -> None:
    text = render_tuned_toml(sample_result(alternatives=[INT8], source="a\nhost = '0.0.0.0'\x07\x85port = 1"))
    assert set(tomllib.loads(text)) == {*TUNED_SETTINGS, "measured"}
    assert "host = " in text


def test_files_are_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tuned.toml").write_text("before")

    def full(folder: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(TuneError, match="the results could not be written .No space left"):
        write_results(tmp_path, sample_result())
    assert [entry.name for entry in tmp_path.iterdir()] == ["tuned.toml"]
    assert (tmp_path / "tuned.toml").read_text() == "before"


def test_the_folder_is_checked_before_measuring(tmp_path: Path) -> None:
    """Otherwise minutes of measuring would be lost."""
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="--out: expected a writable folder"):
        prepare_folder(tmp_path / "file" / "below")
    prepare_folder(tmp_path / "new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_the_result_in_sentences() -> None:
    sentences = result_sentences(sample_result(alternatives=[INT8]))
    assert sentences[0].startswith("Best: 2 workers with 1 thread each, batches of up to 128 rows, no delay")
    assert (
        "throughput is 1.20 times that of the current settings (1 worker with 2 threads each" in sentences[0]
    )
    assert sentences[1] == "These settings keep p99<50ms, errors<0.1%."
    assert sentences[2].endswith("turnpike export repo/digits-10/1/model.onnx --to repo --precision int8")
    assert result_sentences(sample_result({BASE: sample_trial(1, 2, 3)}))[0].startswith(
        "The current settings are best: 1 worker with 2 threads"
    )
    assert result_sentences(sample_result(kept=False))[1].startswith("No settings keep p99<50ms")


@pytest.mark.parametrize(
    ("alternative", "end"),
    [
        (Alternative("int8", 0.7, 0.03, sample_trial(1, 2, 3)), ", which is no reason to change."),
        (Alternative("int8", 0.98, 0.03, sample_trial(1, 2, 3)), ", which is within the noise (3%)."),
        (Alternative("int8", 1.02, 0.03, sample_trial(1, 2, 3)), ", which is within the noise (3%)."),
        (
            Alternative("int8", 2.6, 0.03, sample_trial(1, 2, 3, missed=(16, 64))),
            ", but it misses the SLO at 16 and 64 users.",
        ),
    ],
)
def test_a_reason_against_an_alternative_is_named(alternative: Alternative, end: str) -> None:
    assert result_sentences(sample_result(alternatives=[alternative]))[-1].endswith(end)


def test_an_alternative_need_not_keep_more_of_the_slo_than_the_best_settings() -> None:
    """Otherwise no alternative would be recommended for an SLO that nothing keeps."""

    def sentence(*missed: int) -> str:
        alternative = Alternative("int8", 2.6, 0.03, sample_trial(1, 2, 3, missed=missed))
        best = {BASE: sample_trial(1, 2, 3, missed=(64,))}
        return result_sentences(sample_result(best, alternatives=[alternative], kept=False))[-1]

    assert "To use it: turnpike export" in sentence(64)
    assert "To use it: turnpike export" in sentence(16)
    assert sentence(16, 64).endswith("but it misses the SLO at 16 users.")


def test_the_page_is_self_contained() -> None:
    text = render_html(sample_result(alternatives=[INT8], notes=["4 x 1 did not start: <no room>"]))
    assert "Content-Security-Policy" in text
    assert not re.search(r"(src|href)=|<script", text)
    assert "&lt;no room&gt;" in text
    assert "1,500/s" in text
    assert "15,000/s" in text
    assert len(text.encode()) < 1_000_000


def test_charts_have_a_row_for_each_candidate() -> None:
    throughput, p99 = make_charts(sample_result())
    assert [name for _, name in throughput.y.ticks] == ["1 x 2", "2 x 1"]
    first = throughput.content[0]
    # the best is at the top
    assert (first.name, first.x, first.y) == ("1 user", [1600, 1500], [0, 1])
    assert [(level.at, level.is_vertical) for level in p99.levels] == [(50, True)]
    assert "<title>1 user: 1,500 good answers per second, 2 x 1</title>" in draw(throughput)


def test_a_page_without_good_answers() -> None:
    text = render_html(sample_result({BASE: sample_trial(0, 0, 0, missed=(1, 16, 64))}, kept=False, slo=None))
    assert "SLO missed" in text
