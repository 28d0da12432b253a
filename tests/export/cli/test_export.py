"""`turnpike export`, `verify` and `inspect` as processes: results, errors, signals and full disks."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from typer import Exit
from typer.testing import Result

from tests.support.python_path import python_path
from tests.support.run_cli import command, environment, run, run_in_process, train_digits
from turnpike.export.cli.progress import StepProgress, other_gate_lines, show_messages, stoppable
from turnpike.export.report.data import ReportData
from turnpike.models.training.checkpoint import load_network

FACTORY = """
import torch
from torch import nn

class Highway(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.Linear(6, 6)
        self.t = nn.Linear(6, 6)
    def forward(self, x):
        t = torch.sigmoid(self.t(x))
        return t * torch.relu(self.h(x)) + (1 - t) * x

def make():
    torch.manual_seed(0)
    return nn.Sequential(Highway(), Highway(), nn.Linear(6, 3))
"""

EXPORT = ["export", "net.py:make", "--input", "x:float32[batch,6]", "--to", "repo"]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run of the default network."""
    return train_digits(tmp_path_factory.mktemp("runs") / "digits")


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs commands within this process, in a folder with a factory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TURNPIKE_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "net.py").write_text(FACTORY)
    return run_in_process


def files_in(folder: Path) -> list[str]:
    """Every file and folder that the command created."""
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in str(path)
    )


@pytest.mark.slow
def test_a_checkpoint_is_exported_inspected_and_verified(
    checkpoint: Path, tmp_path: Path, call: Callable[..., Result]
) -> None:
    """Export and inspect as processes, then verify, with the data that the network was tested on."""
    ran = run(tmp_path, "export", str(checkpoint), "--to", "repo", "--report", "report")
    assert ran.returncode == 0, ran.stderr
    assert "gates: 10 in 10 layers (coupled, identity carry)" in ran.stdout
    assert "samples: 10 rows" in ran.stdout
    assert "wrote repo/digits-10/1/model.onnx" in ran.stdout
    assert "" not in ran.stdout.splitlines()
    assert files_in(tmp_path / "repo") == ["digits-10", "digits-10/1", "digits-10/1/model.onnx"]
    assert files_in(tmp_path / "report") == ["index.html", "report.json"]
    model = "repo/digits-10/1/model.onnx"
    shown = json.loads(run(tmp_path, "inspect", model, "--json").stdout)
    assert shown["name"] == "digits-10"
    assert shown["version"] == 1
    assert shown["labels"] == list("0123456789")
    assert shown["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["batch", 1, 8, 8]}]
    assert shown["outputs"] == [{"name": "output", "dtype": "float32", "shape": ["batch", 10]}]
    assert [gate["layer"] for gate in shown["gates"]] == list(range(10))
    assert shown["parity"]["verdict"] == "pass"
    assert shown["batch_coupled"] is False
    assert shown["lesion"]["rows"] == shown["profile"]["rows"] > 300
    assert [sample["label"] for sample in shown["samples"]] == list("0123456789")
    assert shown["ranges"] == [{"input": "x", "low": 0, "high": 16}]
    page = (tmp_path / "report/index.html").read_text()
    assert shown["weights"] in page
    assert ">10 rows<" in page
    assert load_network(checkpoint / "model.safetensors")[1].metrics["test_accuracy"] == pytest.approx(
        shown["lesion"]["accuracy"], abs=1e-4
    )
    verified = call("verify", model, "--against", checkpoint, "--seed", "3")
    assert verified.exit_code == 0, verified.stderr
    assert "verified digits-10 version 1 on CPUExecutionProvider" in verified.stdout
    assert "layer09.transform_gate" in verified.stdout
    assert "the same function of every input, in exact arithmetic, in 21 outputs, at 3 sets of sizes" in (
        verified.stdout
    )


def test_inspect_shows_a_table(call: Callable[..., Result], tmp_path: Path) -> None:
    """Inputs, outputs, gates and proof; of a file from elsewhere, what its graph says."""
    exported = call(*EXPORT, "--name", "net")
    assert exported.exit_code == 0
    assert re.fullmatch(r"next: \S*turnpike serve repo", exported.stdout.splitlines()[-1])
    shown = call("inspect", "repo/net/1/model.onnx")
    for text in (
        "net, version 1",
        "x:float32[batch,6]",
        "layer01.transform_gate",
        "measured against the original network",
    ):
        assert text in shown.stdout
    assert re.search(r"samples +none", shown.stdout)
    import onnx

    model = onnx.load(tmp_path / "repo/net/1/model.onnx")
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "other.onnx")
    assert "no manifest" in call("inspect", "other.onnx").stdout
    empty = json.loads(call("inspect", "other.onnx", "--json").stdout)
    assert empty["name"] is None
    assert empty["gates"] == []
    assert empty["inputs"][0]["name"] == "x"


