"""The proof as a whole: no false alarm on what is correct, and what is odd about a network is told."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from export.errors import ParityError, UntraceableError
from export.gates.instrument import Origin, instrument
from export.input_spec import parse_inputs
from export.parity.error_stats import BINS
from export.parity.prove import Proof, prove
from export.source import Rows, Source
from export.trace.trace import TracedGraph, trace
from models.networks.families import build_network
from models.training.presets import PRESETS
from service.artifact.manifest import Parity
from service.artifact.runtime import Runtime, open_model

SMALL = ("digits-10", "charcnn")


@dataclass(frozen=True)
class Made:
    """What a proof needs of a network."""

    source: Source
    traced: TracedGraph
    origins: dict[str, Origin]

    def open(self) -> Runtime:
        return open_model(ir.to_proto(self.traced.model).SerializeToString())

    def prove(self, **settings: object) -> Proof:
        runtimes = settings.pop("runtimes", None) or [self.open()]
        return prove(self.source, self.traced, self.traced.model, self.origins, runtimes=runtimes, **settings)


def made_of(module: nn.Module, *inputs: str, rows: Rows | None = None) -> Made:
    source = Source("made", "module", parse_inputs(inputs), module=module.eval(), rows=rows)
    traced = trace(source)
    return Made(source, traced, instrument(traced.model).origins)


def preset(name: str) -> Made:
    torch.manual_seed(0)
    net = build_network(PRESETS[name].config)
    dims = [f"size{at}" if at in net.free_axes else size for at, size in enumerate(net.config.inputs)]
    kind = "ids:int64" if net.reads_ids else "x:float32"
    return made_of(net, f"{kind}[batch,{','.join(map(str, dims))}]")


@pytest.mark.parametrize(
    "name", [name if name in SMALL else pytest.param(name, marks=pytest.mark.slow) for name in PRESETS]
)
def test_every_preset_holds(name: str) -> None:
    """No false alarm, in outputs, gates and layers; no network of ours mixes the rows of a batch."""
    proof = preset(name).prove()
    assert not proof.batch_coupled
    assert all("NaN" in warning for warning in proof.warnings)


@pytest.fixture(scope="module")
def digits() -> Made:
    return preset("digits-10")


def test_a_proof_says_what_it_is_of(digits: Made) -> None:
    """Reference, provider, seed, batches with digests and figures: all of it fits into the manifest."""
    proof = digits.prove(seed=5)
    assert Parity.model_validate_json(proof.parity.model_dump_json()) == proof.parity
    assert proof.parity.reference == "the original network in float64"
    assert proof.parity.providers == ("CPUExecutionProvider",)
    assert proof.parity.seed == 5
    assert {1, 2, 7, 64, 128} <= {batch.rows for batch in proof.parity.batches}
    names = [one.name for one in proof.parity.tensors]
    assert names[:2] == ["layer00.transform_gate", "layer00.output"]
    assert names[-1] == "output"
    assert proof.table().splitlines()[1].startswith("layer00.transform_gate ")
    assert proof.drawn.inputs["x"].shape == (128, 1, 8, 8)
    assert all(0 < one.max < 1e-4 for one in proof.parity.tensors)
    for ours, own in proof.histograms.values():
        assert len(ours) == len(own) == BINS
        assert sum(ours) == sum(own) > 0


def test_the_same_seed_proves_the_same(digits: Made) -> None:
    """To the last figure, so that two exports are the same bytes."""
    assert digits.prove().parity == digits.prove().parity
    assert digits.prove(seed=1).parity.tensors != digits.prove().parity.tensors


def test_progress_is_told_to_the_end(digits: Made) -> None:
    """A display that follows it ends full."""
    told: list[tuple[int, int]] = []
    digits.prove(progress=lambda done, total: told.append((done, total)))
    assert told == [(at, told[0][1]) for at in range(told[0][1] + 1)]


def test_figures_are_the_worst_of_all_providers(digits: Made) -> None:
    """A second device that answers otherwise is found, though the first does not."""

    class Off:
        """The same runtime but for one output."""

        provider = "Other"

        def __init__(self, runtime: Runtime, by: float) -> None:
            self.runtime, self.by, self.inputs = runtime, by, runtime.inputs

        def run(self, feeds: dict[str, np.ndarray], outputs: list[str]) -> list[np.ndarray]:
            found = self.runtime.run(feeds, outputs)
            return [
                a * np.float32(1 + self.by) if n == "output" else a
                for n, a in zip(outputs, found, strict=True)
            ]

    good = digits.open()
    proof = digits.prove(runtimes=[good, Off(good, 3e-7)])
    alone = digits.prove(runtimes=[good])
    assert proof.parity.providers == ("CPUExecutionProvider", "Other")
    assert proof.parity.tensors[-1].rms > alone.parity.tensors[-1].rms
    with pytest.raises(ParityError, match="^output with the batch '1 row'"):
        digits.prove(runtimes=[good, Off(good, 1e-4)])


class Mixing(nn.Module):
    """Rows look at each other, in one way or another."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if self.how == "softmax":
            return y.softmax(0)
        if self.how == "nan":
            return y + 0 * x.sum()
        if self.how == "mean":
            return y.mean(0)
        if self.how == "turned":
            return y.T
        return y


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("softmax", "the first row of output is another when its neighbours are"),
        ("nan", "a NaN in one row reaches another in output"),
        ("mean", "output has no row for each row of the input"),
        ("turned", "output has no row for each row of the input"),
        ("none", ""),
    ],
)
def test_a_network_that_mixes_rows_is_marked(how: str, says: str) -> None:
    """It is exported all the same, with a warning, and never micro-batched."""
    proof = made_of(Mixing(how), "x:float32[batch,4]").prove()
    assert proof.batch_coupled == bool(says)
    assert proof.warnings == ((f"the network mixes the rows of a batch: {says}",) if says else ())


