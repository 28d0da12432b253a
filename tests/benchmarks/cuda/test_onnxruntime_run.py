"""Each way of running onnxruntime is compared with the network's logits, and timed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from benchmarks.contestants.networks import CLASSES
from benchmarks.cuda.onnxruntime_run import BOUND, GRAPH, PLAIN, SERVICE, BoundRun, main, open_session
from benchmarks.cuda.run_times import Array
from benchmarks.errors import BenchmarkError

WIDTH, ROWS = 4, 6
WEIGHTS = np.random.default_rng(0).standard_normal((WIDTH, CLASSES)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A network of one product, with its rows and logits."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weights"], ["output"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", CLASSES])],
        [helper.make_tensor("weights", TensorProto.FLOAT, WEIGHTS.shape, WEIGHTS.ravel())],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    rows = np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)
    write_reference(tmp_path, rows, rows @ WEIGHTS)
    return tmp_path


def write_reference(folder: Path, rows: Array, logits: Array) -> None:
    (folder / "reference.json").write_text(json.dumps({"rows": rows.tolist(), "logits": logits.tolist()}))


@pytest.mark.parametrize("way", [PLAIN, SERVICE, BOUND])
def test_a_way_is_timed_in_every_batch(way: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A batch may have more rows than the network has rows to try."""
    main(way, "cpu", folder / "net.onnx", folder, 0.0, [1, 2 * ROWS + 1])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["rows"] for line in lines] == [1, 2 * ROWS + 1]
    assert all(0 < line["p50_ms"] <= line["p99_ms"] and line["rows_per_second"] > 0 for line in lines)


@pytest.mark.parametrize("way", [PLAIN, SERVICE, BOUND])
def test_wrong_logits_are_not_timed(way: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_reference(folder, np.ones((ROWS, WIDTH)), np.ones((ROWS, CLASSES)))
    with pytest.raises(BenchmarkError, match="batch 1: expected the network's logits, got"):
        main(way, "cpu", folder / "net.onnx", folder, 0.0, [1])
    assert capsys.readouterr().out == ""


def test_a_bound_run_reads_its_buffer_again(folder: Path) -> None:
    run = BoundRun(open_session(folder / "net.onnx", "cpu", cuda_graph=False), "cpu", 2, graph_id=7)
    for value in (1, 2):
        rows = np.full((2, WIDTH), value, np.float32)
        np.testing.assert_allclose(run(rows), rows @ WEIGHTS, rtol=1e-5)


def test_a_graph_needs_cuda(folder: Path) -> None:
    """The CPU would ignore the option, and be measured under the wrong name."""
    with pytest.raises(BenchmarkError, match="CUDA graph: expected the device cuda, got cpu"):
        main(GRAPH, "cpu", folder / "net.onnx", folder, 0.0, [1])