def test_inspect_needs_neither_torch_nor_onnx(call: Callable[..., Result], tmp_path: Path) -> None:
    """It runs where models are served."""
    assert call(*EXPORT, "--name", "net").exit_code == 0
    for name in ("torch", "onnx"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('no {name}', name='{name}')")
    ran = run(tmp_path, "inspect", "repo/net/1/model.onnx", PYTHONPATH=python_path(tmp_path))
    assert ran.returncode == 0, ran.stderr


def test_the_first_ten_other_gates_are_printed() -> None:
    sentences = [f"sigmoid_{number}: reason" for number in range(12)]
    first, *lines, last = other_gate_lines(sentences)
    assert first == "other gates (sigmoids that multiply something and form no highway, T * H + C * x):"
    assert lines == [f"  {sentence}" for sentence in sentences[:10]]
    assert last == "  and 2 more: --report lists all"
    assert len(list(other_gate_lines(sentences[:10]))) == 11
    assert list(other_gate_lines([])) == []


def test_notes_are_no_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    show_messages(["one [red]", "two"], ["three"])
    assert capsys.readouterr().out == "warning: one [red]\nwarning: two\nnote: three\n"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["export", "gone.safetensors", "--to", "repo"], 1, "gone.safetensors: no such file"),
        (["export", "net.py", "--to", "repo"], 1, "add the factory, as in net.py:make"),
        (["export", "net.py:make", "--to", "repo"], 2, "--input"),
        ([*EXPORT, "--precision", "fp8"], 2, "--precision: expected fp32, fp16, int8, got 'fp8'"),
        ([*EXPORT, "--opset", "9"], 2, "--opset: expected 18 to 23, got 9"),
        (
            [*EXPORT, "--expect-gates", "3"],
            1,
            "--expect-gates: expected 3, found 2: layer00.transform_gate, ",
        ),
        ([*EXPORT, "--name", "a/b"], 2, "--name: expected"),
        ([*EXPORT[:-1], "net.py"], 2, "--to: expected a folder that can be written, got net.py: net.py is"),
        (
            [*EXPORT, "--report", "net.py"],
            2,
            "--report: expected a folder that can be written, got net.py",
        ),
        (["export", "net.py:make", "--input", "x:float32[batch,7]", "--to", "repo"], 1, "net.py:"),
        ([*EXPORT, "--threads", "0"], 2, "--threads: expected 1 or more, got 0"),
        ([*EXPORT, "--samples", "-1"], 2, "--samples: expected 0 or more, got -1"),
        ([*EXPORT, "--labels", "gone.txt"], 2, "--labels: gone.txt: cannot be read (No such file"),
        ([*EXPORT, "--data", "gone.npz"], 2, "--data: expected a .csv, .parquet or .npz file, a folder"),
        (
            [*EXPORT, "--text-alphabet", "utf-8"],
            2,
            "--text-alphabet: expected bytes, elmo, characterbert, or a file of tokens, got",
        ),
        ([*EXPORT, "--text-alphabet", "bytes"], 2, "--text-alphabet: expected [NAME=]bytes for an input of"),
        ([*EXPORT, "--weights", "gone.pt"], 2, "--weights: gone.pt: no such file"),
        (["verify", "gone.onnx", "--against", "net.py:make"], 1, "gone.onnx: no such file"),
        (
            ["verify", "gone.onnx", "--against", "x", "--device", "tpu"],
            2,
            "--device: expected cpu, cuda, openvino",
        ),
        (["inspect", "net.py"], 1, "net.py: expected an ONNX model"),
    ],
)
def test_errors_are_one_line(
    call: Callable[..., Result], tmp_path: Path, arguments: list[str], status: int, message: str
) -> None:
    """Nothing is written."""
    ran = call(*arguments)
    assert ran.exit_code == status, ran.stderr
    assert message in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr
    assert files_in(tmp_path) == ["net.py"]


