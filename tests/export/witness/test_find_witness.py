"""Witnesses of planted faults: found where float32 shows them, and never where only rounding differs."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from turnpike.export.graph_identity import decide_identity
from turnpike.export.network import Network
from turnpike.export.options import SourceOptions
from turnpike.export.output.model_bytes import to_bytes
from turnpike.export.prepared_graph import PreparedGraph, prepare
from turnpike.export.sources.load import load_source
from turnpike.export.witness.find_witness import find_witness
from turnpike.export.witness.record import Witness
from turnpike.models.networks.families import build_network
from turnpike.models.networks.feedforward import MlpConfig
from turnpike.service.artifact.runtime import open_model

CONFIG = MlpConfig(inputs=(6,), classes=3, width=8, layers=2)
VOCABULARY = 300
RARE_ID = 211
Fault = Callable[[ir.Model], None]


class Words(nn.Module):
    """A gate on embedded ids."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.gate = nn.Linear(8, 8)
        self.inner = nn.Linear(8, 8)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        gate = torch.sigmoid(self.gate(x))
        return (gate * torch.tanh(self.inner(x)) + (1 - gate) * x).mean(1)


@dataclass(frozen=True)
class Subject:
    """A network and its export; a test changes a copy of the export."""

    network: Network
    graph: PreparedGraph

    def search(self, fault: Fault, folder: Path, **options: float) -> Witness | None:
        """Search a witness of a fault. There is time enough on a busy machine: runs limit the search."""
        model = self.graph.model.clone()
        fault(model)
        path = folder / "model.onnx"
        ir.save(model, path)
        model = ir.load(path)
        decision = decide_identity(self.network, self.graph, model)
        limits = {"seconds": 60.0, "max_runs": 300} | options
        with warnings.catch_warnings(action="error"):
            return find_witness(self.network, self.graph, model, open_model(path), decision, **limits)  # type: ignore[arg-type]


def subject_of(net: nn.Module, spec: str) -> Subject:
    network = load_source(net.eval(), SourceOptions(inputs=[spec], name="net"))
    return Subject(network, prepare(network))


@pytest.fixture(scope="module")
def rows() -> Subject:
    torch.manual_seed(0)
    return subject_of(build_network(CONFIG), "x:float32[batch,6]")


@pytest.fixture(scope="module")
def words() -> Subject:
    torch.manual_seed(0)
    return subject_of(Words(), "ids:int64[batch,length]")


# ---- faults


def constant(model: ir.Model, number: object, dtype: type = np.float32) -> ir.Value:
    name = f"planted_{len(model.graph.initializers)}"
    value = ir.Value(name=name, const_value=ir.tensor(np.array(number, dtype), name=name))
    model.graph.register_initializer(value)
    return value


def after(model: ir.Model, value: ir.Value, *nodes: tuple[str, Sequence[ir.Value], dict[str, int]]) -> None:
    """Put operators, one after the other, between an inner value or an input and all of its users."""
    users = list(value.uses())
    chain: list[ir.Node] = []
    for operator, others, attributes in nodes:
        chain.append(ir.node(operator, [chain[-1].outputs[0] if chain else value, *others], attributes))
    producer = value.producer()
    if producer is None:
        model.graph.insert_before(next(iter(model.graph)), chain)
    else:
        model.graph.insert_after(producer, chain)
    for user, index in users:
        user.replace_input_with(index, chain[-1].outputs[0])


def add_to_output(model: ir.Model, nodes: list[ir.Node]) -> None:
    """Add the number of the last node, converted to a float, to the public output."""
    cast = ir.node("Cast", [nodes[-1].outputs[0]], {"to": int(ir.DataType.FLOAT)})
    output = model.graph.outputs[0]
    total = ir.node("Add", [output, cast.outputs[0]])
    total.outputs[0].name, output.name = output.name, "before"
    total.outputs[0].shape, total.outputs[0].type = output.shape, output.type
    model.graph.insert_before(next(iter(model.graph)), [*nodes, cast])
    model.graph.append(total)
    model.graph.outputs[0] = total.outputs[0]


