"""The command line as a user sees it (real processes, exit statuses, output), and the public names."""

from __future__ import annotations

import ast
import atexit
import errno
import gc
import itertools
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import Result

import turnpike
from tests.support.python_path import python_path
from tests.support.run_cli import ROOT, command, environment, run, run_in_process
from turnpike import cli
from turnpike.commands import COMMANDS
from turnpike.common.distribution import needs_extra
from turnpike.models.training.checkpoint import read_checkpoint


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Call the command in this process, which saves importing torch for each case."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TURNPIKE_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    return run_in_process


def test_help_has_one_line_per_command(tmp_path: Path) -> None:
    result = run(tmp_path, "--help")
    assert result.returncode == 0
    for name, entry in COMMANDS.items():
        assert name in result.stdout
        assert entry.help in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(
    call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """`turnpike COMMAND --help` shows the command's own options in full, on a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    result = call(name, "--help")
    assert result.exit_code == 0, result.stderr
    assert f"turnpike {name}" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    parameters = cli.load_command(name).params
    assert parameters
    for parameter in parameters:
        if parameter.param_type_name != "argument":
            for option in (*parameter.opts, *parameter.secondary_opts):
                assert re.search(rf"{option}(?![\w-])", result.stdout), option


@pytest.mark.slow
def test_a_network_is_trained_from_the_command_line(tmp_path: Path) -> None:
    """Training a preset writes the checkpoints and pictures into --out, and nothing else."""
    result = run(tmp_path, "train", "digits-10", "--epochs", "2", "--out", "mine")
    assert result.returncode == 0, result.stderr
    assert "test accuracy" in result.stdout
    assert "epoch 2/2: loss" in result.stdout
    assert result.stdout.endswith("turnpike export mine --to repository\n")
    written = sorted(entry.name for entry in (tmp_path / "mine").iterdir())
    assert written == [
        "gates.png",
        "history.png",
        "last.safetensors",
        "misclassified.png",
        "model.safetensors",
    ]
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine"]
    assert read_checkpoint(tmp_path / "mine" / "model.safetensors")[1].metrics["test_accuracy"] > 0.3


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["train"], 2, "PRESET: expected a network, such as digits-10"),
        (["train", "nope"], 2, "got 'nope'"),
        (["train", "digit-10"], 2, "got 'digit-10'. Did you mean 'digits-10'?"),
        (["train", "digits-10", "--data", "mine.npz"], 1, "data: 'mine.npz' does not exist"),
        (["train", "digits-10", "--data", "tables/mine"], 1, "data: 'tables/mine' does not exist"),
        (["train", "digits-10", "--epochs", "0"], 2, "epochs: expected 1 or more, got 0"),
        (["train", "digits-10", "--epochs", "two"], 2, "--epochs"),
        (["train", "digits-10", "--device", "tpu"], 2, "device: expected one of cpu, cuda, got 'tpu'"),
        (
            ["train", "digits-10", "--schedule", "warm"],
            2,
            "schedule: expected one of constant, cosine, onecycle",
        ),
        (["train", "digits-10", "--set", "width"], 2, "--set: expected NAME=VALUE, got 'width'"),
        (["train", "digits-10", "--set", "widht=3"], 2, "got 'widht'"),
        (["train", "digits-10", "--set", "width=wide"], 2, "width: expected a whole number, got 'wide'"),
        (["train", "digits-10", "--set", "batch_norm=False"], 2, "expected true or false, got 'False'"),
        (["train", "digits-10", "--set", "classes=5"], 2, "the data decide"),
        (["train", "digits-10", "--seed", "99999999999999999999"], 2, "seed: expected 0 to"),
        (["train", "digits-10", "--data", "parity-4", "--shift", "1"], 2, "shift: moves images"),
        (["train", "digits-10", "--batch", "1", "--set", "batch_norm=true"], 2, "batch: expected 2 or more"),
        (["train", "digits-10", "--set", "carry=none"], 2, "carry: expected one of coupled, independent"),
        (["train", "digits-10", "--resume"], 2, "holds no run to resume"),
        (["train", "digits-10", "--resume", "--fresh"], 2, "choose one"),
        (["train", "digits-10", "--data", "names"], 2, "mlp reads numbers, and names holds text"),
        (["train", "digits-10", "--data", "absent.npz"], 1, "absent.npz"),
        (["train", "deck-20", "--data-dir", "."], 1, "train-images-idx3-ubyte"),
        (["compare", "--families", "plain,wide"], 2, "wide"),
        (["compare", "--jobs", "0"], 2, "jobs: expected 1 or more, got 0"),
        (["trian"], 2, "Did you mean 'train'"),
    ],
)
def test_errors_are_one_line_and_write_nothing(
    call: Callable[..., Result], tmp_path: Path, arguments: list[str], status: int, message: str
) -> None:
    """The status is 2 for wrong usage and 1 for a failed job."""
    result = call(*arguments)
    assert result.exit_code == status, result.stderr
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--verbose", "train", "nope"], ["train", "nope", "--verbose"]])
def test_verbose_shows_the_traceback(call: Callable[..., Result], arguments: list[str]) -> None:
    """It may be anywhere in the command line."""
    result = call(*arguments)
    assert result.exit_code == 2
    assert "Traceback (most recent call last)" in result.stderr
    assert "error: preset: expected one of" in result.stderr


@pytest.mark.parametrize("wrong", [["--set", "widht=3"], ["--data", "absent.npz"], ["--seed", "-1"]])
def test_an_invalid_fresh_run_keeps_the_old_run(
    call: Callable[..., Result], tmp_path: Path, wrong: list[str]
) -> None:
    """--fresh removes the old run only if the new one can start."""
    arguments = ["train", "digits-10", "--epochs", "1", "--no-pictures", "--out", "run"]
    assert call(*arguments).exit_code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert call(*arguments, "--fresh", *wrong).exit_code > 0
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


@pytest.mark.thorough
@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "digits-10", "--epochs", "1", "--no-pictures", "--out", "run", "--quiet"],
        pytest.param(
            ["compare", "--depths", "2", "--families", "plain", "--epochs", "1", "--out", "run", "-q"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_quiet_command_prints_nothing(
    call: Callable[..., Result], tmp_path: Path, arguments: list[str]
) -> None:
    result = call(*arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert list((tmp_path / "run").iterdir())


def test_data_without_a_preset_trains_the_default_one(call: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "flowers.csv").write_text("width,kind\n" + "1.5,a\n2.5,b\n" * 60)
    result = call("train", "--data", "flowers.csv", "--epochs", "1", "--no-pictures")
    assert result.exit_code == 0, result.stderr
    assert "No PRESET: training digits-10" in result.stdout
    assert (tmp_path / "runs/digits-10/model.safetensors").is_file()


@pytest.mark.parametrize("arguments", [["train", "digits-10"], ["demo"], ["compare"]])
def test_an_out_that_is_a_file_is_refused(
    call: Callable[..., Result], tmp_path: Path, arguments: list[str]
) -> None:
    """If --out is a file, the command stops before training, and leaves the file alone."""
    (tmp_path / "notes.txt").write_text("mine")
    result = call(*arguments, "--out", "notes.txt")
    assert result.exit_code == 2
    assert "expected a folder that can be written, got notes.txt: notes.txt is a file" in result.stderr
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.slow
def test_a_fresh_run_leaves_no_pictures_of_the_old_one(call: Callable[..., Result], tmp_path: Path) -> None:
    """Old pictures would not match the new network; files of the user stay."""
    assert call("train", "digits-10", "--epochs", "1", "--out", "run").exit_code == 0
    (tmp_path / "run" / "notes.txt").write_text("mine")
    result = call("train", "digits-10", "--epochs", "1", "--out", "run", "--fresh", "--no-pictures")
    assert result.exit_code == 0
    assert "png" not in result.stdout
    written = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert written == ["last.safetensors", "model.safetensors", "notes.txt"]


def test_names_in_brackets_are_not_markup(call: Callable[..., Result], tmp_path: Path) -> None:
    """rich would read the name of such a folder as markup."""
    result = call("train", "digits-10", "--epochs", "1", "--no-pictures", "--out", "r[bold]/x[y]z")
    assert result.exit_code == 0, result.stderr
    assert "r[bold]/x[y]z/model.safetensors" in result.stdout


def test_options_override_settings_and_data_of_a_preset(call: Callable[..., Result], tmp_path: Path) -> None:
    """A network without an input layer needs its width set to that of the data's rows."""
    arguments = ["train", "deck-20", "--data", "digits", "--epochs", "1", "--no-pictures", "--out", "run"]
    assert "none needs rows of 784 values, got rows of 64" in call(*arguments).stderr
    assert call(*arguments, "--set", "width=64", "--set", "layers=2").exit_code == 0
    assert read_checkpoint(tmp_path / "run" / "model.safetensors")[1].config["width"] == 64


def test_embedded_data_needs_no_folder(call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing data folder is an error only for commands that read from it."""
    monkeypatch.setenv("TURNPIKE_DATA", "gone")
    assert call("train", "digits-10", "--epochs", "1", "--no-pictures").exit_code == 0
    assert "gone: expected a folder" in call("train", "fig1-10").stderr


def test_a_run_is_only_overwritten_with_fresh(call: Callable[..., Result], tmp_path: Path) -> None:
    """A folder with a run in it is left alone unless --fresh replaces it."""
    arguments = ["train", "digits-10", "--epochs", "1", "--no-pictures"]
    assert call(*arguments).exit_code == 0
    kept = (tmp_path / "runs/digits-10/model.safetensors").read_bytes()
    again = call(*arguments)
    assert again.exit_code == 2
    assert "--resume continues it, --fresh replaces it" in again.stderr
    assert (tmp_path / "runs/digits-10/model.safetensors").read_bytes() == kept
    assert call(*arguments, "--fresh", "--seed", "1").exit_code == 0
    assert (tmp_path / "runs/digits-10/model.safetensors").read_bytes() != kept


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_and_explains_how_to_resume(
    tmp_path: Path, call: Callable[..., Result], number: signal.Signals
) -> None:
    """An interrupted run exits with 130 and shows the command that resumes it to the same weights."""
    arguments = ["train", "digits-10", "--epochs", "10", "--no-pictures"]
    with subprocess.Popen(
        command(*arguments, "--out", "parts"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("epoch 2/"):
                break
        time.sleep(0.05)  # so that the signal comes in the middle of an epoch
        process.send_signal(number)
        rest = process.stdout.read()
    assert process.returncode == 130
    assert "To continue: turnpike train digits-10 --epochs 10 --no-pictures --out parts --resume" in rest
    assert call(*arguments, "--out", "parts", "--resume").exit_code == 0
    assert call(*arguments, "--out", "whole").exit_code == 0
    parts, whole = (read_checkpoint(tmp_path / name / "last.safetensors")[0] for name in ("parts", "whole"))
    assert all(torch.equal(parts[name], whole[name]) for name in whole)


@pytest.mark.slow
def test_a_killed_run_resumes_from_its_last_epoch(tmp_path: Path, call: Callable[..., Result]) -> None:
    """After kill -9 all files in the folder are whole, and --resume finishes the run."""
    arguments = ["train", "digits-10", "--epochs", "12", "--no-pictures", "--out", "run"]
    with subprocess.Popen(
        command(*arguments), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("epoch 2/"):
                process.kill()
                break
    read_checkpoint(tmp_path / "run" / "model.safetensors")
    assert len(read_checkpoint(tmp_path / "run" / "last.safetensors")[1].history) >= 1
    result = call(*arguments, "--resume")
    assert result.exit_code == 0, result.stderr
    assert len(read_checkpoint(tmp_path / "run" / "model.safetensors")[1].history) == 12


@pytest.mark.thorough
@pytest.mark.slow
def test_the_demo_reuses_existing_files(tmp_path: Path, call: Callable[..., Result]) -> None:
    """The first demo trains and exports; the second shows the same result and changes no file."""
    first = call("demo")
    assert first.exit_code == 0, first.stderr
    exported = tmp_path / "runs/demo/repository/digits-10/1/model.onnx"
    assert f"wrote {exported.relative_to(tmp_path)}" in first.stdout
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs/demo").rglob("*")}
    second = call("demo")
    assert second.exit_code == 0, second.stderr
    assert "already holds the trained network" in second.stdout
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs/demo").rglob("*")} == before
    assert f"already exported: {exported.relative_to(tmp_path)}" in second.stdout
    for result in (first, second):
        assert re.search(r"next: \S*turnpike serve runs/demo$", result.stdout.strip().splitlines()[-1])
    result = [line for line in first.stdout.splitlines() if line.startswith("test accuracy")]
    assert result == [line for line in second.stdout.splitlines() if line.startswith("test accuracy")]
    assert read_checkpoint(tmp_path / "runs/demo/model.safetensors")[1].metrics["test_accuracy"] > 0.95


@pytest.mark.thorough
@pytest.mark.slow
def test_an_interrupted_demo_explains_how_to_resume(tmp_path: Path) -> None:
    """The printed command works: the demo continues its own run."""
    with subprocess.Popen(
        command("demo", "--out", "mine"), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("epoch 2/"):
                break
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 130
    assert rest.rstrip().endswith("To continue: turnpike demo --out mine")
    assert run(tmp_path, "demo", "--out", "mine").returncode == 0
    # what an export that was killed leaves
    model = tmp_path / "mine/repository/digits-10/1/model.onnx"
    model.rename(model.with_name(".model.01234567.onnx"))
    assert run(tmp_path, "demo", "--out", "mine").returncode == 0
    assert list(model.parent.iterdir()) == [model]


def test_the_demo_refuses_a_run_of_another_preset(call: Callable[..., Result], tmp_path: Path) -> None:
    call("train", "grid-lstm-1d", "--epochs", "1", "--no-pictures", "--out", "run")
    result = call("demo", "--out", "run")
    assert result.exit_code == 2
    assert "run holds a run of grid-lstm-1d" in result.stderr


def completion(line: str) -> dict[str, str]:
    """The variables with which bash asks for completions of a line."""
    return {
        "_TURNPIKE_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }


def test_bash_completes_commands(tmp_path: Path) -> None:
    """The process that bash starts offers the commands."""
    assert "train" in run(tmp_path, **completion("turnpike tr")).stdout.split()


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("turnpike train fig1-10", ["fig1-10", "fig1-100", "fig1-100-plain"]),
        ("turnpike train digits-10 --da", ["--data", "--data-dir"]),
        ("turnpike train digits-10 --data fash", ["fashion-mnist"]),
    ],
)
def test_bash_completes_presets_options_and_data_sets(
    call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, line: str, offers: list[str]
) -> None:
    for name, value in completion(line).items():
        monkeypatch.setenv(name, value)
    result = call()
    assert set(offers) <= set(result.stdout.split()), result.stderr


def test_a_missing_library_names_its_extra(tmp_path: Path) -> None:
    """Without torch, one line says what to install."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('No module named torch', name='torch')")
    result = run(tmp_path, "train", "digits-10", PYTHONPATH=python_path(tmp_path))
    assert result.returncode == 1
    assert result.stderr == f"error: {needs_extra('turnpike train', 'torch', 'train')}\n"


def test_the_end_of_the_process_collects_no_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take a second after a command that imported PyTorch."""
    at_exit: list[object] = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    monkeypatch.setattr(sys, "argv", ["turnpike", "--version"])
    with pytest.raises(SystemExit):
        cli.main()
    assert gc.freeze in at_exit


def test_unexpected_errors_are_one_line(
    call: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the file system is shown with the system's message, without a traceback."""
    monkeypatch.setattr("turnpike.models.cli.training_run.expect_writable", lambda folder: None)
    (tmp_path / "runs").write_text("a file where a folder should be")
    result = call("train", "digits-10", "--epochs", "1")
    assert result.exit_code == 1
    assert result.stderr == "error: runs/digits-10: Not a directory\n"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("\x1b[31mtoo\x1b[0m\n many"), "unexpected ValueError: too many (--verbose shows where)"),
        (ValueError(), "unexpected ValueError (--verbose shows where)"),
        (OSError(), "OSError"),
        (OSError(errno.ENOSPC, "No space left", "a/b"), "a/b: No space left"),
        (OSError(errno.ENOSPC, "No space left"), "No space left"),
    ],
)
def test_no_part_of_a_message_is_empty(error: Exception, message: str) -> None:
    """Colors are left out."""
    assert cli.describe_error(error) == (message, 1)


