"""`turnpike tune` from its words to its files: by figures that are made up, and once for real."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from service.config.settings import Settings
from service.config.sources import resolve
from service.repository.scan import MODEL_FILE
from tests.support.live_server import module, serving
from tests.support.run_cli import called
from tests.support.tune_results import trial
from tune import bench, run, search
from tune.bench import Bench, seconds
from tune.candidates import Candidate
from tune.errors import ExportError, StoppedError, UsageError
from tune.measurements import Trial
from tune.model_under_test import BUNDLED, subject

MODEL = BUNDLED / "digits-10" / "1" / MODEL_FILE


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command within this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name in list(os.environ):
        if name.startswith("TURNPIKE_"):
            monkeypatch.delenv(name)
    return partial(called, "tune")


class Made:
    """Measures nothing: the more workers the faster, int8 three times as fast; notes what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Candidate, Path | None]] = []
        self.benches: list[Bench] = []
        self.missed = False

    def measure(self, on: Bench, candidate: Candidate, repository: Path | None = None) -> Trial:
        self.asked.append((candidate, repository))
        self.benches.append(on)
        times = 100 * candidate.workers * (3 if repository else 1)
        for users in on.plan.users:
            on.watch(candidate, users)
        users = on.plan.users
        return trial(*(times for _ in users), users=users, missed=users if self.missed else ())


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """A machine of two CPUs that is made up."""
    one = Made()
    monkeypatch.setattr(run, "available_cpus", lambda: 2.0)
    monkeypatch.setattr(
        Bench, "measure", lambda self, candidate, repository=None: one.measure(self, candidate, repository)
    )
    return one


def repository(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / "repo" / name / "1").mkdir(parents=True)
        shutil.copyfile(MODEL, folder / "repo" / name / "1" / MODEL_FILE)
    return folder / "repo"


def test_from_words_to_files(call: Callable[..., Result], made: Made, tmp_path: Path) -> None:
    """The best is shown and written beside the models, and the line to serve with it works."""
    home = repository(tmp_path, "net")
    ran = call(home, "--precision", "fp32", "--slo", "p99<1s", "--minutes", "1")
    assert ran.exit_code == 0, ran.stderr
    assert f"to serve so: turnpike serve --models {home} --workers auto" in ran.stdout
    assert sorted(entry.name for entry in home.iterdir()) == ["net", "tuned.html", "tuned.toml"]
    found = resolve({"models": str(home), "workers": "auto"})
    assert (found.settings.workers, found.settings.threads, found.warning) == (2, 1, "")
    assert made.benches[0].seconds == bench.LEAST
    loads = len(made.asked) * 3
    assert f"{loads} measurements" in ran.stdout
    assert f"{loads}/{loads} 1 x 2: 64 users; best so far 2 x 1: 200, 200, 200/s" in ran.stdout


def test_without_a_repository_the_current_folder_has_the_files(
    call: Callable[..., Result], made: Made, tmp_path: Path
) -> None:
    """The bundled model, or a file of one's own, in whose place nothing is written."""
    ran = call("--precision", "fp32", "--users", "1")
    assert ran.exit_code == 0, ran.stderr
    assert "to serve so: turnpike serve --config tuned.toml" in ran.stdout
    assert made.benches[0].subject.repository is None
    shutil.copyfile(MODEL, tmp_path / "mine.onnx")
    (tmp_path / "to").mkdir()
    ran = call("mine.onnx", "--precision", "fp32", "--users", "1", "--out", "to")
    assert ran.exit_code == 0, ran.stderr
    assert (made.benches[-1].subject.name, (tmp_path / "to" / "tuned.toml").exists()) == ("mine", True)


def test_what_misses_the_slo_is_written_and_said(
    call: Callable[..., Result], made: Made, tmp_path: Path
) -> None:
    """Exit status 1: what came nearest is better than nothing."""
    made.missed = True
    ran = call("--precision", "fp32", "--users", "1", "--slo", "p99<1ms")
    assert ran.exit_code == 1
    assert "Nothing that was tried keeps p99<1ms" in ran.stdout
    assert tomllib.loads((tmp_path / "tuned.toml").read_text())["measured"]["kept"] is False