def first(model: ir.Model, operator: str) -> ir.Value:
    return next(node for node in model.graph if node.op_type == operator).outputs[0]


def change_weight(name: str, change: Callable[[np.ndarray], None]) -> Fault:
    def fault(model: ir.Model) -> None:
        value = model.graph.initializers[name]
        assert value.const_value is not None
        array = value.const_value.numpy().copy()
        change(array)
        value.const_value = ir.tensor(array, name=name)

    return fault


def one_percent(array: np.ndarray) -> None:
    array.flat[1] *= 1.01


def one_ulp(array: np.ndarray) -> None:
    array.flat[1] = np.nextafter(array.flat[1], np.float32(9))


def clip_at_1e30(model: ir.Model) -> None:
    after(model, first(model, "Relu"), ("Clip", [constant(model, -1e30), constant(model, 1e30)], {}))


def saturates(model: ir.Model) -> None:
    """h / (1 + 1e-20 h): only much larger numbers show it, which the graph does not have."""
    value = first(model, "Relu")
    scaled = ir.node("Mul", [value, constant(model, 1e-20)])
    divisor = ir.node("Add", [scaled.outputs[0], constant(model, 1)])
    quotient = ir.node("Div", [value, divisor.outputs[0]])
    for user, index in [use for use in value.uses() if use[0] not in (scaled, quotient)]:
        user.replace_input_with(index, quotient.outputs[0])
    producer = value.producer()
    assert producer is not None
    model.graph.insert_after(producer, [scaled, divisor, quotient])


def swapped_carry(model: ir.Model) -> None:
    """1 - T and T change places."""
    gate = first(model, "Sigmoid")
    carry = next(user for user, _ in gate.uses() if user.op_type == "Sub").outputs[0]
    uses = [(user, index, carry) for user, index in gate.uses() if user is not carry.producer()]
    uses += [(user, index, gate) for user, index in carry.uses()]
    for user, index, other in uses:
        if user.op_type == "Mul":
            user.replace_input_with(index, other)


def special_cell(model: ir.Model) -> None:
    """The answer is larger by 1 where the first number of a row is 0.125."""
    bounds = [constant(model, [number], np.int64) for number in (0, 1, 1)]
    cell = ir.node("Slice", [model.graph.inputs[0], *bounds])
    add_to_output(model, [cell, ir.node("Equal", [cell.outputs[0], constant(model, 0.125)])])


def special_inner_number(model: ir.Model) -> None:
    """Numbers of the first layer are larger by 1 if they are 0.3."""
    value = first(model, "Relu")
    equal = ir.node("Equal", [value, constant(model, 0.3)])
    cast = ir.node("Cast", [equal.outputs[0]], {"to": int(ir.DataType.FLOAT)})
    total = ir.node("Add", [value, cast.outputs[0]])
    for user, index in [use for use in value.uses() if use[0] not in (equal, total)]:
        user.replace_input_with(index, total.outputs[0])
    producer = value.producer()
    assert producer is not None
    model.graph.insert_after(producer, [equal, cast, total])


def special_row_count(model: ir.Model) -> None:
    """The answers are larger by 1 for 37 rows."""
    shape = ir.node("Shape", [model.graph.inputs[0]], {"start": 0, "end": 1})
    add_to_output(model, [shape, ir.node("Equal", [shape.outputs[0], constant(model, [37], np.int64)])])


def rare_id(model: ir.Model) -> None:
    """The answers of a batch are larger by 1 if one of its ids is 211."""
    equal = ir.node("Equal", [model.graph.inputs[0], constant(model, RARE_ID, np.int64)])
    cast = ir.node("Cast", [equal.outputs[0]], {"to": int(ir.DataType.FLOAT)})
    add_to_output(model, [equal, cast, ir.node("ReduceMax", [cast.outputs[0]], {"keepdims": 0})])


def ids_through_int8(model: ir.Model) -> None:
    casts = [("Cast", (), {"to": int(to)}) for to in (ir.DataType.INT8, ir.DataType.INT64)]
    after(model, model.graph.inputs[0], *casts)