def test_a_full_disk_under_the_output_is_named(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            command("--version"), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert (result.returncode, result.stderr) == (1, "error: standard output: No space left on device\n")


def test_version_equals_that_of_the_project(tmp_path: Path) -> None:
    """`--version` and the project file agree."""
    result = run(tmp_path, "--version")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert result.stdout.split() == ["turnpike", project["version"]]


def test_every_public_name_exists() -> None:
    """`from turnpike import NAME` works for each of `__all__`, and `dir(turnpike)` lists it."""
    for name in turnpike.__all__:
        assert getattr(turnpike, name).__name__ == name
    assert set(turnpike.__all__) <= set(dir(turnpike))
    assert sorted(turnpike.__all__) == sorted(itertools.chain(*turnpike._PUBLIC_NAMES.values()))


def test_type_checkers_see_the_same_names() -> None:
    """The imports under TYPE_CHECKING and the table of lazy imports are the same."""
    (block,) = [
        node
        for node in ast.parse(Path(turnpike.__file__).read_text(encoding="utf-8")).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    seen = {
        node.module: {alias.name for alias in node.names}
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    }
    assert seen == {module: set(names) for module, names in turnpike._PUBLIC_NAMES.items()}


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    """So `hasattr` and `from turnpike import` work as with any module."""
    with pytest.raises(AttributeError, match="module 'turnpike' has no attribute 'Highway'"):
        turnpike.Highway  # noqa: B018
    assert not hasattr(turnpike, "Highway")
