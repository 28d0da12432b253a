"""`turnpike verify` decides for every input, beyond the batches that it samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from turnpike.export.errors import ParityError
from turnpike.export.identity.decision import Verdict
from turnpike.export.pipeline import ExportResult, export_model
from turnpike.export.verify import verify_model
from turnpike.models.networks.families import build_network
from turnpike.models.networks.feedforward import MlpConfig

CONFIG = MlpConfig(inputs=(6,), classes=3, width=8, layers=2)
INPUT = ["x:float32[batch,6]"]


def network() -> nn.Module:
    torch.manual_seed(0)
    return build_network(CONFIG).eval()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> ExportResult:
    return export_model(network(), tmp_path_factory.mktemp("exported"), name="net", inputs=INPUT)


def with_change(path: Path, folder: Path, change: Callable[[ir.Model], None]) -> Path:
    """A copy of an exported file, with its manifest and a change of its graph."""
    model = ir.load(path)
    change(model)
    changed = folder / "model.onnx"
    ir.save(model, changed)
    return changed


def add_1e30th(model: ir.Model) -> None:
    """After the first Relu: too little to be seen in a sum of float32."""
    relu = next(node for node in model.graph if node.op_type == "Relu")
    number = ir.Value(name="tiny", const_value=ir.tensor(np.float32(1e-30), name="tiny"))
    model.graph.register_initializer(number)
    total = ir.node("Add", [relu.outputs[0], number])
    total.outputs[0].name = "total"
    users = [use for use in relu.outputs[0].uses() if use[0] is not total]
    model.graph.insert_after(relu, total)
    for user, index in users:
        user.replace_input_with(index, total.outputs[0])


def test_an_exported_file_is_the_same_function(exported: ExportResult) -> None:
    decision = verify_model(exported.path, network()).identity
    assert decision is not None
    assert decision.verdict is Verdict.IDENTICAL
    assert decision.error_bound < 1e-18
    # the outputs, and gate and output of each layer
    assert len(decision.compared) == 1 + 2 * 2


def test_a_fault_that_no_batch_shows_is_refused(exported: ExportResult, tmp_path: Path) -> None:
    path = with_change(exported.path, tmp_path, add_1e30th)
    with pytest.raises(ParityError) as error:
        verify_model(path, network())
    message = str(error.value)
    assert "expected the same function of every input as the network, got one that differs in " in message
    assert "the first node that differs is" in message


def test_an_input_that_shows_the_difference_is_named(exported: ExportResult, tmp_path: Path) -> None:
    """Hidden numbers beyond 1e30 are clipped, which no batch reaches."""

    def clip(model: ir.Model) -> None:
        relu = next(node for node in model.graph if node.op_type == "Relu")
        limit = ir.Value(name="limit", const_value=ir.tensor(np.float32(1e30), name="limit"))
        model.graph.register_initializer(limit)
        clipped = ir.node("Min", [relu.outputs[0], limit])
        clipped.outputs[0].name = "clipped"
        users = [use for use in relu.outputs[0].uses() if use[0] is not clipped]
        model.graph.insert_after(relu, clipped)
        for user, index in users:
            user.replace_input_with(index, clipped.outputs[0])

    path = with_change(exported.path, tmp_path, clip)
    with pytest.raises(ParityError, match=r"For 1 row \(.*\), .* in the network and .* in the file"):
        verify_model(path, network())


def test_a_dead_lever_is_refused(exported: ExportResult, tmp_path: Path) -> None:
    """The Gemm of a gate reads a copy of its bias: nothing changes until somebody moves the lever."""
    decision = verify_model(exported.path, network()).identity
    assert decision is not None
    assert decision.levers is not None
    assert decision.levers.verdict is Verdict.IDENTICAL, decision.levers
    gate = exported.manifest.gates[1]
    assert decision.levers.moved[1] == gate.name
    (lever,) = gate.levers

    def read_a_copy(model: ir.Model) -> None:
        bias = model.graph.initializers[lever.tensor]
        assert bias.const_value is not None
        copy = ir.Value(name="copy", const_value=ir.tensor(bias.const_value.numpy().copy(), name="copy"))
        model.graph.register_initializer(copy)
        for user, index in tuple(bias.uses()):
            user.replace_input_with(index, copy)

    path = with_change(exported.path, tmp_path, read_a_copy)
    with pytest.raises(ParityError, match=f"{gate.name}: its lever {lever.tensor} moves nothing of it"):
        verify_model(path, network())


def test_the_source_of_a_lower_precision_is_decided(tmp_path: Path) -> None:
    """What is compared is its twin in fp32."""
    result = export_model(
        network(), tmp_path, name="net", inputs=INPUT, precision="fp16", min_agreement=0.5, max_error=0.5
    )
    decision = verify_model(result.path, network(), min_agreement=0.5, max_error=0.5).identity
    assert decision is not None
    assert decision.verdict is Verdict.IDENTICAL


def test_an_adopted_graph_is_compared_with_the_graph_that_came(tmp_path: Path) -> None:
    result = export_model(network(), tmp_path / "exported", name="net", inputs=INPUT, plain=True)
    # as somebody else's file, without our manifest
    source = with_change(
        result.path.with_name("plain.onnx"), tmp_path, lambda model: model.metadata_props.clear()
    )
    source = source.rename(tmp_path / "source.onnx")
    adopted = export_model(source, tmp_path / "adopted", name="adopted")
    decision = verify_model(adopted.path, source).identity
    assert decision is not None
    assert decision.verdict is Verdict.IDENTICAL, decision
    changed = with_change(adopted.path, tmp_path, add_1e30th)
    with pytest.raises(ParityError, match="expected the same function of every input as the network"):
        verify_model(changed, source)


class Words(nn.Module):
    """A gate on embedded ids."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.gate = nn.Linear(8, 8)
        self.inner = nn.Linear(8, 8)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        gate = torch.sigmoid(self.gate(x))
        return (gate * torch.tanh(self.inner(x)) + (1 - gate) * x).mean(1)


def test_ids_are_decided_without_a_guess_of_their_range(tmp_path: Path) -> None:
    """A graph that changes ids beyond those that the batches have is another function."""
    torch.manual_seed(0)
    words = Words().eval()
    result = export_model(words, tmp_path, name="words", inputs=["ids:int64[batch,length]"])
    decision = verify_model(result.path, words).identity
    assert decision is not None
    assert decision.verdict is Verdict.IDENTICAL, decision

    def through_int8(model: ir.Model) -> None:
        source = model.graph.inputs[0]
        users = list(source.uses())
        narrow = ir.node("Cast", [source], {"to": int(ir.DataType.INT8)})
        wide = ir.node("Cast", [narrow.outputs[0]], {"to": int(ir.DataType.INT64)})
        model.graph.insert_before(next(iter(model.graph)), [narrow, wide])
        for user, index in users:
            user.replace_input_with(index, wide.outputs[0])

    changed = with_change(result.path, tmp_path, through_int8)
    with pytest.raises(ParityError, match="expected the same function of every input as the network"):
        verify_model(changed, words)
