"""Opening and running models, with files made by hand instead of by an export."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.support.manifests import MANIFEST
from tests.support.openvino import replace_openvino
from turnpike.common.datatypes import DATATYPES
from turnpike.service.artifact import runtime as runtime_module
from turnpike.service.artifact.devices import PROVIDERS, expect_precision
from turnpike.service.artifact.manifest import METADATA_KEY
from turnpike.service.artifact.runtime import (
    DTYPE_BY_ONNX_TYPE,
    _openvino_cpu,
    _register_openvino,
    device_available,
    expect_device,
    open_model,
)
from turnpike.service.errors import DeviceError, ModelFileError, RunError


def test_every_dtype_of_a_model_has_a_datatype() -> None:
    """Every dtype that a model can have can be sent."""
    assert set(DTYPE_BY_ONNX_TYPE.values()) == set(DATATYPES)


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
# a model with an operator that does not exist
UNOPENABLE = runtime_module.PRODUCT_MODEL.replace(b"MatMul", b"NoSuch")


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


def test_padding_before_a_maximum_counts() -> None:
    """An optimizer of onnxruntime would take the zeros for the smallest number."""
    pads = helper.make_tensor("pads", TensorProto.INT64, [6], [0, 0, 1, 0, 0, 1])
    graph = helper.make_graph(
        [
            helper.make_node("Pad", ["x", "pads"], ["padded"]),
            helper.make_node("MaxPool", ["padded"], ["y"], kernel_shape=[2], strides=[1]),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 1, 4])],
        [pads],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    runtime = open_model(proto.SerializeToString())
    (y,) = runtime.run({"x": np.float32([[[-1, -2, -3]]])}, ["y"])
    assert y.tolist() == [[[0, -1, -2, 0]]]


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
        with pytest.raises(ModelFileError, match="bad.onnx: expected an ONNX model"):
            open_model(tmp_path / "bad.onnx")
    with pytest.raises(ModelFileError, match="bad.onnx: onnxruntime cannot open it"):
        open_model(UNOPENABLE, where="bad.onnx")


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
    with pytest.raises(
        ModelFileError, match=r"x: expected a tensor of numbers, got tensor\(string\)"
    ) as error:
        open_model(proto.SerializeToString())
    assert error.value.public_message == "one of its inputs or outputs is not a tensor of numbers"


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


def test_a_device_that_opens_no_model_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service must not start on it."""
    monkeypatch.setattr(runtime_module, "PRODUCT_MODEL", UNOPENABLE)
    with pytest.raises(DeviceError, match="device: a model that tries cpu: onnxruntime cannot open it"):
        expect_device("cpu")


def test_a_device_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise onnxruntime would run on the CPU."""
    monkeypatch.setitem(runtime_module.PROVIDERS, "cuda", "AzureExecutionProvider")
    monkeypatch.setattr(runtime_module, "provider_options", lambda *arguments: {})
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


@pytest.fixture
def openvino(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_openvino(monkeypatch)


@pytest.mark.usefixtures("openvino")
def test_overridden_levers_take_effect_on_openvino() -> None:
    """Its graphs have no levers, so a run that was sent there would fail. A file without levers has none."""
    runtime = open_model(model(metadata={METADATA_KEY: MANIFEST.to_json()}), device="openvino")
    assert runtime.cpu_runtime is not None
    assert [tensor.name for tensor in runtime.levers] == ["bias"]
    (output,) = runtime.run({"x": X, "bias": np.full(4, 7, np.float32)}, ["output"])
    assert output[0].tolist() == [7, 7, 7, 7]
    output, half = runtime.run({"x": X}, ["output", "half"])
    assert (output[0].tolist(), half[0].tolist()) == ([1, 2, 3, 4], [0.5, 1, 1.5, 2])


@pytest.mark.usefixtures("openvino")
def test_predictions_on_openvino_have_a_graph_without_hidden_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenVINO computes every output of a graph, also those that are not requested."""
    sessions: list[tuple[list[str], list[str]]] = []
    session = runtime_module.onnxruntime.InferenceSession
    run = session.run

    def recorded_run(self: Any, names: Any, feeds: Any) -> Any:
        sessions.append((list(names), [output.name for output in self.get_outputs()]))
        return run(self, names, feeds)

    monkeypatch.setattr(session, "run", recorded_run)
    runtime = open_model(model(metadata={METADATA_KEY: MANIFEST.to_json()}), device="openvino")
    runtime._run(["output"], {"x": X})
    assert sessions == [(["output"], ["output"])]
    sessions.clear()
    output, half = runtime._run(["output", "half"], {"x": X})
    assert (output[0].tolist(), half[0].tolist()) == ([1, 2, 3, 4], [0.5, 1, 1.5, 2])
    # an output has the same bits with gates and without them, since it is from the same graph
    assert sorted(sessions) == [(["half"], ["output", "half"]), (["output"], ["output"])]