def following_ids(model: ir.Model) -> None:
    after(model, model.graph.inputs[0], ("Add", [constant(model, 1, np.int64)], {}))


def ids_modulo_298(model: ir.Model) -> None:
    after(model, model.graph.inputs[0], ("Mod", [constant(model, 298, np.int64)], {}))


def refuses_last_id(model: ir.Model) -> None:
    """A table that lacks its last row."""
    name = next(name for name in model.graph.initializers if "embedding" in name)
    value = model.graph.initializers[name]
    assert value.const_value is not None
    value.const_value = ir.tensor(value.const_value.numpy()[:-1], name=name)
    value.shape = ir.Shape([VOCABULARY - 1, 8])


# ---- tests


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(change_weight("layers.0.gate.weight", one_percent), id="one_percent"),
        *(clip_at_1e30, saturates, swapped_carry, special_cell, special_inner_number, special_row_count),
    ],
)
def test_faults_of_a_network_of_rows_have_witnesses(rows: Subject, tmp_path: Path, fault: Fault) -> None:
    witness = rows.search(fault, tmp_path)
    assert witness is not None
    assert not witness.is_hidden
    assert 10 < witness.times < np.inf
    assert witness.output == rows.graph.public_outputs[0]
    assert_shows(rows, tmp_path / "model.onnx", witness)


@pytest.mark.parametrize("fault", [rare_id, ids_through_int8, following_ids, ids_modulo_298])
def test_faults_of_a_network_of_ids_have_witnesses(words: Subject, tmp_path: Path, fault: Fault) -> None:
    witness = words.search(fault, tmp_path)
    assert witness is not None
    assert witness.times > 1e4
    assert_shows(words, tmp_path / "model.onnx", witness)


def assert_shows(subject: Subject, path: Path, witness: Witness) -> None:
    """Run both again on the witness."""
    assert subject.network.module is not None
    with torch.no_grad():
        expected = subject.network.module(*map(torch.from_numpy, witness.inputs.values())).numpy()
    (actual,) = open_model(path).run(witness.inputs, [witness.output])
    assert float(expected[witness.cell]) == witness.native
    assert float(actual[witness.cell]) == witness.file
    assert abs(witness.file - witness.native) > 1e-5 * abs(witness.native)


def test_what_the_special_input_is_is_said(rows: Subject, words: Subject, tmp_path: Path) -> None:
    row_witness = rows.search(special_cell, tmp_path)
    assert row_witness is not None
    assert (row_witness.inputs["x"][:, 0] == np.float32(0.125)).any()
    assert "is 0.125), " in str(row_witness)
    size_witness = rows.search(special_row_count, tmp_path)
    assert size_witness is not None
    assert size_witness.rows == len(size_witness.inputs["x"]) == 37
    assert str(size_witness).startswith("For 37 rows (")
    id_witness = words.search(rare_id, tmp_path)
    assert id_witness is not None
    assert (id_witness.inputs["ids"] == RARE_ID).any()


@pytest.mark.parametrize("seed", [0, 1])
def test_rounding_is_no_witness(rows: Subject, tmp_path: Path, seed: int) -> None:
    fault = change_weight("layers.0.gate.weight", one_ulp)
    assert rows.search(fault, tmp_path, seed=seed, max_runs=150) is None


def test_an_export_has_no_witness(rows: Subject, tmp_path: Path) -> None:
    """Neither as a copy, nor if there is no other export to compare with."""
    assert rows.search(lambda model: None, tmp_path, max_runs=100) is None
    graph = rows.graph
    decision = decide_identity(rows.network, graph, graph.model)
    runtime = open_model(graph.data)
    assert find_witness(rows.network, graph, graph.model, runtime, decision, max_runs=100) is None


