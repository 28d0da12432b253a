"""Tests of the loader: from a file to a model, and every reason to refuse a file."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.support.manifests import MANIFEST, stored_input
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import load_model, profile, put_model, with_manifest
from turnpike.service.artifact.manifest import Lever, Manifest, Sample
from turnpike.service.artifact.runtime import open_model, open_runtime
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.config.settings import Settings
from turnpike.service.errors import ModelFileError, UntriedError
from turnpike.service.gates.drift import sampled_run
from turnpike.service.registry import checked_file
from turnpike.service.registry.checked_file import batch_dimension
from turnpike.service.registry.loader import load, may_batch
from turnpike.service.registry.model import Model
from turnpike.service.registry.probe import ProbeResult
from turnpike.service.repository.scan import ModelFile
from turnpike.service.telemetry.counters import RequestCounters

Array = np.ndarray[Any, np.dtype[Any]]


def test_a_file_is_loaded_as_a_model(tmp_path: Path) -> None:
    """Name, signature, gates and levers come from the file, and outputs equal the file's."""
    gated = highway()
    file = put_model(tmp_path, "net", 4, with_manifest(gated))
    model = load_model(file)
    data = file.path.read_bytes()
    assert (model.name, model.version, model.path, model.bytes) == ("net", 4, file.path, len(data))
    assert model.digest == hashlib.sha256(data).hexdigest()
    assert model.labels == ("a", "b", "c")
    assert model.gates == gated.gates
    assert list(model.signature.inputs) == ["x"]
    assert list(model.signature.outputs) == ["logits"]
    assert len(model.signature.hidden) == 6
    assert model.signature.batch == "batch"
    assert model.signature.splittable == {"logits", *model.signature.hidden}
    assert model.distribution is False
    assert model.drift is None
    assert model.biases.keys() == gated.biases.keys()
    for name, bias in gated.biases.items():
        assert np.array_equal(model.biases[name], bias)
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    answer = asyncio.run(model.batcher.submit({"x": x}, 5, ("logits",)))
    assert np.array_equal(answer.arrays[0], open_model(data).run({"x": x})[0])


def test_runs_are_counted(tmp_path: Path) -> None:
    model = load_model(put_model(tmp_path))
    asyncio.run(model.batcher.submit({"x": np.zeros((3, 4), np.float32)}, 3, ("logits",)))
    assert model.counters.snapshot()["sizes"]["3"][0] == 1


def test_another_name_in_the_manifest_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The folder's name counts; the log also has the manifest's."""
    with caplog.at_level(logging.INFO):
        model = load_model(put_model(tmp_path, "renamed"))
    assert model.name == "renamed"
    assert "renamed/1: loaded" in caplog.text
    assert "exported as net/3, proved" in caplog.text
    assert model.digest in caplog.text


def test_a_file_without_a_manifest_is_refused(tmp_path: Path) -> None:
    """If a setting allows it, the model has neither labels nor gates."""
    file = put_model(tmp_path, data=highway().model)
    with pytest.raises(ModelFileError, match="expected a file exported by turnpike") as error:
        load_model(file)
    assert "no manifest" in error.value.public_message
    model = load_model(file, allow_unverified=True)
    assert (model.manifest, model.labels, model.gates, dict(model.biases)) == (None, (), (), {})
    assert model.batcher.runner.batched


def outside(data: bytes) -> bytes:
    model = onnx.load_from_string(data)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../weights.bin")
    return model.SerializeToString()


def unrunnable(data: bytes) -> bytes:
    model = onnx.load_from_string(data)
    model.graph.node[0].op_type = "Nonsense"
    return model.SerializeToString()


def with_two_manifests() -> bytes:
    model = onnx.load_from_string(with_manifest(highway()))
    model.metadata_props.append(model.metadata_props[0])
    return model.SerializeToString()


def changed(change: Callable[[bytes], bytes]) -> bytes:
    """The network's file with a change, and with a manifest that fits it."""
    gated = highway()
    return with_manifest(replace(gated, model=change(gated.model)))


GATE = highway().gates[0]
LEVER = GATE.levers[0]


