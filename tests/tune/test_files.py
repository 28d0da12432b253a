"""What a search writes: settings that serve reads back, and a page; each whole or not at all."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from service.config.auto_workers import TUNED_SETTINGS, read_tuned_file
from service.config.settings import Settings
from service.config.sources import resolve
from tests.support.tune_results import BASE, found, trial
from tune.candidates import Candidate
from tune.errors import TuneError, UsageError
from tune.page import page
from tune.place import prepare, write
from tune.result import Lower
from tune.sentences import sentences
from tune.tuned_file import settings_file

INT8 = Lower("int8", 2.61, 0.03, trial(3000, 9000, 15000))


def test_serve_reads_the_settings_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By --config anywhere, by --workers auto on a machine that is like the one that is told of."""
    for name in [name for name in os.environ if name.upper().startswith("TURNPIKE_")]:
        monkeypatch.delenv(name)
    one = found({Candidate(2, 1, 32, 0.5): trial(1500, 4000, 6000), BASE: trial(1, 2, 3)})
    settings, _ = write(tmp_path, one)
    expected = Settings(workers=2, threads=1, max_batch=32, max_delay_ms=0.5)
    assert resolve({}, settings).settings == expected
    assert Settings(**read_tuned_file(settings, one.machine)) == expected


def test_the_file_says_how_it_was_measured() -> None:
    """Machine, date, versions, what was asked, and the figures of every candidate as comments."""
    text = settings_file(found(model="a 🙂 model"))
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
    """What stands in a path is no setting, and no letter that TOML does not take."""
    text = settings_file(found(lower=[INT8], source="a\nhost = '0.0.0.0'\x07\x85port = 1"))
    assert set(tomllib.loads(text)) == {*TUNED_SETTINGS, "measured"}
    assert "host = " in text


def test_nothing_half_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk leaves what was there before, and no draft."""
    (tmp_path / "tuned.toml").write_text("before")

    def full(folder: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(TuneError, match="what was found could not be written .No space left"):
        write(tmp_path, found())
    assert [entry.name for entry in tmp_path.iterdir()] == ["tuned.toml"]
    assert (tmp_path / "tuned.toml").read_text() == "before"


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    """Minutes of measuring are not to be lost for that."""
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="--out: expected a folder that can be written"):
        prepare(tmp_path / "file" / "below")
    prepare(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


def test_what_it_comes_to_is_told() -> None:
    """The best and by how much, whether the limits are kept, and how to have fewer bits."""
    told = sentences(found(lower=[INT8]))
    assert told[0].startswith("Best: 2 workers with 1 thread each, runs of up to 128 rows")
    assert "that is 1.20 times as much as 1 worker with 2 threads each" in told[0]
    assert told[1] == "It keeps p99<50ms, errors<0.1%."
    assert told[2].endswith("turnpike export repo/digits-10/1/model.onnx --to repo --precision int8")
    assert sentences(found({BASE: trial(1, 2, 3)}))[0].startswith("Best as it is: 1 worker with 2 threads")
    assert sentences(found(kept=False))[1].startswith("Nothing that was tried keeps p99<50ms")


@pytest.mark.parametrize(
    "lower",
    [
        Lower("int8", 1.02, 0.03, trial(1, 2, 3)),
        Lower("int8", 2.6, 0.03, trial(1, 2, 3, missed=(64,))),
    ],
)
def test_fewer_bits_that_bring_nothing_are_not_advised(lower: Lower) -> None:
    """Neither a gain within the noise, nor one that misses the limits."""
    assert sentences(found(lower=[lower]))[-1].endswith("which is no reason to change.")


def test_the_page_needs_nothing_else() -> None:
    """Charts, tables and script in one file that asks no other host."""
    text = page(found(lower=[INT8], notes=["4 x 1 did not start: <no room>"]))
    before = text.split("<script>")[0]
    assert "Content-Security-Policy" in before
    assert not re.search(r"(src|href)=", before)
    assert "&lt;no room&gt;" in before
    assert "1,500/s" in before
    assert "15,000/s" in before
    charts = json.loads(re.findall(r'id="charts">(.*?)</script>', text, re.DOTALL)[0])
    assert [chart["name"] for chart in charts] == ["throughput", "p99"]
    first = charts[0]["data"][0]
    # the best on top, where plotly ends
    assert (first["name"], first["y"], first["x"]) == ("1 user", ["1 x 2", "<b>2 x 1</b>"], [1600, 1500])
    assert charts[1]["layout"]["shapes"][0]["x0"] == pytest.approx(50)


def test_a_page_of_a_server_that_answers_nothing() -> None:
    """There is nothing to draw, and it is drawn all the same."""
    text = page(found({BASE: trial(0, 0, 0, missed=(1, 16, 64))}, kept=False, slo=None))
    assert "SLO missed" in text