class Pooling(nn.Module):
    """A maximum, in which onnxruntime forgets a NaN."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.max_pool1d(x, 2, 1)


def test_a_nan_that_onnxruntime_forgets_is_told() -> None:
    """It is no fault of the graph, and nothing else may be otherwise."""
    proof = made_of(Pooling(), "x:float32[batch,2,8]").prove()
    assert len(proof.warnings) == 1
    assert proof.warnings[0].startswith("where a number is NaN, onnxruntime forgets it")


class Embedding(nn.Module):
    """Ids from 0 to 10, or shifted by a number that no table tells of."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 4)
        self.shift = shift

    def forward(self, ids: Tensor) -> Tensor:
        return self.embed(ids.long() + self.shift if self.shift else ids).mean(1)


@pytest.mark.parametrize(
    ("shift", "dtype", "rows", "least"),
    [
        (0, "int64", None, 11),
        (3, "int64", Rows({"ids": np.array([[-3, 0, 7]])}), 11),
        (3, "uint8", None, 8),
    ],
)
def test_ids_are_drawn_so_that_the_network_takes_them(
    shift: int, dtype: str, rows: Rows | None, least: int
) -> None:
    """From its tables or real rows; where neither tells, fewer and fewer are tried."""
    proof = made_of(Embedding(shift), f"ids:{dtype}[batch,tokens]", rows=rows).prove()
    drawn = proof.drawn.inputs["ids"].astype(int) + shift
    assert drawn.min() >= 0
    assert drawn.max() <= 10
    assert len(np.unique(drawn)) == least


class Choosing(nn.Module):
    """Whole numbers, truth values and floats, of inputs of several types."""

    def forward(self, x: Tensor, on: Tensor, byte: Tensor) -> dict[str, Tensor]:
        y = torch.where(on, x, -x) * byte.float()
        return {"score": y.softmax(1), "best": y.argmax(1), "high": y > 0}


def test_inputs_and_outputs_of_any_type_are_compared() -> None:
    """Choices and truth values exactly."""
    proof = made_of(Choosing(), "x:float32[batch,4]", "on:bool[batch,4]", "byte:uint8[batch,1]").prove()
    assert {one.name for one in proof.parity.tensors} == {"score", "best", "high"}


class Restless(nn.Module):
    """Takes lengths from 8 on, and batches from 2 on."""

    def __init__(self) -> None:
        super().__init__()
        self.convolve = nn.Conv1d(2, 3, 8)
        self.alone, self.step = True, 1

    def forward(self, x: Tensor) -> Tensor:
        if not self.alone and x.shape[0] == 1:
            raise ValueError("expected company")
        if self.step > 1 and x.shape[2] % self.step:
            raise ValueError("expected steps")
        return self.convolve(x).amax(2)