@pytest.mark.parametrize(
    ("data", "message", "public"),
    [
        (b"", "expected an ONNX model", "its file is damaged or not an ONNX model"),
        (with_manifest(highway())[:-9], "expected an ONNX model", "its file is damaged or not an ONNX model"),
        (
            changed(outside),
            "expected its values in this file",
            "its weights are in another file",
        ),
        (
            changed(unrunnable),
            "onnxruntime cannot open it",
            "its file is damaged or not an ONNX model",
        ),
        (
            with_manifest(highway(), outputs=("gone",)),
            "manifest: outputs: the graph has no output 'gone'",
            "its file cannot be served",
        ),
        (
            with_manifest(highway(), gates=(GATE.model_copy(update={"name": "gone"}),)),
            "manifest: gone: the graph has no hidden output 'gone'",
            "its manifest does not match its graph",
        ),
        (
            with_manifest(highway(), gates=(GATE.model_copy(update={"output": "gone"}),)),
            "the graph has no hidden output 'gone'",
            "its manifest does not match its graph",
        ),
        (
            with_manifest(highway(levers=False), gates=(GATE,)),
            "the lever 'layers.0.gate.bias' cannot be overridden",
            "its manifest does not match its graph",
        ),
        (
            with_manifest(
                highway(),
                gates=(GATE.model_copy(update={"levers": (LEVER.model_copy(update={"tensor": "gone"}),)}),),
            ),
            "expected an initializer 'gone', and the graph has none",
            "its file cannot be served",
        ),
        (
            with_manifest(
                highway(),
                gates=(GATE.model_copy(update={"levers": (LEVER.model_copy(update={"stop": 7}),)}),),
            ),
            "has no part 0:7",
            "its manifest does not match its graph",
        ),
        (
            with_manifest(highway(), samples=(Sample(inputs=(stored_input("x", [1, 2, 3]),)),)),
            "expected a row of x:float32.batch,4., got one of shape .3.",
            "its manifest does not match its graph",
        ),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused(tmp_path: Path, data: bytes, message: str, public: str) -> None:
    """The log has path and reason; the public message has neither path nor text of a library."""
    file = put_model(tmp_path, data=data)
    with pytest.raises(ModelFileError, match=message) as error:
        load_model(file)
    assert str(file.path) in str(error.value)
    assert error.value.public_message == public


def test_an_invalid_manifest_is_refused(tmp_path: Path) -> None:
    """A manifest that cannot be read is an error even if none is required."""
    model = onnx.load_from_string(highway().model)
    onnx.helper.set_model_props(model, {"turnpike": "{}"})
    with pytest.raises(ModelFileError, match="manifest: "):
        load_model(put_model(tmp_path, data=model.SerializeToString()), allow_unverified=True)


def test_a_file_replaced_while_it_is_opened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The served file must be the checked one."""
    file = put_model(tmp_path)

    def exchanged(path: Path, manifest: Manifest, **options: Any) -> Any:
        put_model(tmp_path, data=with_manifest(highway(seed=9)))
        return open_runtime(path, manifest, **options)

    monkeypatch.setattr(checked_file, "open_runtime", exchanged)
    with pytest.raises(ModelFileError, match="has changed since then"):
        load_model(file)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (unrunnable(highway().model), "expected a file exported by turnpike"),
        (unrunnable(with_manifest(highway())), "expected the graph and weights that were exported"),
        (unrunnable(with_two_manifests()), "its metadata has the key 'turnpike' 2 times"),
    ],
)
def test_the_manifest_is_judged_before_the_file_is_opened(tmp_path: Path, data: bytes, message: str) -> None:
    """onnxruntime cannot open any of these files, and opening others takes it minutes."""
    with pytest.raises(ModelFileError, match=message):
        load_model(put_model(tmp_path, data=data))


def test_a_file_without_a_manifest_needs_a_trial(tmp_path: Path) -> None:
    """It is not opened before, even if no manifest is required."""
    file = put_model(tmp_path, data=unrunnable(highway().model))
    with pytest.raises(UntriedError):
        load(file, Settings(allow_unverified=True), RequestCounters(), 1, tried=False)
    proved = put_model(tmp_path, version=2)
    assert load(proved, Settings(allow_unverified=True), RequestCounters(), 1, tried=False).manifest


def test_a_missing_device_is_an_error(tmp_path: Path) -> None:
    """The public message does not name providers."""
    file = put_model(tmp_path)
    with pytest.raises(ModelFileError, match="device: cuda needs an onnxruntime with") as error:
        load_model(file, device="cuda")
    assert error.value.public_message == "its device is not available"


@pytest.mark.parametrize(
    ("dims", "batch"),
    [
        ([("batch", 4), ("batch",)], "batch"),
        ([("batch", 4), ("rows", 4)], None),
        ([("batch", 4), (4,)], None),
        ([(1, 4)], None),
        ([()], None),
        ([], None),
    ],
)
def test_the_batch_is_the_first_dimension_of_all_inputs(
    dims: Sequence[tuple[int | str, ...]], batch: str | None
) -> None:
    assert batch_dimension([Tensor(str(n), "float32", shape) for n, shape in enumerate(dims)]) == batch


STEADY = ProbeResult(ran=True, bit_stable=True)
FILE = ModelFile("net", 1, Path("model.onnx"), (1, 2, 3))
COUPLED = MANIFEST.model_copy(update={"batch_coupled": True})


@pytest.mark.parametrize(
    ("result", "exact", "batched", "message"),
    [
        (STEADY, True, True, ""),
        (replace(STEADY, bit_stable=False), True, False, "rows get other last bits in a batch"),
        (replace(STEADY, bit_stable=False), False, True, ""),
        (replace(STEADY, coupled=True), False, False, "depends on the other rows of its batch"),
        (ProbeResult(ran=False), False, False, "it accepts none of the random rows"),
    ],
)
def test_models_whose_rows_change_in_a_batch_are_not_batched(
    result: ProbeResult, exact: bool, batched: bool, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`exact` requires equal bits. One warning gives the reason."""
    assert may_batch(result, MANIFEST, FILE, exact=exact) is batched
    assert [message in record.message for record in caplog.records] == [True] * bool(message)


def test_a_model_declared_as_coupled_gives_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert not may_batch(STEADY, COUPLED, FILE, exact=False)
    assert caplog.records == []


def test_a_coupled_model_runs_each_request_alone(tmp_path: Path) -> None:
    assert not load_model(
        put_model(tmp_path, data=with_manifest(highway(), batch_coupled=True))
    ).batcher.runner.batched


def test_a_graph_of_fixed_batch_size_runs_each_request_alone(tmp_path: Path) -> None:
    model = load_model(put_model(tmp_path, data=with_manifest(highway(batch=2))))
    assert model.signature.batch is None
    assert not model.batcher.runner.batched


def test_max_batch_limits_the_rows_of_a_run(tmp_path: Path) -> None:
    model = load_model(put_model(tmp_path), max_batch=4)
    asyncio.run(model.batcher.submit({"x": np.zeros((9, 4), np.float32)}, 9, ("logits",)))
    assert model.counters.snapshot()["sizes"].keys() == {"4", "1"}


class FakeMonitor:
    """A drift monitor that samples every run, and records what it observes."""

    gate_names = ("layer00.transform_gate",)

    def __init__(self) -> None:
        self.seen: list[tuple[list[Array], int | None]] = []

    def should_sample(self) -> bool:
        return True

    def observe(self, arrays: Sequence[Array], rows: int | None = None) -> None:
        self.seen.append((list(arrays), rows))


def run_of(
    monitor: FakeMonitor, *, pad_single_rows: bool = False
) -> Callable[[Mapping[str, Array]], list[Array]]:
    run = sampled_run(open_model(with_manifest(highway())), monitor, "batch", pad_single_rows=pad_single_rows)  # type: ignore[arg-type]
    return lambda feeds: run(feeds, ("logits",))


def test_drift_observes_gates_of_ordinary_requests() -> None:
    """The result has the requested outputs only, with the same bits."""
    gated, monitor = highway(), FakeMonitor()
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    arrays = run_of(monitor)({"x": x})
    assert len(arrays) == 1
    assert np.array_equal(arrays[0], gated.open().run({"x": x}, ["logits"])[0])
    ((gates, rows),) = monitor.seen
    assert rows == 5
    assert np.allclose(gates[0], gated.gate_values(x)[0], atol=1e-6)


def test_drift_does_not_observe_moved_gates() -> None:
    monitor = FakeMonitor()
    bias = highway().biases["layers.0.gate.bias"]
    run_of(monitor)({"x": np.zeros((5, 4), np.float32), "layers.0.gate.bias": bias - 1})
    assert monitor.seen == []


def test_an_error_in_drift_does_not_fail_the_request(caplog: pytest.LogCaptureFixture) -> None:
    """The failure is logged, and the request succeeds."""

    class Failing(FakeMonitor):
        def observe(self, arrays: Sequence[Array], rows: int | None = None) -> None:
            raise ValueError("expected other bins")

    assert len(run_of(Failing())({"x": np.zeros((5, 4), np.float32)})) == 1
    assert "expected other bins" in caplog.text


def test_drift_does_not_count_padding_rows() -> None:
    """A padding copy does not count; two different rows count as two."""
    monitor = FakeMonitor()
    run = run_of(monitor, pad_single_rows=True)
    run({"x": np.ones((2, 4), np.float32)})
    run({"x": np.arange(8, dtype=np.float32).reshape(2, 4)})
    run_of(monitor)({"x": np.ones((2, 4), np.float32)})
    assert [rows for _, rows in monitor.seen] == [1, 2, 2]


def test_a_model_with_a_profile_measures_drift(tmp_path: Path) -> None:
    gated = highway()
    model: Model = load_model(put_model(tmp_path, data=with_manifest(gated, profile=profile(gated))))
    assert model.drift is not None
    assert model.drift.gate_names == tuple(gate.name for gate in gated.gates)
    asyncio.run(model.batcher.submit({"x": np.zeros((3, 4), np.float32)}, 3, ("logits",)))
    assert model.drift.snapshot()["seen"][0][0] > 0


MEASURE_MEMORY = """
import os, sys
from pathlib import Path
from turnpike.service.repository.scan import ModelFile, file_identity
from tests.support.tiny_repository import load_model

def memory():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

small, large = (ModelFile("net", 1, Path(path), file_identity(os.stat(path))) for path in sys.argv[1:])
load_model(small)
before = memory()
model = load_model(large)
print((memory() - before) / large.size)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is measured as Linux tells it")
def test_weights_are_in_memory_once(tmp_path: Path) -> None:
    """An open model takes little more memory than its file."""
    large = with_manifest(highway(layers=60, units=256))
    files = [put_model(tmp_path, "small"), put_model(tmp_path, "large", data=large)]
    process = subprocess.run(
        [sys.executable, "-c", MEASURE_MEMORY, *(str(file.path) for file in files)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert float(process.stdout) < 1.8


def test_levers_may_share_a_tensor(tmp_path: Path) -> None:
    halves = tuple(Lever(tensor=LEVER.tensor, start=start, stop=start + 3, sign=1) for start in (0, 3))
    gates = tuple(
        gate.model_copy(update={"levers": (half,)})
        for gate, half in zip(highway().gates[:2], halves, strict=True)
    )
    assert list(load_model(put_model(tmp_path, data=with_manifest(highway(), gates=gates))).biases) == [
        LEVER.tensor
    ]


def test_changed_weights_are_refused(tmp_path: Path) -> None:
    """One changed bit is enough."""
    data = bytearray(with_manifest(highway()))
    place = data.index(
        numpy_helper.to_array(onnx.load_from_string(bytes(data)).graph.initializer[0]).tobytes()
    )
    data[place] ^= 1
    with pytest.raises(ModelFileError, match="expected the graph and weights that were exported") as refused:
        load_model(put_model(tmp_path, data=bytes(data)))
    assert refused.value.public_message == "its graph or weights are not those that were exported"
