"""The one place that opens a model, with files that no exporter made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from service.errors import DeviceError, ModelFileError
from service.manifest import KEY
from service.runtime import available, open_model
from tests.test_manifest import MANIFEST


def model(*, outputs: tuple[str, ...] = ("output", "half"), metadata: dict[str, str] | None = None) -> bytes:
    """output = x + bias, half = output / 2, with the bias as a lever."""
    weights = [
        helper.make_tensor("bias", TensorProto.FLOAT, [4], [1.0, 2, 3, 4]),
        helper.make_tensor("two", TensorProto.FLOAT, [], [2.0]),
    ]
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "bias"], ["output"]),
            helper.make_node("Div", ["output", "two"], ["half"]),
        ],
        "net",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4]),
            helper.make_tensor_value_info("bias", TensorProto.FLOAT, [4]),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in outputs],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    helper.set_model_props(made, metadata or {})
    return made.SerializeToString()


X = np.zeros((2, 4), np.float32)


def test_a_file_without_a_manifest_is_all_public() -> None:
    """Its inputs, outputs and levers are read from the graph."""
    runtime = open_model(model())
    assert runtime.manifest is None
    assert [str(one) for one in runtime.inputs] == ["x:float32[batch,4]"]
    assert [one.name for one in runtime.outputs] == ["output", "half"]
    assert runtime.hidden == ()
    assert [str(one) for one in runtime.levers] == ["bias:float32[4]"]


def test_a_manifest_says_what_is_hidden() -> None:
    """Hidden outputs are left out unless they are asked for."""
    runtime = open_model(model(metadata={KEY: MANIFEST.to_json()}))
    assert runtime.manifest == MANIFEST
    assert [one.name for one in runtime.hidden] == ["half"]
    assert len(runtime.run({"x": X})) == 1
    assert runtime.run({"x": X}, []) == []
    (half,) = runtime.run({"x": X}, ["half"])
    assert half[0].tolist() == [0.5, 1, 1.5, 2]


def test_a_lever_may_be_given() -> None:
    """In place of the initializer of its name."""
    (output,) = open_model(model()).run({"x": X, "bias": np.full(4, 7, np.float32)}, ["output"])
    assert output[0].tolist() == [7, 7, 7, 7]


def test_a_manifest_of_another_graph_is_refused() -> None:
    """An output it names must be there."""
    data = model(outputs=("half",), metadata={KEY: MANIFEST.to_json()})
    with pytest.raises(ModelFileError, match="a.onnx: manifest: outputs: the graph has no output 'output'"):
        open_model(data, where="a.onnx")


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    """An absent, a damaged and another kind of file, each by its name."""
    with pytest.raises(ModelFileError, match="gone.onnx: no such file"):
        open_model(tmp_path / "gone.onnx")
    for content in (b"", b"not a model", model()[:-20]):
        (tmp_path / "bad.onnx").write_bytes(content)
        with pytest.raises(ModelFileError, match="bad.onnx: onnxruntime cannot open it"):
            open_model(tmp_path / "bad.onnx")


def test_inputs_that_are_no_tensors_are_refused() -> None:
    """Only tensors of numbers go over the wire."""
    text = helper.make_tensor_value_info("x", TensorProto.STRING, [1])
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [text],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [1])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    with pytest.raises(ModelFileError, match=r"x: expected a tensor of numbers, got tensor\(string\)"):
        open_model(made.SerializeToString())


@pytest.mark.skipif(available("cuda"), reason="this machine has CUDA")
def test_a_missing_device_is_said() -> None:
    """Never silently on another one."""
    with pytest.raises(DeviceError, match="device: cuda needs an onnxruntime with CUDAExecutionProvider"):
        open_model(model(), device="cuda")


def test_opening_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """onnxruntime would warn of each lever."""
    open_model(model())
    assert capfd.readouterr() == ("", "")


def test_onnx_agrees_that_it_is_a_model() -> None:
    """The files above are what they are meant to be."""
    onnx.checker.check_model(model(), full_check=True)