class LogOfSoftmax(nn.Module):
    """onnxruntime gives an infinity for rows of a few hundreds, and PyTorch does not."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(torch.softmax(self.inner(x), -1))


def test_overflow_in_different_places_is_no_witness() -> None:
    torch.manual_seed(0)
    subject = subject_of(LogOfSoftmax(), "x:float32[batch,6]")
    graph = subject.graph
    decision = decide_identity(subject.network, graph, graph.model)
    runtime = open_model(graph.data)
    for model in (graph.model, graph.model.clone()):
        assert find_witness(subject.network, graph, model, runtime, decision, max_runs=200) is None


def test_time_and_runs_are_bounded(rows: Subject, tmp_path: Path) -> None:
    fault = change_weight("layers.0.gate.weight", one_ulp)
    start = time.process_time()
    assert rows.search(fault, tmp_path, seconds=0.2, max_runs=10**9) is None
    # what is needed to decide, to open the graph and to judge a few rows comes on top
    assert time.process_time() - start < 6
    assert rows.search(special_cell, tmp_path, max_runs=0) is None


@pytest.mark.parametrize("as_copy", [False, True])
def test_a_fault_of_the_export_itself_is_found(rows: Subject, as_copy: bool) -> None:
    """The file is what was exported, so PyTorch shows the difference."""
    faulty = rows.graph.model.clone()
    change_weight("layers.0.gate.weight", one_percent)(faulty)
    graph = replace(rows.graph, model=faulty, data=to_bytes(faulty))
    model = faulty.clone() if as_copy else faulty
    decision = decide_identity(rows.network, graph, model)
    witness = find_witness(
        rows.network, graph, model, open_model(graph.data), decision, seconds=60, max_runs=400
    )
    assert witness is not None
    assert witness.times > 10


def test_a_hidden_output_may_be_the_only_one_that_differs(rows: Subject, tmp_path: Path) -> None:
    """The file shows a gate that it does not use."""

    def other_gate(model: ir.Model) -> None:
        gate = next(value for value in model.graph.outputs if str(value.name).endswith("_gate"))
        name, gate.name = gate.name, "used"
        shown = ir.node("Mul", [gate, constant(model, 0.5)])
        shown.outputs[0].name, shown.outputs[0].shape = name, gate.shape
        shown.outputs[0].type = gate.type
        model.graph.append(shown)
        model.graph.outputs[model.graph.outputs.index(gate)] = shown.outputs[0]

    witness = rows.search(other_gate, tmp_path, max_runs=60)
    assert witness is not None
    assert witness.is_hidden
    assert "(a hidden output)" in str(witness)
    assert witness.file == pytest.approx(witness.native / 2)


def test_a_file_that_refuses_an_input_has_a_witness(words: Subject, tmp_path: Path) -> None:
    witness = words.search(refuses_last_id, tmp_path, max_runs=60)
    assert witness is not None
    assert witness.failure is not None
    assert (witness.inputs["ids"] == VOCABULARY - 1).any()
    assert f"{witness.output}, and the file does not: onnxruntime cannot run the model" in str(witness)


class Picky(nn.Module):
    """Refuses what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)
        self.limit = float("inf")

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and x.abs().max() > self.limit:
            raise RuntimeError("refused")
        return torch.relu(self.inner(x))


@pytest.mark.parametrize(("limit", "is_found"), [(2.5, True), (-1.0, False)])
def test_inputs_that_the_network_refuses_are_skipped(tmp_path: Path, limit: float, is_found: bool) -> None:
    """Most of them, or all."""
    torch.manual_seed(0)
    picky = subject_of(Picky(), "x:float32[batch,6]")
    net = picky.network.module
    assert isinstance(net, Picky)
    net.limit = limit
    witness = picky.search(change_weight("inner.weight", one_percent), tmp_path)
    assert (witness is not None) == is_found
    assert witness is None or np.abs(witness.inputs["x"]).max() <= limit


def test_values_stay_in_the_range_of_the_user(rows: Subject, tmp_path: Path) -> None:
    limited = replace(rows, network=replace(rows.network, ranges={"x": (-2.0, 2.0)}))
    assert limited.search(clip_at_1e30, tmp_path, max_runs=100) is None
    witness = limited.search(change_weight("layers.0.gate.weight", one_percent), tmp_path, max_runs=100)
    assert witness is not None
    assert np.abs(witness.inputs["x"]).max() <= 2
