"""Models that are opened by prepared weights: the same bits, nothing read twice, and every way to fail."""

from __future__ import annotations

import logging
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.killed_preparation import POINTS
from tests.support.live_server import ROOT
from tests.support.onnx_sources import model_of, value
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import load_model, put_model, with_manifest
from turnpike.service.artifact import runtime
from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.runtime import Runtime
from turnpike.service.errors import ModelFileError
from turnpike.service.registry import checked_file, shared_weights
from turnpike.service.registry.checked_file import FileOptions
from turnpike.service.registry.model import Model
from turnpike.service.registry.probe import find_rows
from turnpike.service.registry.weights_preparation import prepare
from turnpike.service.repository.scan import ModelFile
from turnpike.service.weights import private_files
from turnpike.service.weights.cache import RETRY_SECONDS, WeightsCache
from turnpike.service.weights.entry import GRAPH, LEVERS, STAMP, WEIGHTS, Entry

Array = np.ndarray[Any, np.dtype[Any]]
GATED = highway(units=64)
PREPARED = "prepared its weights"


@pytest.fixture
def cache(tmp_path: Path) -> WeightsCache:
    return WeightsCache(tmp_path / "cache", 1 << 30, "a CPU", min_model_bytes=0, lock_seconds=5)


@pytest.fixture
def file(tmp_path: Path) -> ModelFile:
    return put_model(tmp_path / "models", data=with_manifest(GATED))


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as unchanged for long, although the tests have just written them."""
    monkeypatch.setattr(private_files, "SETTLED_NS", -(10**12))


@pytest.fixture
def prepared_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are prepared in the process of the test, which takes less time than to start another one."""

    def prepare_here(draft: Entry, file: ModelFile, options: FileOptions, manifest: Manifest | None) -> None:
        prepare(file.path, draft, options.threads)

    monkeypatch.setattr(shared_weights, "_prepare", prepare_here)


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, a test fails if a model file is read, or is probed."""

    def refuse(*_: object) -> None:
        raise AssertionError("expected a model that is known")

    def apply() -> None:
        monkeypatch.setattr(checked_file, "read_model_file", refuse)
        monkeypatch.setattr(checked_file, "probe", refuse)

    return apply


def mapped_files() -> set[str]:
    """Files of entries that this process has mapped."""
    return set(re.findall(r"/\S*/entries/\S+", Path("/proc/self/maps").read_text()))


def entry_folder(cache: WeightsCache) -> Path:
    (folder,) = [path for path in cache.entries.iterdir() if not path.name.startswith(".")]
    return folder


def outputs(runtime: Runtime, rows: int, **overridden: Array) -> list[bytes]:
    """Every output of some rows, as bytes."""
    names = [tensor.name for tensor in (*runtime.outputs, *runtime.hidden)]
    feeds = next(find_rows(runtime, "batch", rows))
    return [array.tobytes() for array in runtime.run(feeds | overridden, names)]


def expect_equal(model: Model, expected: Model) -> None:
    """All that requests see of two models is the same."""
    kept = {"serial", "runtime", "batcher", "counters", "drift", "biases", "cached_answers"}
    for field in fields(Model):
        if field.name not in kept:
            assert getattr(model, field.name) == getattr(expected, field.name), field.name
    assert model.biases.keys() == expected.biases.keys()
    for name, bias in expected.biases.items():
        assert model.biases[name].tobytes() == bias.tobytes()
    assert model.batcher.runner.batched == expected.batcher.runner.batched
    for rows in (1, 2, 7, 64):
        assert outputs(model.runtime, rows) == outputs(expected.runtime, rows)


def test_a_model_is_prepared_once_and_mapped_then(
    cache: WeightsCache, file: ModelFile, unread: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The second load reads neither the model file nor the rows of a probe, and gives the same model."""
    plain = load_model(file)
    with caplog.at_level(logging.INFO):
        first = load_model(file, weights=cache)
        assert caplog.text.count(PREPARED) == 1
        unread()
        second = load_model(file, weights=cache)
    assert caplog.text.count(PREPARED) == 1
    assert caplog.text.count("weights are shared, SHA-256") == 2
    assert mapped_files() == {str(entry_folder(cache) / WEIGHTS)}
    for model in (first, second):
        expect_equal(model, plain)