@pytest.mark.usefixtures("openvino")
def test_too_little_memory_for_the_graphs_of_openvino_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are copies of the file; onnxruntime's own errors about memory come later."""

    def fail(*arguments: Any) -> bytes:
        raise MemoryError

    monkeypatch.setattr(runtime_module, "reduce_graph", fail)
    with pytest.raises(ModelFileError, match="model.onnx: onnxruntime cannot open it") as error:
        open_model(model(), device="openvino")
    assert error.value.public_message == "there is not enough memory to load it"


@pytest.mark.usefixtures("openvino")
def test_bf16_is_found_out_from_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU provider computes in fp32, as OpenVINO does on some CPUs, and says as little."""
    monkeypatch.setattr(runtime_module, "expect_precision", lambda *arguments: None)
    runtime_module.openvino_computes_in_bf16.cache_clear()
    with pytest.raises(DeviceError, match="precision: expected bf16, but OpenVINO computes in fp32"):
        open_model(model(), device="openvino", precision="bf16")
    with pytest.raises(DeviceError, match="precision: expected bf16, but OpenVINO computes in fp32"):
        expect_device("openvino", "bf16")
    runtime_module.openvino_computes_in_bf16.cache_clear()
    (product,) = open_model(runtime_module.PRODUCT_MODEL).run({"x": np.array([[3]], np.float32)})
    assert product.tolist() == [[3]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("processor : 0\nflags\t\t: fpu avx512f avx512_bf16\n", ""),
        ("flags : fpu amx_bf16\n", ""),
        ("Features : fp asimd bf16\n", ""),
        ("flags : fpu avx2\n", "bf16 needs a CPU with amx_bf16 or avx512_bf16, and this one has neither"),
    ],
)
def test_bf16_needs_a_cpu_that_has_it(tmp_path: Path, text: str, message: str) -> None:
    """OpenVINO would compute in fp32 and say nothing. A CPU that does not tell its flags is tried."""
    (tmp_path / "cpuinfo").write_text(text, encoding="utf-8")
    if message:
        with pytest.raises(DeviceError, match=message):
            expect_precision("openvino", "bf16", tmp_path / "cpuinfo")
    else:
        expect_precision("openvino", "bf16", tmp_path / "cpuinfo")
    expect_precision("openvino", "bf16", tmp_path / "absent")


def test_openvino_needs_its_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "OPENVINO_MODULE", "absent_plugin")
    assert not device_available("openvino")
    message = (
        r"device: openvino needs onnxruntime-ep-openvino, which is not installed: pip install .*serve-op"
    )
    with pytest.raises(DeviceError, match=message):
        expect_device("openvino", "bf16")


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A plugin whose library is the file "library" of this folder."""
    (tmp_path / "test_plugin.py").write_text(
        f"def get_library_path():\n    return {str(tmp_path / 'library')!r}\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(runtime_module, "OPENVINO_MODULE", "test_plugin")
    monkeypatch.setattr(runtime_module, "_register_openvino", cache(_register_openvino.__wrapped__))
    yield tmp_path
    sys.modules.pop("test_plugin", None)


def test_looking_for_the_plugin_loads_nothing(plugin: Path) -> None:
    assert device_available("openvino")
    assert "test_plugin" not in sys.modules


def test_a_plugin_that_cannot_be_loaded_is_an_error(plugin: Path) -> None:
    """At each attempt: the second is no "already registered"."""
    (plugin / "library").write_bytes(b"not a library")
    for _ in range(2):
        with pytest.raises(
            DeviceError, match="device: onnxruntime cannot load onnxruntime-ep-openvino [(].*library"
        ):
            expect_device("openvino")


@pytest.mark.usefixtures("plugin")
def test_a_cpu_that_the_plugin_does_not_support_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """On such a CPU the plugin has no device."""
    cpus = [cpu for cpu in onnxruntime.get_ep_devices() if cpu.ep_name == PROVIDERS["cpu"]]
    monkeypatch.setattr(onnxruntime, "register_execution_provider_library", lambda *arguments: None)
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: cpus)
    message = (
        f"expected a CPU of Intel, which onnxruntime-ep-openvino needs, got one of {cpus[0].device.vendor}"
    )
    with pytest.raises(DeviceError, match=message):
        expect_device("openvino")


@pytest.mark.usefixtures("plugin")
def test_threads_that_open_models_register_the_plugin_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime refuses to register a library twice."""
    libraries = []

    def register(name: str, library: str) -> None:
        time.sleep(0.01)
        libraries.append(library)

    monkeypatch.setitem(PROVIDERS, "openvino", PROVIDERS["cpu"])
    monkeypatch.setattr(onnxruntime, "register_execution_provider_library", register)
    with ThreadPoolExecutor(4) as threads:
        devices = list(threads.map(lambda _: _openvino_cpu(), range(4)))
    assert [device.ep_name for device in devices] == [PROVIDERS["cpu"]] * 4
    assert len(libraries) == 1
