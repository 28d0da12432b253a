"""`turnpike tune` from options to files, with fake measurements and once for real."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper
from typer.testing import Result

from tests.support.live_server import module, serving
from tests.support.run_cli import run_in_process
from tests.support.tune_results import sample_trial
from turnpike.service.artifact.devices import OPENVINO_PACKAGE
from turnpike.service.config.resolve import resolve
from turnpike.service.config.settings import Settings
from turnpike.service.repository.scan import MODEL_FILE
from turnpike.tune import run
from turnpike.tune.errors import LowerPrecisionError, ServeError, StoppedError, UsageError
from turnpike.tune.search import settings_search
from turnpike.tune.search.candidates import Candidate
from turnpike.tune.search.measurements import Trial
from turnpike.tune.trial import bench
from turnpike.tune.trial.bench import Bench, seconds_per_load
from turnpike.tune.trial.trial_log import LOG_FILE
from turnpike.tune.trial.tuned_model import BUNDLED, find_model

MODEL = BUNDLED / "digits-10" / "1" / MODEL_FILE


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_variables: None) -> Callable[..., Result]:
    """Runs the command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return partial(run_in_process, "tune")


class FakeBench:
    """Makes up measurements and records calls: faster with more workers, three times as fast with int8."""

    def __init__(self) -> None:
        self.measured: list[tuple[Candidate, Path | None]] = []
        self.benches: list[Bench] = []
        self.missed = False

    def measure(self, bench: Bench, candidate: Candidate, repository: Path | None = None) -> Trial:
        self.measured.append((candidate, repository))
        self.benches.append(bench)
        times = 100 * candidate.workers * (3 if repository else 1)
        users = bench.plan.users
        for count in users:
            bench.on_load(candidate, count)
        return sample_trial(*(times for _ in users), users=users, missed=users if self.missed else ())


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeBench:
    """A machine with two CPUs, without OpenVINO, and made-up measurements."""
    fake_bench = FakeBench()
    without_openvino = {name: version for name, version in run.versions().items() if name != OPENVINO_PACKAGE}
    monkeypatch.setattr(run, "versions", lambda: without_openvino)
    monkeypatch.setattr(run, "whole_cpus", lambda: 2)
    monkeypatch.setattr(
        Bench,
        "measure",
        lambda self, candidate, repository=None: fake_bench.measure(self, candidate, repository),
    )
    return fake_bench


def repository(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / "repo" / name / "1").mkdir(parents=True)
        shutil.copyfile(MODEL, folder / "repo" / name / "1" / MODEL_FILE)
    return folder / "repo"


def test_from_options_to_files(call: Callable[..., Result], fake: FakeBench, tmp_path: Path) -> None:
    models = repository(tmp_path, "net")
    result = call(models, "--precision", "fp32", "--slo", "p99<1s", "--minutes", "1")
    assert result.exit_code == 0, result.stderr
    assert f"to serve with these settings: turnpike serve --models {models} --workers auto" in result.stdout
    assert sorted(entry.name for entry in models.iterdir()) == ["net", "tuned.html", "tuned.toml"]
    resolved = resolve({"models": str(models), "workers": "auto"})
    assert (resolved.settings.workers, resolved.settings.threads, resolved.warning) == (2, 1, "")
    assert fake.benches[0].load_seconds == bench.MIN_LOAD_SECONDS
    loads = len(fake.measured) * 3
    assert f"{loads} measurements" in result.stdout
    assert f"{loads}/{loads} 1 x 2: 64 users; best so far 2 x 1: 200, 200, 200/s" in result.stdout


def test_without_a_repository_the_current_folder_has_the_files(
    call: Callable[..., Result], fake: FakeBench, tmp_path: Path
) -> None:
    result = call("--precision", "fp32", "--users", "1")
    assert result.exit_code == 0, result.stderr
    assert "to serve with these settings: turnpike serve --config tuned.toml" in result.stdout
    assert fake.benches[0].model.repository is None
    shutil.copyfile(MODEL, tmp_path / "mine.onnx")
    (tmp_path / "to").mkdir()
    result = call("mine.onnx", "--precision", "fp32", "--users", "1", "--out", "to")
    assert result.exit_code == 0, result.stderr
    assert (fake.benches[-1].model.name, (tmp_path / "to" / "tuned.toml").exists()) == ("mine", True)


def test_a_missed_slo_is_written_and_reported(
    call: Callable[..., Result], fake: FakeBench, tmp_path: Path
) -> None:
    """Exit status 1, but the closest settings are still written."""
    fake.missed = True
    result = call("--precision", "fp32", "--users", "1", "--slo", "p99<1ms")
    assert result.exit_code == 1
    assert "No settings keep p99<1ms" in result.stdout
    assert tomllib.loads((tmp_path / "tuned.toml").read_text())["measured"]["kept"] is False