@pytest.mark.usefixtures("prepared_here")
def test_levers_have_the_same_effect(cache: WeightsCache, file: ModelFile) -> None:
    plain = load_model(file).runtime
    load_model(file, weights=cache)
    mapped = load_model(file, weights=cache).runtime
    assert mapped.levers == plain.levers
    moved = {name: bias - 50 for name, bias in GATED.biases.items()}
    assert outputs(mapped, 7, **moved) == outputs(plain, 7, **moved) != outputs(plain, 7)


@pytest.mark.usefixtures("prepared_here")
def test_other_settings_are_probed_anew(
    cache: WeightsCache, file: ModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest batch is among what a probe depends on."""
    load_model(file, weights=cache)
    probes = []

    def probe(runtime: Runtime, batch: str | None, max_rows: int) -> Any:
        probes.append(max_rows)
        return original(runtime, batch, max_rows)

    original = checked_file.probe
    monkeypatch.setattr(checked_file, "probe", probe)
    for _ in range(2):
        load_model(file, weights=cache, max_batch=4)
    assert probes == [4]


def conv() -> onnx.ModelProto:
    """Convolutions, whose weights and layout onnxruntime chooses by the CPU."""
    random = np.random.default_rng(0)
    kernel = random.normal(size=(32, 32, 3, 3)).astype(np.float32)
    first = random.normal(size=(32, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "b"], ["s"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["s"], ["y"]),
    ]
    weights = [numpy_helper.from_array(first, "a"), numpy_helper.from_array(kernel, "b")]
    return model_of(
        nodes,
        inputs=[value("x", "batch", 3, 8, 8)],
        outputs=[value("y", "batch", 32, 1, 1)],
        initializers=weights,
    )


def product(dtype: Any) -> onnx.ModelProto:
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return model_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        inputs=[value("x", "batch", 64, dtype=kind)],
        outputs=[value("y", "batch", 64, dtype=kind)],
        initializers=[numpy_helper.from_array(weight, "w")],
    )


def integer_product() -> onnx.ModelProto:
    """What an export in int8 has: a product of quantized numbers."""
    weight = np.random.default_rng(0).integers(-127, 127, size=(64, 64)).astype(np.int8)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["p"]),
        helper.make_node("Cast", ["p"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "scale"], ["y"]),
    ]
    return model_of(
        nodes,
        inputs=[value("x", "batch", 64)],
        outputs=[value("y", "batch", 64)],
        initializers=[numpy_helper.from_array(weight, "w")],
    )


def lstm() -> onnx.ModelProto:
    random = np.random.default_rng(0)
    shapes = {"w": (1, 64, 16), "r": (1, 64, 16), "b": (1, 128)}
    weights = [
        numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    return model_of(
        [helper.make_node("LSTM", ["x", "w", "r", "b"], ["", "", "y"], hidden_size=16)],
        inputs=[value("x", 3, "batch", 16)],
        outputs=[value("y", 1, "batch", 16)],
        initializers=weights,
    )


def branches() -> onnx.ModelProto:
    """A product in a branch of If, with weights of the outer graph."""

    def branch(weight: str) -> onnx.GraphProto:
        node = helper.make_node("MatMul", ["x", weight], [f"{weight}y"])
        return helper.make_graph([node], weight, [], [value(f"{weight}y", "batch", 64)])

    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "nought"], ["positive"]),
        helper.make_node("If", ["positive"], ["y"], then_branch=branch("a"), else_branch=branch("b")),
    ]
    weights = [
        numpy_helper.from_array(random.normal(size=(64, 64)).astype(np.float32), name) for name in "ab"
    ]
    return model_of(
        nodes,
        inputs=[value("x", "batch", 64)],
        outputs=[value("y", "batch", 64)],
        initializers=[*weights, numpy_helper.from_array(np.zeros((), np.float32), "nought")],
    )


@pytest.mark.usefixtures("prepared_here")
@pytest.mark.parametrize(
    "build",
    [conv, lambda: product(np.float16), lambda: product(np.float64), integer_product, lstm, branches],
    ids=["conv", "fp16", "fp64", "int8", "lstm", "branches"],
)
def test_other_operators_give_the_same_bits(
    tmp_path: Path, cache: WeightsCache, build: Callable[[], onnx.ModelProto]
) -> None:
    """Files without a manifest are prepared, too; the settings must allow them at every load."""
    file = put_model(tmp_path / "models", data=build().SerializeToString())
    plain = load_model(file, allow_unverified=True)
    for _ in range(2):
        model = load_model(file, weights=cache, allow_unverified=True)
        expect_equal(model, plain)
    assert mapped_files() == {str(entry_folder(cache) / WEIGHTS)}
    with pytest.raises(ModelFileError, match="expected a file exported by turnpike"):
        load_model(file, weights=cache)


@pytest.mark.usefixtures("prepared_here")
@pytest.mark.parametrize("name", [GRAPH, WEIGHTS, LEVERS])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "link"])
def test_a_damaged_entry_is_made_again(
    cache: WeightsCache, file: ModelFile, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    """What is served has the right bits, and the next load maps a new entry."""
    plain = load_model(file)
    load_model(file, weights=cache)
    load_model(file, weights=cache)
    path = entry_folder(cache) / name
    assert (path.parent / STAMP).exists()
    content = path.read_bytes()
    if damage == "flip":
        times = path.stat()
        with path.open("r+b") as opened:
            opened.seek(len(content) // 2)
            opened.write(bytes([content[len(content) // 2] ^ 1]))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    elif damage == "cut":
        os.truncate(path, len(content) // 2)
    else:
        path.unlink()
    if damage == "link":
        path.symlink_to("/dev/null")
    with caplog.at_level(logging.INFO):
        expect_equal(load_model(file, weights=cache), plain)
        assert "damaged, and made again" in caplog.text
        assert caplog.text.count(PREPARED) == 1
        expect_equal(load_model(file, weights=cache), plain)
    assert caplog.text.count("damaged") == caplog.text.count(PREPARED) == 1


@pytest.mark.usefixtures("prepared_here")
def test_a_changed_file_gets_an_entry_of_its_own(
    cache: WeightsCache, file: ModelFile, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if it is written in place, with the same size and the same time."""
    load_model(file, weights=cache)
    other = with_manifest(highway(units=64, seed=5))
    times = file.path.stat()
    assert len(other) == times.st_size
    file.path.write_bytes(other)
    os.utime(file.path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with caplog.at_level(logging.INFO):
        changed = load_model(file, weights=cache)
    assert PREPARED in caplog.text
    expect_equal(changed, load_model(file))


@pytest.mark.usefixtures("prepared_here")
def test_a_copy_shares_the_entry(
    tmp_path: Path, cache: WeightsCache, file: ModelFile, caplog: pytest.LogCaptureFixture
) -> None:
    load_model(file, weights=cache)
    copy = put_model(tmp_path / "models", "copy", data=file.path.read_bytes())
    with caplog.at_level(logging.INFO):
        model = load_model(copy, weights=cache)
    assert PREPARED not in caplog.text
    assert "weights are shared" in caplog.text
    assert model.name == "copy"


@pytest.mark.usefixtures("prepared_here")
def test_another_onnxruntime_or_cpu_gets_an_entry_of_its_own(
    tmp_path: Path, cache: WeightsCache, file: ModelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_model(file, weights=cache)
    other = WeightsCache(tmp_path / "cache", 1 << 30, "another CPU", min_model_bytes=0)
    load_model(file, weights=other)
    assert len(list(cache.entries.iterdir())) == 2
    monkeypatch.setattr(runtime.onnxruntime, "__version__", "0")
    load_model(file, weights=cache)
    assert len(list(cache.entries.iterdir())) == 3


@pytest.mark.parametrize(
    ("module", "seconds", "reason"),
    [
        (
            "turnpike.no_module",
            60.0,
            "the process that prepares them ended with status 1: ModuleNotFoundError",
        ),
        (shared_weights.MODULE, 0.01, "it takes longer than 0.01 s to prepare them"),
    ],
)
def test_a_model_that_cannot_be_prepared_is_loaded_without(
    tmp_path: Path,
    cache: WeightsCache,
    file: ModelFile,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    seconds: float,
    reason: str,
) -> None:
    """A process of its own prepares it, so that a crash ends no worker. It is tried again after an hour."""
    plain = load_model(file)
    monkeypatch.setattr(shared_weights, "MODULE", module)
    monkeypatch.setattr(shared_weights, "PREPARATION_SECONDS", seconds)
    for _ in range(2):
        expect_equal(load_model(file, weights=cache), plain)
    assert caplog.text.count(f"net/1: weights are not shared: {reason}") == 1
    assert not list(cache.entries.iterdir())
    monkeypatch.undo()
    (unfit,) = (tmp_path / "cache" / "unfit").iterdir()
    os.utime(unfit, (0, time.time() - RETRY_SECONDS - 1))
    expect_equal(load_model(file, weights=cache), plain)
    assert entry_folder(cache)


@pytest.mark.usefixtures("prepared_here")
def test_an_intact_entry_that_cannot_be_opened_stays(
    cache: WeightsCache,
    file: ModelFile,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If one worker has too little memory, the others go on with it."""

    def fail(*_: object, **__: object) -> None:
        raise ModelFileError("there is not enough memory")

    plain = load_model(file)
    load_model(file, weights=cache)
    monkeypatch.setattr(shared_weights, "open_model", fail)
    expect_equal(load_model(file, weights=cache), plain)
    assert "weights are not shared: there is not enough memory" in caplog.text
    assert entry_folder(cache)


def test_a_model_without_large_weights_is_not_prepared(tmp_path: Path, cache: WeightsCache) -> None:
    file = put_model(tmp_path / "models")
    expect_equal(load_model(file, weights=cache), load_model(file))
    assert not list(cache.entries.iterdir())


def test_a_bad_file_is_refused_as_without_the_cache(tmp_path: Path, cache: WeightsCache) -> None:
    data = onnx.load_from_string(GATED.model)
    data.graph.node[0].op_type = "Nonsense"
    file = put_model(tmp_path / "models", data=data.SerializeToString())
    with pytest.raises(ModelFileError, match="onnxruntime cannot open it"):
        load_model(file, weights=cache, allow_unverified=True)
    assert not list(cache.entries.iterdir())


def test_small_files_are_loaded_without_the_cache(tmp_path: Path, file: ModelFile) -> None:
    cache = WeightsCache(tmp_path / "cache", 1 << 30, "a CPU", min_model_bytes=file.size + 1)
    load_model(file, weights=cache)
    assert not list(cache.files.iterdir())


@pytest.mark.usefixtures("prepared_here")
def test_a_failing_disk_does_not_stop_a_load(
    cache: WeightsCache,
    file: ModelFile,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "publish", fail)
    expect_equal(load_model(file, weights=cache), load_model(file))
    assert "weights are not shared: [Errno 28] No space left on device" in caplog.text
    assert not list(cache.entries.iterdir())


def test_a_full_disk_does_not_stop_a_load(
    cache: WeightsCache, file: ModelFile, caplog: pytest.LogCaptureFixture
) -> None:
    """onnxruntime fails to write its files; the model is loaded without them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.size, hard))
    try:
        model = load_model(file, weights=cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    expect_equal(model, load_model(file))
    assert "weights are not shared: " in caplog.text
    assert not list(cache.entries.iterdir())


def test_a_file_that_another_process_loads_for_long_is_loaded_without_the_cache(
    tmp_path: Path, file: ModelFile, caplog: pytest.LogCaptureFixture
) -> None:
    cache = WeightsCache(tmp_path / "cache", 1 << 30, "a CPU", min_model_bytes=0, lock_seconds=0)
    with cache.slot(file.path):
        load_model(file, weights=cache)
    assert "another process is still loading them" in caplog.text


@pytest.mark.usefixtures("prepared_here")
@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_is_killed_leaves_nothing_that_is_served(
    tmp_path: Path, cache: WeightsCache, file: ModelFile, point: str
) -> None:
    """The next process waits for nothing, and serves the right bits from a whole entry."""
    words = ["-m", "tests.support.killed_preparation", tmp_path / "cache", file.path, point]
    process = subprocess.run([sys.executable, *map(str, words)], cwd=ROOT, check=False)
    assert process.returncode == -signal.SIGKILL
    model = load_model(file, weights=cache)
    expect_equal(model, load_model(file))
    assert mapped_files() == {str(entry_folder(cache) / WEIGHTS)}
    cache.remove_unused()
    assert list(cache.entries.iterdir()) == [entry_folder(cache)]


@pytest.mark.parametrize("disabled", [(), ("GemmActivationFusion",)])
def test_prepared_graphs_leave_out_what_the_manifest_says(
    cache: WeightsCache, tmp_path: Path, disabled: tuple[str, ...]
) -> None:
    """An optimizer that makes another function of the graph would make it of the prepared one, too."""
    data = with_manifest(GATED, disabled_optimizers=disabled)
    load_model(put_model(tmp_path / "models", data=data), weights=cache)
    operators = {
        node.op_type for node in onnx.load(entry_folder(cache) / GRAPH, load_external_data=False).graph.node
    }
    assert ("FusedGemm" in operators) == (not disabled)