@pytest.mark.slow
def test_results_are_printed_as_json_or_not_at_all(call: Callable[..., Result], tmp_path: Path) -> None:
    """Warnings are printed in any case."""
    path = tmp_path / "repo/net/1/model.onnx"
    exported = json.loads(call(*EXPORT, "--name", "net", "--json").stdout)
    assert (exported["path"], exported["written"]) == (str(path.relative_to(tmp_path)), True)
    assert exported["manifest"]["name"] == "net"
    assert exported["manifest"]["parity"]["tensors"]
    (warning,) = exported["warnings"]
    again = call(*EXPORT, "--name", "net", "--quiet")
    assert (again.exit_code, " ".join(again.stdout.split())) == (0, f"warning: {warning}")
    verify = ["verify", str(path), "--against", EXPORT[1]]
    proved = json.loads(call(*verify, "--json").stdout)
    assert (proved["name"], proved["version"]) == ("net", 1)
    assert proved["parity"]["tensors"] == exported["manifest"]["parity"]["tensors"]
    assert proved["identity"]["verdict"] == "identical"
    assert proved["identity"]["error_bound"] < 1e-18
    quiet = call(*verify, "-q")
    assert (quiet.exit_code, " ".join(quiet.stdout.split())) == (0, f"warning: {warning}")