def test_int8_is_advice(
    call: Callable[..., Result], fake: FakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is measured with the best settings between two trials of the served file, and changes nothing."""
    models = repository(tmp_path, "net")
    other = tmp_path / "int8"
    monkeypatch.setattr(run, "lower_precision", lambda *arguments: other)
    result = call(models, "--source", "runs/net", "--users", "1,8")
    assert result.exit_code == 0, result.stderr
    best = Candidate(2, 1, 128, 0.0)
    assert fake.measured[-3:] == [(best, None), (best, other), (best, None)]
    assert "In int8, with the best settings, the model has 3.00 times the throughput" in result.stdout
    assert f"turnpike export runs/net --to {models} --precision int8" in result.stdout
    assert [entry.name for entry in models.iterdir() if entry.is_dir()] == ["net"]


def test_openvino_is_advice_where_it_is_installed(
    call: Callable[..., Result], fake: FakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each precision has the split of the CPUs that is best for it, and tuned.toml is not changed."""
    models = repository(tmp_path, "net")
    monkeypatch.setattr(run, "versions", lambda: {OPENVINO_PACKAGE: "1.8.1"})
    speeds = {(1, "fp32"): 150, (2, "fp32"): 110, (1, "bf16"): 500, (2, "bf16"): 300}

    def measure(bench: Bench, candidate: Candidate, repository: Path | None = None) -> Trial:
        fake.measured.append((candidate, repository))
        bench.on_load(candidate, 1)
        return sample_trial(speeds.get((candidate.workers, str(candidate.openvino)), 200), users=(1,))

    monkeypatch.setattr(fake, "measure", measure)
    result = call(models, "--precision", "fp32", "--users", "1")
    assert result.exit_code == 0, result.stderr
    best = Candidate(1, 2, 128, 0.0)
    tried = [
        replace(best, workers=workers, threads=threads, openvino=precision)
        for precision in ("fp32", "bf16")
        for workers, threads in ((1, 2), (2, 1))
    ]
    assert [candidate for candidate, _ in fake.measured[-6:]] == [best, *tried, best]
    assert f"{len(fake.measured)} measurements" in result.stdout
    assert "In fp32 on OpenVINO with 1 worker with 2 threads each, batches of up to 128 rows" in result.stdout
    assert "the model has 0.75 times the throughput of the best settings, which is no reason" in result.stdout
    options = "--workers 1 --threads 2 --max-batch 128 --max-delay-ms 0 --device openvino --precision bf16"
    assert (
        "the model has 2.50 times the throughput of the best settings. To use it: "
        f"turnpike serve --models {models} {options}"
    ) in result.stdout
    assert "openvino" not in (models / "tuned.toml").read_text().split("\n\n")[1]


def test_a_split_on_openvino_that_keeps_the_slo_comes_before_a_faster_one(
    call: Callable[..., Result], fake: FakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "versions", lambda: {OPENVINO_PACKAGE: "1.8.1"})

    def measure(bench: Bench, candidate: Candidate, repository: Path | None = None) -> Trial:
        bench.on_load(candidate, 1)
        if candidate.openvino is None:
            return sample_trial(100, users=(1,))
        if candidate.workers == 1:
            return sample_trial(900, users=(1,), missed=(1,))
        return sample_trial(500, users=(1,))

    monkeypatch.setattr(fake, "measure", measure)
    result = call("--precision", "fp32", "--users", "1")
    assert result.exit_code == 0, result.stderr
    for precision in ("fp32", "bf16"):
        assert f"In {precision} on OpenVINO with 2 workers with 1 thread each" in result.stdout
    assert result.stdout.count("5.00 times the throughput of the best settings. To use it: ") == 2


def test_a_model_that_openvino_cannot_serve_is_left_out(
    call: Callable[..., Result], fake: FakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it does not start with one worker, no other split is tried."""
    monkeypatch.setattr(run, "versions", lambda: {OPENVINO_PACKAGE: "1.8.1"})
    measure = fake.measure
    starts = []

    def refuse(bench: Bench, candidate: Candidate, repository: Path | None = None) -> Trial:
        if candidate.openvino == "bf16":
            starts.append(candidate)
            raise ServeError("turnpike serve: precision: bf16 needs a CPU that has it")
        return measure(bench, candidate, repository)

    monkeypatch.setattr(fake, "measure", refuse)
    result = call("--precision", "fp32", "--users", "1")
    assert result.exit_code == 0, result.stderr
    assert len(starts) == 1
    assert result.stdout.count("note: OpenVINO in bf16 was left out: turnpike serve: precision: ") == 1
    assert "In fp32 on OpenVINO" in result.stdout
    assert "In bf16" not in result.stdout


def test_a_split_that_openvino_cannot_serve_leaves_the_others(
    call: Callable[..., Result], fake: FakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory may be enough for one worker, but not for two."""
    (tmp_path / "serve.toml").write_text("workers = 2\nthreads = 1\n")
    monkeypatch.setattr(run, "versions", lambda: {OPENVINO_PACKAGE: "1.8.1"})
    measure = fake.measure

    def refuse(bench: Bench, candidate: Candidate, repository: Path | None = None) -> Trial:
        if candidate.openvino == "bf16" and candidate.workers == 2:
            raise ServeError("no memory")
        return measure(bench, candidate, repository)

    monkeypatch.setattr(fake, "measure", refuse)
    result = call("--precision", "fp32", "--users", "1", "--config", "serve.toml")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("note: ") == 1
    assert "note: 2 x 1, bf16 on OpenVINO did not start: no memory" in result.stdout
    assert "In bf16 on OpenVINO with 1 worker with 2 threads each" in result.stdout


@pytest.mark.parametrize("installed", [True, False])
def test_openvino_is_not_tried_for_another_device_or_without_it(
    call: Callable[..., Result],
    fake: FakeBench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    installed: bool,
) -> None:
    """A server that is on OpenVINO already has all its candidates there."""
    if installed:
        (tmp_path / "serve.toml").write_text("device = 'openvino'\n")
        monkeypatch.setattr(run, "versions", lambda: {OPENVINO_PACKAGE: "1.8.1"})
    else:
        (tmp_path / "serve.toml").touch()
        monkeypatch.setattr(run, "versions", lambda: {"onnxruntime": "1.24.1"})
    result = call("--precision", "fp32", "--users", "1", "--config", "serve.toml")
    assert result.exit_code == 0, result.stderr
    assert {candidate.openvino for candidate, _ in fake.measured} == {None}


def test_without_an_int8_file_the_rest_is_measured(
    call: Callable[..., Result], fake: FakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> Path:
        raise LowerPrecisionError(
            "int8 was left out, because turnpike export failed: turnpike export needs torch"
        )

    monkeypatch.setattr(run, "lower_precision", fail)
    result = call("--source", "runs/net", "--users", "1")
    assert result.exit_code == 0, result.stderr
    assert (
        "note: int8 was left out, because turnpike export failed: turnpike export needs torch"
        in result.stdout
    )


def test_an_int8_file_that_cannot_be_served_is_left_out(
    call: Callable[..., Result], fake: FakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings that were measured before are still written."""
    measure = fake.measure

    def refuse(bench: Bench, candidate: Candidate, repository: Path | None = None) -> Trial:
        if repository is not None:
            raise ServeError("turnpike serve: int8 needs another opset")
        return measure(bench, candidate, repository)

    monkeypatch.setattr(run, "lower_precision", lambda *arguments: tmp_path / "int8")
    monkeypatch.setattr(fake, "measure", refuse)
    result = call("--source", "runs/net", "--users", "1")
    assert result.exit_code == 0, result.stderr
    assert "note: int8 was left out: turnpike serve: int8 needs another opset" in result.stdout
    assert "In int8" not in result.stdout
    assert (tmp_path / "tuned.toml").exists()


def test_a_file_of_turnpike_is_not_exported_again(
    call: Callable[..., Result], fake: FakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line says what int8 needs, and no export is tried."""
    monkeypatch.delattr(run, "lower_precision")
    result = call("--users", "1", "--precision", "fp32,fp16,int8")
    assert result.exit_code == 0, result.stderr
    for precision in ("fp16", "int8"):
        hint = "name the checkpoint or module of the export with --source"
        assert f"note: {precision} was left out: {hint}" in result.stdout
    assert "exporting" not in result.stdout


def test_a_file_of_another_tool_is_exported(
    call: Callable[..., Result], fake: FakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = helper.make_graph([], "net", [], [])
    onnx.save(helper.make_model(graph), tmp_path / "net.onnx")
    monkeypatch.setattr(run, "lower_precision", lambda model, source, *others: model.file.parent)
    result = call("net.onnx", "--users", "1")
    assert result.exit_code == 0, result.stderr
    assert "In int8, with the best settings, the model has 3.00 times the throughput" in result.stdout


def test_the_users_own_settings_are_the_base(
    call: Callable[..., Result], fake: FakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "serve.toml").write_text("max_batch = 48\nlog_level = 'error'\n")
    monkeypatch.setenv("TURNPIKE_THREADS", "5")
    result = call("--precision", "fp32", "--users", "1", "--config", "serve.toml")
    assert result.exit_code == 0, result.stderr
    assert fake.measured[0][0] == Candidate(1, 5, 48, 0.0)
    assert "copy its 4 settings to serve.toml" in result.stdout
    options = fake.benches[0]._serve_options(None)
    assert options[options.index("--config") + 1] == "serve.toml"
    # the address is logged at level info; the access log stays off, as in the settings
    assert options[-3:] == ["--log-level", "info", "--no-access-log"]


def test_keys_of_the_users_own_are_sent(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a\n")

    def key(settings: Settings) -> Path | None:
        nothing: Any = None
        return Bench(nothing, settings, nothing, tmp_path, 1, nothing, nothing)._key_file()

    assert key(Settings()) is None
    assert key(Settings(api_keys_file=tmp_path / "keys")) == tmp_path / "keys"
    key_file = key(Settings(api_keys=("hush", "b")))
    assert key_file
    assert (key_file.read_text(), key_file.stat().st_mode & 0o777) == ("hush", 0o600)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--users", "1,x"], "--users: expected whole numbers with commas, such as 1,16,64, got '1,x'"),
        (["--users", "0"], "--users: expected different whole numbers of 1 or more, got 0"),
        (["--users", "2,2"], "--users: expected different whole numbers of 1 or more, got 2,2"),
        (["--rows", "0"], "--rows: expected 1 or more, got 0"),
        (["--minutes", "0"], "--minutes: expected more than 0, got 0"),
        (["--minutes", "nan"], "--minutes: expected more than 0, got nan"),
        (["--wire", "xml"], "--wire: expected one of json, binary"),
        (["--precision", "fp32,int4"], "--precision: expected some of fp32, fp16, int8, got 'int4'"),
        (["--slo", "fast"], "--slo: expected limits such as p99<50ms"),
        (["absent"], "MODELS: expected a folder of models that can be read, got 'absent'"),
        (["--config", "absent"], "--config: expected a TOML file that can be read, got 'absent'"),
        (["--model", "nope"], "--model: expected one of the models there, which are digits-10, got 'nope'"),
    ],
)
def test_an_error_is_one_clear_line(
    call: Callable[..., Result], fake: FakeBench, tmp_path: Path, options: list[str], message: str
) -> None:
    result = call(*options)
    assert result.exit_code == 2, result.stdout
    assert message in " ".join(result.stderr.split())
    assert fake.measured == []
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_search_is_continued(
    call: Callable[..., Result], fake: FakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same command: whole trials are not measured again, and the results are the same."""
    measure = Bench.measure
    whole_trials = 3

    def stopping(self: Bench, candidate: Candidate, repository: Path | None = None) -> Trial:
        if len(fake.measured) == whole_trials:
            self.on_load(candidate, 1)
            self.on_load(candidate, 16)
            raise StoppedError("stopped")
        return measure(self, candidate, repository)

    options = ("--precision", "fp32", "--users", "1,16")
    monkeypatch.setattr(Bench, "measure", stopping)
    stopped = call(*options)
    assert stopped.exit_code == 130
    assert re.search(
        r"stopped: 7 of \d+ measurements were made, and the same command continues", stopped.stderr
    )
    assert [path.name for path in tmp_path.iterdir()] == [LOG_FILE]
    before = list(fake.measured)
    monkeypatch.setattr(Bench, "measure", measure)
    # another search begins anew, and leaves the log as it is until it has a trial
    continued = call(*options)
    assert continued.exit_code == 0, continued.stderr
    assert f"continues: {whole_trials} of the trials are those of {LOG_FILE}" in continued.stdout
    together = list(fake.measured)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tuned.html", "tuned.toml"]
    settings = tomllib.loads((tmp_path / "tuned.toml").read_text())
    fake.measured.clear()
    alone = call(*options)
    assert "continues" not in alone.stdout
    assert (together[: len(before)], together) == (before, fake.measured)
    again = tomllib.loads((tmp_path / "tuned.toml").read_text())
    assert {key: again[key] for key in ("workers", "threads")} == {
        key: settings[key] for key in ("workers", "threads")
    }


def test_a_server_that_did_not_start_is_tried_again(
    call: Callable[..., Result], fake: FakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reason may be gone, as that of too little memory; the same command must not repeat the error."""
    measure = Bench.measure

    def failing(self: Bench, candidate: Candidate, repository: Path | None = None) -> Trial:
        raise ServeError("turnpike serve: no memory")

    options = ("--precision", "fp32", "--users", "1")
    monkeypatch.setattr(Bench, "measure", failing)
    for _ in range(2):
        assert "no memory" in call(*options).stderr
    monkeypatch.setattr(Bench, "measure", measure)
    result = call(*options)
    assert result.exit_code == 0, result.stderr
    again = list(fake.measured)
    fake.measured.clear()
    assert call(*options).exit_code == 0
    assert again == fake.measured


def test_a_search_for_something_else_is_not_continued(
    call: Callable[..., Result], fake: FakeBench, tmp_path: Path
) -> None:
    """Nor one whose log is damaged."""
    assert call("--precision", "fp32", "--users", "1").exit_code == 0
    count = len(fake.measured)
    for text in ("", "{}", json.dumps({"search": "0" * 64}) + "\n" + json.dumps({"trial": "x"})):
        fake.measured.clear()
        (tmp_path / LOG_FILE).write_text(text)
        result = call("--precision", "fp32", "--users", "1")
        assert result.exit_code == 0, result.stderr
        assert "continues" not in result.stdout
        assert len(fake.measured) == count


def test_the_model_is_found(tmp_path: Path) -> None:
    """In all that `turnpike serve` takes."""
    models = repository(tmp_path, "one", "two")
    with pytest.raises(UsageError, match="--model: expected the name of one of the models there, .*one, two"):
        find_model(models, None, "latest")
    assert find_model(models, "two", "latest").file == models / "two" / "1" / MODEL_FILE
    with pytest.raises(UsageError, match="MODELS: expected a model, got none in"):
        find_model(models, None, "7")
    for path in (models / "two", models / "two" / "1", models / "two" / "1" / MODEL_FILE):
        found = find_model(path, None, "latest")
        assert (found.name, found.repository) == ("two", path)
        assert found.file == models / "two" / "1" / MODEL_FILE
    with pytest.raises(UsageError, match=r"MODELS: expected a folder of models or an \.onnx file"):
        find_model(Path(__file__), None, "latest")


def test_the_folder_of_a_model_has_its_results_beside_it(
    call: Callable[..., Result], fake: FakeBench, tmp_path: Path
) -> None:
    """In the repository, where `turnpike serve --workers auto` reads them; not among the versions."""
    models = repository(tmp_path, "one", "two")
    result = call(models / "two", "--precision", "fp32", "--users", "1")
    assert result.exit_code == 0, result.stderr
    assert (models / "tuned.toml").is_file()
    assert {bench.model.name for bench in fake.benches} == {"two"}


def test_loads_are_as_long_as_the_time_allows() -> None:
    assert seconds_per_load(0.1, 20, 3) == bench.MIN_LOAD_SECONDS
    assert seconds_per_load(1000, 20, 3) == bench.MAX_LOAD_SECONDS
    assert bench.MIN_LOAD_SECONDS < seconds_per_load(8, 20, 3) < bench.MAX_LOAD_SECONDS


@pytest.mark.thorough
@pytest.mark.slow
def test_a_search_for_real(
    call: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "MIN_LOAD_SECONDS", 1)
    monkeypatch.setattr(settings_search, "ROUND_COUNT", 1)
    models = repository(tmp_path, "net")
    result = call(models, "--users", "1", "--precision", "fp32", "--minutes", "0.1", "--slo", "p99<5s")
    assert result.exit_code == 0, result.stderr
    settings = tomllib.loads((models / "tuned.toml").read_text())
    with serving("--models", models, "--workers", "auto", "--dashboard") as server:
        workers = re.findall(r"^turnpike_workers (\d+)", server.get("/metrics").text, re.MULTILINE)
        assert [int(float(count)) for count in workers] == [settings["workers"]]
        assert "auto ignores" not in server.output


@pytest.mark.slow
def test_ctrl_c_ends_all_processes(tmp_path: Path) -> None:
    with module("turnpike", "tune", "--users", "1", "--precision", "fp32", "--out", tmp_path) as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("1/"):
                break
        family = children(process.pid)
        assert family
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert "measurements were made, and the same command continues" in output
    assert [pid for pid in family if Path(f"/proc/{pid}").exists()] == []
    assert list(tmp_path.iterdir()) == []


def children(pid: int) -> list[int]:
    """All processes that this one started, and those that they started."""
    columns = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout.split()
    parents = dict(zip(map(int, columns[::2]), map(int, columns[1::2]), strict=True))
    direct = [child for child, parent in parents.items() if parent == pid]
    return [*direct, *(process for child in direct for process in children(child))]
