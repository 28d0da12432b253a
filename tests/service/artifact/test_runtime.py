"""Opening and running models, with files made by hand instead of by an export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from service.artifact import runtime as runtime_module
from service.artifact.manifest import METADATA_KEY
from service.artifact.runtime import device_available, expect_device, open_model
from service.errors import DeviceError, ModelFileError, RunError
from tests.support.manifests import MANIFEST


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
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    helper.set_model_props(proto, metadata or {})
    return proto.SerializeToString()


X = np.zeros((2, 4), np.float32)


def test_without_a_manifest_all_outputs_are_public() -> None:
    """Its inputs, outputs and levers are read from the graph."""
    runtime = open_model(model())
    assert runtime.manifest is None
    assert [str(tensor) for tensor in runtime.inputs] == ["x:float32[batch,4]"]
    assert [tensor.name for tensor in runtime.outputs] == ["output", "half"]
    assert runtime.hidden == ()
    assert [str(tensor) for tensor in runtime.levers] == ["bias:float32[4]"]


def test_a_manifest_hides_outputs() -> None:
    """Hidden outputs are returned only if they are requested."""
    runtime = open_model(model(metadata={METADATA_KEY: MANIFEST.to_json()}))
    assert runtime.manifest == MANIFEST
    assert [tensor.name for tensor in runtime.hidden] == ["half"]
    assert len(runtime.run({"x": X})) == 1
    assert runtime.run({"x": X}, []) == []
    (half,) = runtime.run({"x": X}, ["half"])
    assert half[0].tolist() == [0.5, 1, 1.5, 2]


def test_a_fed_lever_overrides_its_initializer() -> None:
    (output,) = open_model(model()).run({"x": X, "bias": np.full(4, 7, np.float32)}, ["output"])
    assert output[0].tolist() == [7, 7, 7, 7]


def test_a_manifest_of_another_graph_is_refused() -> None:
    """The outputs that the manifest names must exist."""
    data = model(outputs=("half",), metadata={METADATA_KEY: MANIFEST.to_json()})
    with pytest.raises(ModelFileError, match="a.onnx: manifest: outputs: the graph has no output 'output'"):
        open_model(data, where="a.onnx")


def test_files_that_are_not_models_are_refused(tmp_path: Path) -> None:
    """A missing file, a damaged one and one of another kind are named."""
    with pytest.raises(ModelFileError, match="gone.onnx: no such file"):
        open_model(tmp_path / "gone.onnx")
    for content in (b"", b"not a model", model()[:-20]):
        (tmp_path / "bad.onnx").write_bytes(content)
        with pytest.raises(ModelFileError, match="bad.onnx: onnxruntime cannot open it"):
            open_model(tmp_path / "bad.onnx")


def test_inputs_of_strings_are_refused() -> None:
    """Only tensors of numbers are supported."""
    text = helper.make_tensor_value_info("x", TensorProto.STRING, [1])
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [text],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [1])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    with pytest.raises(ModelFileError, match=r"x: expected a tensor of numbers, got tensor\(string\)"):
        open_model(proto.SerializeToString())


@pytest.mark.skipif(device_available("cuda"), reason="this machine has CUDA")
def test_a_missing_device_is_an_error() -> None:
    """It must not run on another device silently."""
    with pytest.raises(DeviceError, match="device: cuda needs an onnxruntime with CUDAExecutionProvider"):
        open_model(model(), device="cuda")


def test_a_device_can_be_tried_without_a_model() -> None:
    """A service whose device is missing must not start."""
    expect_device("cpu")
    if not device_available("cuda"):
        with pytest.raises(DeviceError, match="device: cuda needs"):
            expect_device("cuda")


def test_a_device_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise onnxruntime would run on the CPU."""
    monkeypatch.setitem(runtime_module.PROVIDERS, "cuda", "AzureExecutionProvider")
    monkeypatch.setitem(runtime_module.PROVIDER_OPTIONS, "cuda", {})
    monkeypatch.setattr(runtime_module, "device_available", lambda device: True)
    session = runtime_module.onnxruntime.InferenceSession
    monkeypatch.setattr(session, "get_providers", lambda self: ["CPUExecutionProvider"])
    with pytest.raises(DeviceError, match="could not start AzureExecutionProvider"):
        open_model(model(), device="cuda")


def test_bound_runs_give_the_same_outputs() -> None:
    """Outputs may be in any order and repeated. Inputs may have any memory layout, and levers are fed."""
    opened = open_model(model())
    x = np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::2][:, :3]
    feeds = {"x": np.asfortranarray(np.pad(x, ((0, 0), (0, 1)))), "bias": np.ones(4, np.float32)}
    for names in (["half", "output"], ["output", "half", "output"], ("half",)):
        bound = opened._run_bound(names, feeds)
        for actual, expected in zip(bound, opened.run(feeds, names), strict=True):
            assert np.array_equal(actual, expected)


def test_run_errors_say_whether_the_input_caused_them() -> None:
    """Wrong shapes and dtypes count as such. A missing input does not, since callers cannot cause it."""
    opened = open_model(model())
    for feeds in ({"x": X[:, :3]}, {"x": X.astype(np.float64)}, {"x": X, "bias": np.zeros(3, np.float32)}):
        with pytest.raises(RunError) as error:
            opened.run(feeds)
        assert error.value.caused_by_input
    with pytest.raises(RunError) as error:
        opened.run({})
    assert not error.value.caused_by_input


@pytest.mark.parametrize(("dims", "caused_by_input"), [(["batch", "words"], True), (["batch", 3], False)])
def test_shape_errors_are_caused_by_the_input_if_shapes_are_free(
    dims: list[str | int], caused_by_input: bool
) -> None:
    """A caller cannot choose a fixed shape."""
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "to"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor("to", TensorProto.INT64, [2], [-1, 4])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    with pytest.raises(RunError) as error:
        open_model(proto.SerializeToString()).run({"x": np.zeros((2, 3), np.float32)})
    assert error.value.caused_by_input is caused_by_input


def test_opening_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """onnxruntime would print a warning about each lever."""
    open_model(model())
    assert capfd.readouterr() == ("", "")