def test_int8_is_advice(
    call: Callable[..., Result], made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is measured with the best settings between two trials of the file, and nothing is changed."""
    home = repository(tmp_path, "net")
    other = tmp_path / "int8"
    monkeypatch.setattr(run, "lowered", lambda *words: other)
    ran = call(home, "--source", "runs/net", "--users", "1,8")
    assert ran.exit_code == 0, ran.stderr
    best = Candidate(2, 1, 128, 0.0)
    assert made.asked[-3:] == [(best, None), (best, other), (best, None)]
    assert "In int8 the model does 3.00 times as much" in ran.stdout
    assert f"turnpike export runs/net --to {home} --precision int8" in ran.stdout
    assert [entry.name for entry in home.iterdir() if entry.is_dir()] == ["net"]


def test_without_an_int8_file_the_rest_is_measured(
    call: Callable[..., Result], made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says why."""

    def lowered(*words: Any) -> Path:
        raise ExportError("int8 was left out, as turnpike export says: turnpike export needs torch")

    monkeypatch.setattr(run, "lowered", lowered)
    ran = call("--users", "1")
    assert ran.exit_code == 0, ran.stderr
    assert "note: int8 was left out, as turnpike export says: turnpike export needs torch" in ran.stdout


def test_the_users_own_settings_are_the_base(
    call: Callable[..., Result], made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others are compared with is what serve has now, by --config and variables."""
    (tmp_path / "serve.toml").write_text("max_batch = 48\nlog_level = 'error'\n")
    monkeypatch.setenv("TURNPIKE_THREADS", "5")
    ran = call("--precision", "fp32", "--users", "1", "--config", "serve.toml")
    assert ran.exit_code == 0, ran.stderr
    assert made.asked[0][0] == Candidate(1, 5, 48, 0.0)
    assert "put its 4 settings into serve.toml" in ran.stdout
    words = made.benches[0]._server(None)
    assert words[words.index("--config") + 1] == "serve.toml"
    # its address is told of by a line of that level; lines of requests were not wanted
    assert words[-3:] == ["--log-level", "info", "--no-access-log"]


def test_keys_of_the_users_own_are_sent(tmp_path: Path) -> None:
    """Those of a file by its name; one of a variable in a file that nobody else can read."""
    (tmp_path / "keys").write_text("a\n")

    def key(settings: Settings) -> Path | None:
        nothing: Any = None
        return Bench(nothing, settings, nothing, tmp_path, 1, nothing, nothing)._key()

    assert key(Settings()) is None
    assert key(Settings(api_keys_file=tmp_path / "keys")) == tmp_path / "keys"
    kept = key(Settings(api_keys=("hush", "b")))
    assert kept
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("hush", 0o600)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--users", "1,x"], "--users: expected whole numbers with commas, such as 1,16,64, got '1,x'"),
        (["--users", "0"], "--users: expected different whole numbers from 1, got 0"),
        (["--users", "2,2"], "--users: expected different whole numbers from 1, got 2,2"),
        (["--rows", "0"], "--rows: expected 1 or more, got 0"),
        (["--minutes", "0"], "--minutes: expected more than 0, got 0"),
        (["--minutes", "nan"], "--minutes: expected more than 0, got nan"),
        (["--wire", "xml"], "--wire: expected one of json, binary"),
        (["--precision", "fp32,int4"], "--precision: expected some of fp32, fp16, int8, got 'int4'"),
        (["--slo", "fast"], "--slo: expected limits such as p99<50ms"),
        (["absent"], "MODELS: expected a repository or an .onnx file, got 'absent'"),
        (["--config", "absent"], "--config: expected a TOML file that can be read, got 'absent'"),
        (["--model", "nope"], "--model: expected one of the models there, which are digits-10, got 'nope'"),
    ],
)
def test_wrong_use_is_one_clear_line(
    call: Callable[..., Result], made: Made, tmp_path: Path, words: list[str], says: str
) -> None:
    """Status 2 before anything is measured, and nothing is written."""
    ran = call(*words)
    assert ran.exit_code == 2, ran.stdout
    assert says in " ".join(ran.stderr.split())
    assert made.asked == []
    assert list(tmp_path.iterdir()) == []


def test_stopped_it_says_what_is_lost(
    call: Callable[..., Result], made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 130, and no file."""

    def stop(self: Bench, candidate: Candidate, repository: Path | None = None) -> Trial:
        self.watch(candidate, 1)
        self.watch(candidate, 16)
        raise StoppedError("stopped")

    monkeypatch.setattr(Bench, "measure", stop)
    ran = call("--precision", "fp32", "--users", "1,16")
    assert ran.exit_code == 130
    assert re.search(r"stopped: 1 of \d+ measurements are lost, and nothing was written", ran.stderr)
    assert list(tmp_path.iterdir()) == []


def test_which_model_is_meant(tmp_path: Path) -> None:
    """The only one, or the one that is named; a file is served from a repository that holds it alone."""
    home = repository(tmp_path, "one", "two")
    with pytest.raises(UsageError, match="--model: expected the name of one of the models there, .*one, two"):
        subject(home, None, "latest", tmp_path)
    assert subject(home, "two", "latest", tmp_path).file == home / "two" / "1" / MODEL_FILE
    with pytest.raises(UsageError, match="which are none"):
        subject(home, None, "7", tmp_path)
    single = subject(home / "two" / "1" / MODEL_FILE, None, "latest", tmp_path)
    assert (single.name, single.repository) == ("two", tmp_path / "single")
    with pytest.raises(UsageError, match="MODELS: expected a repository or an .onnx file"):
        subject(Path(__file__), None, "latest", tmp_path)


def test_loads_are_as_long_as_the_time_allows() -> None:
    """Never so short that nothing can be told, nor longer than is of use."""
    assert seconds(0.1, 20, 3) == bench.LEAST
    assert seconds(1000, 20, 3) == bench.MOST
    assert bench.LEAST < seconds(8, 20, 3) < bench.MOST


@pytest.mark.slow
def test_a_search_for_real(
    call: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two candidates on this machine, and serve takes what was found."""
    monkeypatch.setattr(bench, "LEAST", 1)
    monkeypatch.setattr(search, "ROUNDS", 1)
    home = repository(tmp_path, "net")
    ran = call(home, "--users", "1", "--precision", "fp32", "--minutes", "0.1", "--slo", "p99<5s")
    assert ran.exit_code == 0, ran.stderr
    settings = tomllib.loads((home / "tuned.toml").read_text())
    with serving("--models", home, "--workers", "auto", "--dashboard") as server:
        workers = re.findall(r"^turnpike_workers (\d+)", server.get("/metrics").text, re.MULTILINE)
        assert [int(float(count)) for count in workers] == [settings["workers"]]
        assert "auto ignores" not in server.said


@pytest.mark.slow
def test_ctrl_c_ends_all_processes(tmp_path: Path) -> None:
    """The server and the load under way, in peace, and the status says that it was stopped."""
    with module("turnpike", "tune", "--users", "1", "--precision", "fp32", "--out", tmp_path) as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("1/"):
                break
        family = children(process.pid)
        assert family
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "measurements are lost, and nothing was written" in said
    assert [pid for pid in family if Path(f"/proc/{pid}").exists()] == []
    assert list(tmp_path.iterdir()) == []


def children(pid: int) -> list[int]:
    """All processes below this one."""
    listed = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout.split()
    parents = dict(zip(map(int, listed[::2]), map(int, listed[1::2]), strict=True))
    direct = [child for child, parent in parents.items() if parent == pid]
    return [*direct, *(below for child in direct for below in children(child))]
