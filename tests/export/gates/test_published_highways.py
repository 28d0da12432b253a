"""Highways published by other authors: their wheels are downloaded, and single files loaded."""

from __future__ import annotations

import importlib.abc
import importlib.util
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from turnpike.export.gates.instrument import Instrumentation, instrument
from turnpike.export.input_spec import InputSpec
from turnpike.export.network import Network
from turnpike.export.trace.trace_network import trace
from turnpike.service.artifact.runtime import open_model

Load = Callable[[str, str], ModuleType]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Stub(ModuleType):
    """A module that has every attribute."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *args, **options: None})


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Replaces a package, of which only one file is loaded: a layer does not need the rest."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name.split(".", maxsplit=1)[0] != self.package:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Stub(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Downloads a wheel, and loads one of its files as a module."""

    def load_file(wheel: str, file: str) -> ModuleType:
        options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(tmp_path)]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, wheel], check=True)
        (archive,) = tmp_path.glob("*.whl")
        path = tmp_path / "published.py"
        path.write_bytes(zipfile.ZipFile(archive).read(file))
        name = file.removesuffix(".py").replace("/", ".")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setattr(sys, "meta_path", [Stubs(name.split(".")[0]), *sys.meta_path])
        with warnings.catch_warnings():
            # invalid escapes in docstrings
            warnings.simplefilter("ignore")
            spec.loader.exec_module(module)
        return module

    before = set(sys.modules)
    yield load_file
    for name in set(sys.modules) - before:
        if isinstance(sys.modules[name], Stub):
            del sys.modules[name]


def export(
    net: nn.Module, *inputs: tuple[int, ...]
) -> tuple[Instrumentation, list[Tensor], list[np.ndarray]]:
    """Export a network; returns what was found in it, random rows, and the values of the gates for them."""
    specs = tuple(
        InputSpec(f"x{number}", "float32", ("batch", *shape)) for number, shape in enumerate(inputs)
    )
    model = trace(Network("published", "module", specs, module=net.eval())).model
    instrumentation = instrument(model)
    rows = [torch.randn(3, *shape) for shape in inputs]
    runtime = open_model(ir.to_proto(model).SerializeToString())
    feeds = {spec.name: row.numpy() for spec, row in zip(specs, rows, strict=True)}
    return instrumentation, rows, runtime.run(feeds, [gate.name for gate in instrumentation.gates])


def outputs_of(net: nn.Module, rows: list[Tensor], modules: list[nn.Module]) -> list[Tensor]:
    """The outputs of some modules of a network."""
    outputs: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda module, args, output: outputs.append(output.detach()))
        for module in modules
    ]
    net(*rows)
    for hook in hooks:
        hook.remove()
    return outputs


def assert_same(gates: list[np.ndarray], expected: list[Tensor]) -> None:
    assert len(gates) == len(expected)
    for values, truth in zip(gates, expected, strict=True):
        np.testing.assert_allclose(values, truth, atol=1e-5)


def test_gates_of_zetascale_are_found(load: Load) -> None:
    """Two Linears; T is the gate."""
    published = load("zetascale==2.8.8", "zeta/nn/modules/highway_layer.py")
    net = nn.Sequential(*(published.HighwayLayer(8) for _ in range(3)))
    instrumentation, rows, gates = export(net, (8,))
    assert [(gate.kind, gate.carry) for gate in instrumentation.gates] == [("coupled", "identity")] * 3
    assert_same(gates, [torch.sigmoid(z) for z in outputs_of(net, rows, [layer.gate for layer in net])])


def test_gates_of_allennlp_are_found(load: Load) -> None:
    """One fused Linear; the gate is the carry gate."""
    published = load("allennlp==2.10.1", "allennlp/modules/highway.py")
    net = published.Highway(8, num_layers=3)
    instrumentation, rows, gates = export(net, (5, 8))
    assert [(gate.kind, gate.carry) for gate in instrumentation.gates] == [("coupled", "identity")] * 3
    assert [gate.bias.mean for gate in instrumentation.gates if gate.bias] == [-1.0] * 3
    assert_same(gates, [1 - torch.sigmoid(z[..., 8:]) for z in outputs_of(net, rows, list(net._layers))])


def test_gates_of_pytext_are_found(load: Load) -> None:
    """AllenNLP's layer rewritten: 1 - g is computed from a tensor with a single 1."""
    published = load("pytext-nlp==0.3.3", "pytext/models/embeddings/char_embedding.py")
    net = published.Highway(8, num_layers=2)
    instrumentation, rows, gates = export(net, (8,))
    assert [(gate.kind, gate.carry) for gate in instrumentation.gates] == [("coupled", "identity")] * 2
    assert_same(gates, [1 - torch.sigmoid(z[..., 8:]) for z in outputs_of(net, rows, list(net.layers))])


