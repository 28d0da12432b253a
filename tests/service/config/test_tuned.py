"""`--workers auto`: what was measured here, or what is usual; whatever is wrong with the file is said."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from service.cli.serve import app
from service.config import auto_workers as tuned
from service.config import cpus as cpus_module
from service.config.cpus import LARGE_WEIGHT_BYTES, default_workers
from service.config.settings import Settings
from service.config.sources import ResolvedSettings, resolve, settings_as_toml
from service.process import relaunch as launch
from service.repository.scan import MODEL_FILE as MODEL
from tests.support.onnx_with_weights import graph

HERE = {"cpus": 4.0, "cpu": "Some CPU", "device": "cpu"}
GOOD = "workers = 3\nthreads = 1\nmax_batch = 32\nmax_delay_ms = 0.5\n"
TABLE = '[measured]\ncpus = 4\ncpu = "Some CPU"\ndevice = "cpu"\ndate = "2026-01-01"\n'


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with four CPUs of a kind, and an environment without a word of ours."""
    monkeypatch.setattr(tuned, "available_cpus", lambda: HERE["cpus"])
    monkeypatch.setattr(tuned, "cpu_model", lambda: HERE["cpu"])
    for name in list(os.environ):
        if name.upper().startswith("TURNPIKE_"):
            monkeypatch.delenv(name)


def auto(models: Path, text: str | None = GOOD + TABLE, **flags: Any) -> ResolvedSettings:
    """What `--workers auto` comes to in a repository with such a file."""
    if text is not None:
        (models / tuned.TUNED_FILE).write_text(text)
    return resolve({"models": str(models), "workers": "auto", **flags})


def test_what_was_measured_here_is_taken(tmp_path: Path) -> None:
    """All four settings, and the origin of each is the file."""
    found = auto(tmp_path)
    settings = found.settings
    assert (settings.workers, settings.threads, settings.max_batch, settings.max_delay_ms) == (3, 1, 32, 0.5)
    assert found.warning == ""
    file = tmp_path / tuned.TUNED_FILE
    assert found.origins["workers"] == f"--workers auto: {file}"
    assert found.origins["max_batch"] == str(file)
    text = settings_as_toml(found)
    assert f"workers = 3  # --workers auto: {file}\n" in text
    assert tomllib.loads(text)["workers"] == 3