def test_sizes_that_the_network_does_not_take_are_left_out() -> None:
    """Short lengths without a word, a number of rows with a warning, since a service may well send it."""
    made = made_of(Restless(), "x:float32[batch,2,time]")
    made.source.module.alone = False
    proof = made.prove()
    names = {batch.name for batch in proof.parity.batches}
    assert {"time=12", "time=33"} <= names
    assert not {"time=1", "time=5", "1 row"} & names
    assert "the network takes no batch of 1 row (expected company)" in proof.warnings


def test_a_length_that_the_network_takes_is_looked_for() -> None:
    """One that takes every eighth alone is proved with those."""
    made = made_of(Restless(), "x:float32[batch,2,time]")
    made.source.module.step = 8
    assert made.prove().drawn.inputs["x"].shape == (128, 2, 8)


def test_a_network_that_takes_nothing_is_told() -> None:
    """With what it says to the first batch."""
    made = made_of(Restless(), "x:float32[batch,2,time]")

    def refuse(x: Tensor) -> Tensor:
        raise ValueError("never")

    made.source.module.forward = refuse
    with pytest.raises(UntraceableError, match=r"takes no batch of x:float32\[batch,2,time\] .*: never"):
        made.prove()


def test_a_graph_of_other_inputs_is_told(digits: Made) -> None:
    """By number, before anything is run."""
    source = replace(digits.source, inputs=parse_inputs(["x:float32[batch,1,8,8]", "y:float32[batch]"]))
    with pytest.raises(
        ParityError, match=r"inputs: expected the network's 2 \(x, y\), the graph has 1 \(x\)"
    ):
        replace(digits, source=source).prove()


class Cancelling(nn.Module):
    """(x + 1e6) - 1e6: what rounding leaves of x."""

    def forward(self, x: Tensor) -> Tensor:
        return (x + 1e6) - 1e6


def test_an_ill_conditioned_network_is_no_pass() -> None:
    """Both sides may agree to the bit, and both be wrong."""
    with pytest.raises(ParityError, match="^output is ill-conditioned: parity means nothing here"):
        made_of(Cancelling(), "x:float32[batch,4]").prove()


class Exact(nn.Module):
    """Answers that single precision holds to the bit."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) * 2


def test_an_exact_network_holds() -> None:
    """An error of nothing on either side is no division by nothing."""
    proof = made_of(Exact(), "x:float32[batch,4]").prove()
    assert proof.parity.tensors[0].max == proof.parity.tensors[0].max_torch == 0


def test_a_fixed_batch_holds() -> None:
    """A network of batches of three, and of no other number."""
    proof = made_of(nn.Linear(4, 2), "x:float32[3,4]").prove()
    assert {batch.rows for batch in proof.parity.batches} == {3}
    assert not proof.batch_coupled


def adopted() -> Source:
    """A file from elsewhere: one layer y = relu(x W) T + x (1 - T)."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((4, 4)).astype(np.float32) for name in ("wh", "wt")}
    nodes = [
        helper.make_node("MatMul", ["x", "wh"], ["a"]),
        helper.make_node("Relu", ["a"], ["h"]),
        helper.make_node("MatMul", ["x", "wt"], ["b"]),
        helper.make_node("Sigmoid", ["b"], ["t"]),
        helper.make_node("Sub", ["one", "t"], ["c"]),
        helper.make_node("Mul", ["h", "t"], ["ht"]),
        helper.make_node("Mul", ["x", "c"], ["xc"]),
        helper.make_node("Add", ["ht", "xc"], ["z"]),
        helper.make_node("Tanh", ["z"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
    tensors = [numpy_helper.from_array(a, n) for n, a in (weights | {"one": np.float32(1)}).items()]
    graph = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=10,
    )
    return Source("adopted", "onnx", parse_inputs(["x:float32[batch,4]"]), graph=graph)


def test_an_adopted_graph_is_proved_against_itself() -> None:
    """Gates found and levers added, it computes what it did; if it does not, that is found."""
    source = adopted()
    model = ir.from_proto(source.graph)
    origins = instrument(model).origins
    assert "layer00.transform_gate" in origins

    def proof() -> Proof:
        runtime = open_model(ir.to_proto(model).SerializeToString())
        return prove(source, None, model, origins, runtimes=[runtime])

    found = proof()
    assert found.parity.reference == "the graph as it came, by onnx's reference evaluator in float64"
    assert found.parity.identical == 3
    assert found.warnings == ()
    next(node for node in model.graph if node.op_type == "Relu").op_type = "Tanh"
    with pytest.raises(ParityError, match="^layer00.output with the batch"):
        proof()