def test_gates_of_coqui_are_found(load: Load) -> None:
    """The highways of Tacotron, with modules called H and T."""
    published = load("TTS==0.22.0", "TTS/tts/layers/tacotron/tacotron.py")
    net = nn.Sequential(*(published.Highway(8, 8) for _ in range(4)))
    instrumentation, rows, gates = export(net, (5, 8))
    assert [(gate.kind, gate.carry) for gate in instrumentation.gates] == [("coupled", "identity")] * 4
    assert [gate.bias.mean for gate in instrumentation.gates if gate.bias] == [-1.0] * 4
    assert_same(gates, [torch.sigmoid(z) for z in outputs_of(net, rows, [layer.T for layer in net])])


def test_gates_of_espnet_are_found(load: Load) -> None:
    """The highways of Tacotron, with H and T in a Sequential each."""
    published = load("espnet==202511", "espnet/nets/pytorch_backend/tacotron2/cbhg.py")
    net = nn.Sequential(*(published.HighwayNet(8) for _ in range(4)))
    instrumentation, rows, gates = export(net, (5, 8))
    assert [(gate.kind, gate.carry) for gate in instrumentation.gates] == [("coupled", "identity")] * 4
    assert_same(gates, outputs_of(net, rows, [layer.gate for layer in net]))


def test_gates_of_espnet_state_spaces_are_found(load: Load) -> None:
    """A gate computed from the input and from H; the second carry is multiplied by 1.7."""
    published = load("espnet==202511", "espnet2/asr/state_spaces/residual.py")

    class Block(nn.Module):
        def __init__(self, *, corrected: bool) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)
            self.join = published.Highway(1, 8, 8, scaling_correction=corrected)

        def forward(self, x: Tensor) -> Tensor:
            return self.join(x, torch.relu(self.inner(x)))

    net = nn.Sequential(Block(corrected=False), Block(corrected=True))
    instrumentation, rows, gates = export(net, (8,))
    assert [(gate.kind, gate.carry) for gate in instrumentation.gates] == [
        ("coupled", "identity"),
        ("coupled", "projected"),
    ]
    y, x, y2, x2 = outputs_of(net, rows, [part for block in net for part in (block.join.Wx, block.join.Wy)])
    assert_same(gates, [torch.sigmoid(x + y), torch.sigmoid(x2 + y2)])


@pytest.mark.thorough
def test_gates_of_labml_are_found(load: Load) -> None:
    """Recurrent highways, two layers of depth three, unrolled in time."""
    published = load("labml-nn==0.5.1", "labml_nn/recurrent_highway_networks/__init__.py")

    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rhn = published.RHN(4, 6, depth=3, n_layers=2)

        def forward(self, x: Tensor) -> Tensor:
            return self.rhn(x.transpose(0, 1))[0][-1]

    net = Rows()
    instrumentation, rows, gates = export(net, (4, 4))
    positions = sorted((gate.layer, gate.depth, gate.time) for gate in instrumentation.gates)
    assert positions == [
        (layer, depth, time) for layer in range(2) for depth in range(3) for time in range(4)
    ]
    assert {(gate.kind, gate.carry) for gate in instrumentation.gates} == {("coupled", "identity")}
    upper = [linear for cell in net.rhn.cells for linear in cell.hidden_lin[1:]]
    expected = [torch.sigmoid(z[..., 6:]) for z in outputs_of(net, rows, upper)]
    assert_same([t for gate, t in zip(instrumentation.gates, gates, strict=True) if gate.depth], expected)


def test_gates_of_allennlp_augmented_lstm_are_found(load: Load) -> None:
    """An LSTM with a highway around each step, whose carry is a linear map of the input."""
    published = load("allennlp==2.10.1", "allennlp/modules/augmented_lstm.py")

    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = published.AugmentedLSTMCell(4, 6)

        def forward(self, x: Tensor) -> Tensor:
            h = c = x.new_zeros(x.shape[0], 6)
            for step in x.unbind(1):
                h, c = self.cell(step, (h, c))
            return h

    instrumentation, _, _ = export(Rows(), (3, 4))
    kinds = {gate.layer: (gate.kind, gate.carry) for gate in instrumentation.gates}
    assert kinds == {0: ("independent", "identity"), 1: ("coupled", "projected")}
    assert [gate.time for gate in instrumentation.gates if gate.layer == 1] == [0, 1, 2]