def test_what_is_given_otherwise_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag, a variable or the file of --config has the last word on its own setting."""
    monkeypatch.setenv("TURNPIKE_MAX_DELAY_MS", "7")
    config = tmp_path / "serve.toml"
    config.write_text(f'workers = "auto"\nthreads = 2\nmodels = "{tmp_path}"\n')
    (tmp_path / tuned.TUNED_FILE).write_text(GOOD + TABLE)
    found = resolve({"max_batch": "16"}, config)
    settings = found.settings
    assert (settings.workers, settings.threads, settings.max_batch, settings.max_delay_ms) == (3, 2, 16, 7)
    assert found.origins["max_batch"] == "--max-batch"
    assert found.origins["workers"].startswith(f"{config}: workers auto: ")


def test_a_number_of_workers_asks_for_nothing(tmp_path: Path) -> None:
    """The file is not looked at unless auto is said."""
    (tmp_path / tuned.TUNED_FILE).write_text(GOOD + TABLE)
    assert resolve({"models": str(tmp_path)}).settings == Settings(models=tmp_path)
    assert resolve({"models": str(tmp_path), "workers": "2"}).settings.max_batch == 128


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("workers = ", "expected TOML, got something else"),
        ("\udcff", "expected TOML, got something else"),
        (GOOD, "expected a table [measured] that says on what machine, got none"),
        ("measured = 1\n" + GOOD, "expected a table [measured] that says on what machine, got none"),
        (GOOD + TABLE.replace("4", "8"), "with cpus = 4.0, got 8"),
        (GOOD + TABLE.replace("Some", "Other"), "with cpu = 'Some CPU', got 'Other CPU'"),
        (GOOD + TABLE.replace('"cpu"', '"cuda"'), "with device = 'cpu', got 'cuda'"),
        (GOOD + "[measured]\n", "with cpus = 4.0, got None"),
        (
            'host = "0.0.0.0"\n' + GOOD + TABLE,
            "expected workers, threads, max_batch, max_delay_ms, got host,",
        ),
        (TABLE, "expected workers, threads, max_batch, max_delay_ms, got nothing"),
        (GOOD.replace("= 3\n", "= true\n") + TABLE, "expected numbers, got"),
        (GOOD.replace("= 3\n", "= '3'\n") + TABLE, "expected numbers, got"),
        (GOOD.replace("= 3\n", "= 1000\n") + TABLE, "workers: expected a number that serve takes, got 1000"),
        (GOOD.replace("0.5", "nan") + TABLE, "max_delay_ms: expected a number that serve takes, got nan"),
    ],
)
def test_a_file_that_will_not_do_is_said_and_left(tmp_path: Path, text: str, says: str) -> None:
    """Damaged, measured elsewhere, or with what was never measured: it is as if it were not there."""
    (tmp_path / tuned.TUNED_FILE).write_bytes(text.encode("utf-8", "surrogateescape"))
    found = auto(tmp_path, None)
    assert found.settings == Settings(models=tmp_path, workers=4)
    assert found.warning.startswith(f"--workers auto goes without {tmp_path / tuned.TUNED_FILE}: ")
    assert says in found.warning
    assert found.origins["workers"].startswith("--workers auto: usual for 4 CPUs and ")


def test_what_is_no_file_is_left(tmp_path: Path) -> None:
    """A pipe would have the start wait for ever."""
    os.mkfifo(tmp_path / tuned.TUNED_FILE)
    assert "expected a file, got something else" in auto(tmp_path, None).warning


def test_another_device_is_another_machine(tmp_path: Path) -> None:
    """What was measured on the CPU says nothing of a GPU, on which one worker is usual."""
    found = auto(tmp_path, device="cuda")
    assert found.settings.workers == 1
    assert "with device = 'cuda', got 'cpu'" in found.warning


@pytest.mark.parametrize(
    ("cpus", "weight", "expected"),
    [
        (2.0, 1000, 2),
        (2.0, LARGE_WEIGHT_BYTES, 2),
        (2.0, LARGE_WEIGHT_BYTES + 1, 1),
        (0.5, 1000, 1),
        (2.9, 1000, 2),
        (3.0, LARGE_WEIGHT_BYTES + 1, 1),
        (8.0, LARGE_WEIGHT_BYTES + 1, 2),
        (16.0, 1000, 16),
    ],
)
def test_what_is_usual(cpus: float, weight: int, expected: int) -> None:
    """A worker for each CPU where models are narrow; threads together where they are wide."""
    assert default_workers(cpus, weight) == expected


def test_the_largest_model_that_is_served_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one of a version that is not chosen; without a repository the bundled one, which is small."""
    for version, width in (("1", 1024), ("2", 64)):
        path = tmp_path / "net" / version / MODEL
        path.parent.mkdir(parents=True)
        path.write_bytes(graph({"w": (width, width)}))
    assert auto(tmp_path, None).origins["workers"].endswith("usual for 4 CPUs and small weights")
    assert auto(tmp_path, None, versions="all").origins["workers"].endswith("and weights of 4.2 MB")
    assert auto(tmp_path, None).settings.workers == 4
    assert auto(tmp_path, None, versions="all").settings.workers == 1
    assert resolve({"workers": "auto"}).settings.workers == 4
    monkeypatch.setattr(tuned, "available_cpus", lambda: 1000.0)
    assert resolve({"workers": "auto"}).settings.workers == 256


def test_threads_that_were_given_are_counted(tmp_path: Path) -> None:
    """No more workers than there are CPUs for their threads."""
    found = auto(tmp_path, None, threads="2")
    assert (found.settings.workers, found.settings.threads) == (2, 2)
    assert auto(tmp_path, None, threads="9").settings.workers == 1


def test_what_tune_says_of_its_settings_is_no_setting(tmp_path: Path) -> None:
    """The file is one of --config as well, wherever it was measured."""
    file = tmp_path / "tuned.toml"
    file.write_text(GOOD + TABLE.replace("4", "8"))
    assert resolve({}, file).settings == Settings(workers=3, threads=1, max_batch=32, max_delay_ms=0.5)


def test_what_was_left_is_logged_before_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line, and the service starts with what is usual."""
    served: list[Settings] = []

    monkeypatch.setattr(launch, "relaunch", served.append)
    monkeypatch.setattr("service.telemetry.log.configure_logging", lambda level: None)
    (tmp_path / tuned.TUNED_FILE).write_text("nothing")
    assert CliRunner().invoke(app, ["--models", str(tmp_path), "--workers", "auto"]).exit_code == 0
    assert [settings.workers for settings in served] == [4]
    assert [record.message[:26] for record in caplog.records] == ["--workers auto goes without"[:26]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nmodel name\t: Some  CPU @ 3GHz\nflags\t\t: a b\n", "Some  CPU @ 3GHz"),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n", "0x41 0xd40"),
    ],
)
def test_the_cpu_has_a_name(tmp_path: Path, text: str, expected: str) -> None:
    """As Linux tells it, or of what kind it is where there is no name."""
    (tmp_path / "cpuinfo").write_text(text)
    assert cpus_module.cpu_model(tmp_path / "cpuinfo") == expected
    assert cpus_module.cpu_model(tmp_path / "absent")
