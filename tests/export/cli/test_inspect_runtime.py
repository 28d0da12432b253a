"""`turnpike inspect --runtime`: what onnxruntime makes of a file."""

from __future__ import annotations

import json
from pathlib import Path

import onnx_ir as ir
import pytest

from tests.export.optimized.networks import CASES
from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.run_cli import run_in_process
from turnpike.commands import COMMANDS, VARIANTS, command_of, missing_extra
from turnpike.export.cli.inspect_runtime import optimized_summary, show_optimized
from turnpike.export.optimized.decide_optimized import decide_optimized


def test_the_bundled_model_keeps_its_function() -> None:
    shown = run_in_process("inspect", BUNDLED_MODEL, "--runtime")
    assert shown.exit_code == 0
    assert "com.microsoft.FusedGemm" in shown.stdout
    assert "the same function of every input and lever as the file, in exact arithmetic" in shown.stdout


def test_as_json(tmp_path: Path) -> None:
    """A file without a manifest, too."""
    path = tmp_path / "model.onnx"
    path.write_bytes(CASES["convolution"].data)
    record = json.loads(run_in_process("inspect", path, "--runtime", "--json").stdout)
    runtime = record["runtime"]
    assert record["disabled_optimizers"] == []
    assert runtime["verdict"] == "identical"
    assert runtime["operators"]["file"]["Conv"] == 2
    assert 0 < runtime["max_ulps"] == max(constant["ulps"] for constant in runtime["constants"])


def test_optimizers_that_are_left_out_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    graph = decide_optimized(CASES["attention"].data)
    show_optimized(graph, ("Pad_Fusion",))
    shown = capsys.readouterr().out
    assert "served without: Pad_Fusion" in shown
    assert f"up to {graph.ulps:.2g} units in the last place from the file's own" in shown


def test_an_undecided_graph_says_why() -> None:
    model = CASES["attention"].optimized()
    node = next(node for node in model.graph if node.op_type == "Softmax")
    node.op_type = "Hardmax"
    summary = optimized_summary(CASES["attention"].decide(model))
    assert summary["verdict"] == "not decided"
    assert summary["reason"].endswith("Hardmax: an operator that is not known here")


@pytest.mark.parametrize(("name", "problem"), [("", "a folder"), ("absent.onnx", "no such file")])
def test_it_needs_a_file(tmp_path: Path, name: str, problem: str) -> None:
    shown = run_in_process("inspect", tmp_path / name, "--runtime")
    assert shown.exit_code == 1
    assert f"expected an .onnx file for --runtime, got {problem}" in shown.stderr


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"no model")
    shown = run_in_process("inspect", path, "--runtime")
    assert shown.exit_code == 1
    assert f"{path}: " in shown.stderr


def test_it_needs_the_extra_of_exports() -> None:
    name = command_of(["inspect", "model.onnx", "--runtime"])
    assert name in VARIANTS
    message = missing_extra(name, "onnx")
    assert message.startswith("turnpike inspect --runtime")
    assert "export" in message
    assert command_of(["inspect", "model.onnx", "--json"]) in COMMANDS
    assert command_of(["serve", "--runtime"]) == "serve"
    assert command_of(["unknown", "--runtime"]) == command_of([]) == ""


def test_rounding_of_nothing_is_nothing() -> None:
    graph = decide_optimized(CASES["highway"].data)
    assert (graph.ulps, graph.constants) == (0.0, ())
    assert len(list(graph.lines())) == 1


def test_a_summary_has_the_first_other_node() -> None:
    model = CASES["highway"].optimized()
    node = next(node for node in model.graph if node.op_type == "FusedGemm")
    node.attributes["activation"] = ir.AttrString("activation", "Tanh")
    summary = optimized_summary(CASES["highway"].decide(model))
    assert summary["verdict"] == "different"
    assert summary["first_difference"] is not None
    assert summary["different"]