@pytest.mark.slow
def test_verify_names_a_changed_weight(call: Callable[..., Result], tmp_path: Path) -> None:
    assert call(*EXPORT, "--name", "net").exit_code == 0
    import onnx

    path = tmp_path / "repo/net/1/model.onnx"
    model = onnx.load(path)
    bias = next(tensor for tensor in model.graph.initializer if tensor.name == "1.t.bias")
    data = bytearray(bias.raw_data)
    data[0] ^= 1
    bias.raw_data = bytes(data)
    onnx.save(model, path)
    ran = call("verify", "repo/net/1/model.onnx", "--against", "net.py:make")
    assert ran.exit_code == 1
    assert "1.t.bias" in ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_a_stopped_export_leaves_no_files(tmp_path: Path, number: signal.Signals) -> None:
    """Neither a file nor a folder, whenever it is stopped."""
    (tmp_path / "net.py").write_text(FACTORY)
    with subprocess.Popen(
        command(*EXPORT), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("load:"):
                break
        process.send_signal(number)
        rest = process.stdout.read()
    assert process.returncode == (130 if number != signal.SIGKILL else -number)
    assert ("interrupted: nothing was written" in rest) == (number != signal.SIGKILL)
    assert files_in(tmp_path) == ["net.py"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_library_that_swallows_the_signal_only_delays_the_stop(number: signal.Signals) -> None:
    """The next step does not start, and signal handlers are restored."""
    before = signal.getsignal(number)

    def work() -> None:
        with stoppable() as check, StepProgress(check) as progress:
            progress.started("trace")
            with contextlib.suppress(BaseException):
                signal.raise_signal(number)
            progress.started("write")

    with pytest.raises(Exit) as raised:
        work()
    assert raised.value.exit_code == 130
    assert signal.getsignal(number) is before


OPEN_PLAINLY = """
import sys, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
print([output.name for output in session.get_outputs()], len(session.get_overridable_initializers()))
"""


def open_plainly(path: str) -> tuple[str, str]:
    """What plain onnxruntime offers of a file, and the warnings that it prints."""
    ran = subprocess.run(
        [sys.executable, "-c", OPEN_PLAINLY, path], capture_output=True, text=True, timeout=60, check=True
    )
    return ran.stdout.strip(), ran.stderr


@pytest.mark.slow
def test_the_plain_twin_suits_other_runtimes(call: Callable[..., Result], tmp_path: Path) -> None:
    """Plain onnxruntime opens it without a warning, and it is proved, recorded, shown and proved again."""
    ran = call(*EXPORT, "--name", "net", "--plain", "--report", "report")
    assert ran.exit_code == 0, ran.output
    assert "without gates: repo/net/1/plain.onnx" in ran.stdout.splitlines()
    assert files_in(tmp_path / "repo" / "net" / "1") == ["model.onnx", "plain.onnx"]
    offered, warnings = open_plainly("repo/net/1/model.onnx")
    assert warnings.count("appears in graph inputs") == 2  # one for each lever
    assert offered.endswith("2")
    assert open_plainly("repo/net/1/plain.onnx") == ("['output'] 0", "")
    content = (tmp_path / "repo/net/1/plain.onnx").read_bytes()
    assert json.loads((tmp_path / "report/report.json").read_text())["plain"] == {
        "path": "repo/net/1/plain.onnx",
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    shown = json.loads(call("inspect", "repo/net/1/plain.onnx", "--json").stdout)
    assert (shown["plain"], shown["gates"], shown["hidden"], shown["levers"]) == (True, [], [], [])
    assert [tensor["name"] for tensor in shown["parity"]["tensors"]] == ["output"]
    assert "no gates" not in call("inspect", "repo/net/1/plain.onnx").stdout
    verified = call("verify", "repo/net/1/plain.onnx", "--against", "net.py:make")
    assert verified.exit_code == 0, verified.output
    # a changed weight is found, as in the model itself
    model = onnx.load("repo/net/1/plain.onnx")
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == "1.t.bias")
    weight.raw_data = bytes(len(weight.raw_data))
    onnx.save(model, "changed.onnx")
    refused = call("verify", "changed.onnx", "--against", "net.py:make")
    assert refused.exit_code == 1
    assert "1.t.bias: expected the network's weights bit for bit" in refused.stderr


def test_a_stopped_report_leaves_the_model(
    call: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says that the model is complete, and where it is."""

    def stop(folder: Path, report: ReportData) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr("turnpike.export.report.write.write_report", stop)
    ran = call(*EXPORT, "--name", "net", "--report", "report")
    assert ran.exit_code == 130
    message = "interrupted: the report was not written; the model is complete: repo/net/1/model.onnx"
    assert message in ran.stdout.splitlines()
    assert call("inspect", "repo/net/1/model.onnx").exit_code == 0
    assert not (tmp_path / "report").exists()


@pytest.mark.thorough
@pytest.mark.slow
def test_a_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(FACTORY)
    assert run(tmp_path, *EXPORT, "--name", "net").returncode == 0
    path = tmp_path / "repo/net/1/model.onnx"
    before = path.read_bytes()
    max_bytes = len(before) // 2
    ran = subprocess.run(
        command(*EXPORT, "--name", "net", "--version", "1", "--replace", "--seed", "1"),
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, max_bytes)),
    )
    assert ran.returncode == 1
    assert ran.stderr == "error: repo/net/1/model.onnx: cannot be written (File too large)\n"
    assert path.read_bytes() == before
    assert files_in(tmp_path / "repo") == ["net", "net/1", "net/1/model.onnx"]


KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from turnpike.export.output.repository import write_checked
write_checked({Path(sys.argv[1]): b"new"}, lambda draft, path: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_kill_while_writing_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"old")
    arguments = [sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path / "model.onnx")]
    ran = subprocess.run(arguments, env=environment(), timeout=60, check=False)
    assert ran.returncode == -signal.SIGKILL
    assert (tmp_path / "model.onnx").read_bytes() == b"old"
