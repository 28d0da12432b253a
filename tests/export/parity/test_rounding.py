"""The proof as a whole: no false alarms on correct graphs, and warnings about what is unusual."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from turnpike.export.errors import ParityError, UntraceableError
from turnpike.export.gates.instrument import Origin, instrument
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network, Rows
from turnpike.export.parity.error_stats import BINS
from turnpike.export.parity.rounding import Rounding, measure_rounding
from turnpike.export.trace.trace_network import TracedGraph, trace
from turnpike.models.networks.families import build_network
from turnpike.models.training.presets import PRESETS
from turnpike.service.artifact.proof_records import Parity
from turnpike.service.artifact.runtime import Runtime, open_model


@dataclass(frozen=True)
class Traceable:
    """A traced network, with everything that its proof needs."""

    network: Network
    traced: TracedGraph
    origins: dict[str, Origin]

    def open(self) -> Runtime:
        return open_model(ir.to_proto(self.traced.model).SerializeToString())

    def prove(self, **settings: object) -> Rounding:
        runtimes = settings.pop("runtimes", None) or [self.open()]
        return measure_rounding(
            self.network, self.traced, self.traced.model, self.origins, runtimes=runtimes, **settings
        )


def traceable(module: nn.Module, *inputs: str, rows: Rows | None = None) -> Traceable:
    network = Network("net", "module", parse_inputs(inputs), module=module.eval(), rows=rows)
    traced = trace(network)
    return Traceable(network, traced, instrument(traced.model).origins)


@pytest.fixture(scope="module")
def digits() -> Traceable:
    torch.manual_seed(0)
    return traceable(build_network(PRESETS["digits-10"].config), "x:float32[batch,1,8,8]")


def test_a_proof_records_reference_batches_and_errors(digits: Traceable) -> None:
    """Reference, provider, seed, batches with digests and errors fit into the manifest."""
    proof = digits.prove(seed=5)
    assert Parity.model_validate_json(proof.parity.model_dump_json()) == proof.parity
    assert proof.parity.reference == "the original network in float64"
    assert proof.parity.providers == ("CPUExecutionProvider",)
    assert proof.parity.seed == 5
    assert {1, 2, 7, 64, 128} <= {batch.rows for batch in proof.parity.batches}
    names = [tensor.name for tensor in proof.parity.tensors]
    assert names[:2] == ["layer00.transform_gate", "layer00.output"]
    assert names[-1] == "output"
    assert proof.table().splitlines()[1].startswith("layer00.transform_gate ")
    assert proof.random_rows.inputs["x"].shape == (128, 1, 8, 8)
    assert all(0 < tensor.max < 1e-4 for tensor in proof.parity.tensors)
    assert proof.histograms
    for ort, torch_counts in proof.histograms.values():
        assert len(ort) == len(torch_counts) == BINS
        assert sum(ort) == sum(torch_counts) > 0


@pytest.mark.slow
def test_equal_seeds_give_equal_proofs(digits: Traceable) -> None:
    """They are equal to the last digit, so that two exports have the same bytes."""
    assert digits.prove().parity == digits.prove().parity
    assert digits.prove(seed=1).parity.tensors != digits.prove().parity.tensors


def test_progress_is_reported_to_the_end(digits: Traceable) -> None:
    calls: list[tuple[int, int]] = []
    digits.prove(progress=lambda done, total: calls.append((done, total)))
    assert calls == [(done, calls[0][1]) for done in range(calls[0][1] + 1)]


@pytest.mark.slow
def test_the_worst_error_of_all_providers_counts(digits: Traceable) -> None:
    """A second device that differs is found although the first does not differ."""

    class Inexact:
        """The same runtime, except that one output is off."""

        provider = "Other"

        def __init__(self, runtime: Runtime, error: float) -> None:
            self.runtime, self.error, self.inputs = runtime, error, runtime.inputs

        def run(self, feeds: dict[str, np.ndarray], outputs: list[str]) -> list[np.ndarray]:
            arrays = self.runtime.run(feeds, outputs)
            return [
                a * np.float32(1 + self.error) if n == "output" else a
                for n, a in zip(outputs, arrays, strict=True)
            ]

    good = digits.open()
    proof = digits.prove(runtimes=[good, Inexact(good, 3e-7)])
    alone = digits.prove(runtimes=[good])
    assert proof.parity.providers == ("CPUExecutionProvider", "Other")
    assert proof.parity.tensors[-1].rms > alone.parity.tensors[-1].rms
    with pytest.raises(ParityError, match="^output over all ordinary batches"):
        digits.prove(runtimes=[good, Inexact(good, 1e-4)])


class Mixing(nn.Module):
    """Rows depend on each other in different ways."""

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
        if self.how == "transposed":
            return y.T
        return y


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("softmax", "the first row of output changes with the rows beside it"),
        ("nan", "a NaN in one row reaches another row of output"),
        ("mean", "output does not have one row for each row of the input"),
        ("transposed", "output does not have one row for each row of the input"),
        ("none", ""),
    ],
)
def test_a_network_that_mixes_rows_is_marked_as_coupled(how: str, reason: str) -> None:
    """It is exported with a warning, and never micro-batched."""
    proof = traceable(Mixing(how), "x:float32[batch,4]").prove()
    assert proof.batch_coupled == bool(reason)
    assert proof.warnings == ((f"the network mixes the rows of a batch: {reason}",) if reason else ())


class Pooling(nn.Module):
    """A maximum, in which onnxruntime loses a NaN."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.max_pool1d(x, 2, 1)


def test_nan_lost_by_onnxruntime_gives_a_warning() -> None:
    """The graph is correct all the same."""
    proof = traceable(Pooling(), "x:float32[batch,2,8]").prove()
    assert len(proof.warnings) == 1
    assert proof.warnings[0].startswith("onnxruntime loses NaN in maxima, sigmoids and recurrent layers")


class Embedding(nn.Module):
    """Takes ids from 0 to 10, or shifted by a number that no table shows."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 4)
        self.shift = shift

    def forward(self, ids: Tensor) -> Tensor:
        return self.embed(ids.long() + self.shift if self.shift else ids).mean(1)


@pytest.mark.parametrize(
    ("shift", "dtype", "rows", "count"),
    [
        (0, "int64", None, 11),
        (3, "int64", Rows({"ids": np.array([[-3, 0, 7]])}), 11),
        (3, "uint8", None, 8),
    ],
)
def test_ids_are_drawn_from_a_range_that_the_network_accepts(
    shift: int, dtype: str, rows: Rows | None, count: int
) -> None:
    """The range comes from tables or real rows. Without these, narrower ranges are tried."""
    proof = traceable(Embedding(shift), f"ids:{dtype}[batch,tokens]", rows=rows).prove()
    ids = proof.random_rows.inputs["ids"].astype(int) + shift
    assert ids.min() >= 0
    assert ids.max() <= 10
    assert len(np.unique(ids)) == count


def test_ids_are_drawn_from_the_tables_of_the_source() -> None:
    """A file to be verified could hide its table, and so be compared on few ids."""
    subject = traceable(Embedding(0), "ids:int64[batch,tokens]")
    hiding = subject.traced.model.clone()
    for node in hiding.graph:
        if node.op_type == "Gather":
            hidden = ir.node("Mul", [node.inputs[1], ir.val("one", const_value=ir.tensor(np.array(1)))])
            hiding.graph.insert_before(node, hidden)
            node.replace_input_with(1, hidden.outputs[0])
            hiding.graph.register_initializer(hidden.inputs[1])
            break
    proof = measure_rounding(
        subject.network,
        subject.traced,
        hiding,
        subject.origins,
        runtimes=[subject.open()],
        source_graph=subject.traced.model,
    )
    assert len(np.unique(proof.random_rows.inputs["ids"])) == 11


class Scaling(nn.Module):
    """Nothing shows which integers it takes."""

    def forward(self, count: Tensor) -> Tensor:
        return count * 0.5


def test_a_guessed_range_of_integers_is_warned_about() -> None:
    (warning,) = traceable(Scaling(), "count:int64[batch,3]").prove().warnings
    assert warning.startswith("count: drew integers from 0 to 1, a guess")
    assert "--input-range count=LOW:HIGH" in warning
    rows = Rows({"count": np.array([[1, 2, 9]])})
    assert traceable(Scaling(), "count:int64[batch,3]", rows=rows).prove().warnings == ()


class Choosing(nn.Module):
    """Integers, booleans and floats from inputs of several dtypes."""

    def forward(self, x: Tensor, on: Tensor, byte: Tensor) -> dict[str, Tensor]:
        y = torch.where(on, x, -x) * byte.float()
        return {"score": y.softmax(1), "best": y.argmax(1), "high": y > 0}


def test_inputs_and_outputs_of_any_type_are_compared() -> None:
    """Integers and booleans must be equal."""
    proof = traceable(Choosing(), "x:float32[batch,4]", "on:bool[batch,4]", "byte:uint8[batch,1]").prove()
    assert {tensor.name for tensor in proof.parity.tensors} == {"score", "best", "high"}


class Picky(nn.Module):
    """May reject short lengths, single rows, or lengths that are not a multiple."""

    def __init__(self) -> None:
        super().__init__()
        self.convolve = nn.Conv1d(2, 3, 8)
        self.single_rows, self.step = True, 1

    def forward(self, x: Tensor) -> Tensor:
        if not self.single_rows and x.shape[0] == 1:
            raise ValueError("expected more rows")
        if self.step > 1 and x.shape[2] % self.step:
            raise ValueError("expected steps")
        return self.convolve(x).amax(2)


def test_sizes_that_the_network_rejects_are_left_out() -> None:
    """A warning names them: lengths together, and a number of rows by itself, as a service may send it."""
    net = traceable(Picky(), "x:float32[batch,2,time]")
    net.network.module.single_rows = False
    proof = net.prove()
    names = {batch.name for batch in proof.parity.batches}
    assert {"time=12", "time=33"} <= names
    assert not {"time=1", "time=5", "1 row"} & names
    assert "the network does not accept the batch '1 row' (expected more rows)" in proof.warnings
    start = (
        "the network itself does not accept these batches, so they were not compared: 'time=1', 'time=2', "
    )
    assert proof.warnings[-1].startswith(start)


class Viewing(nn.Module):
    """Views the output of a recurrent layer, and accepts only rows that are contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.GRU(4, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_contiguous():
            raise ValueError("expected contiguous rows")
        steps, _ = self.recurrent(x)
        return steps.contiguous().view(x.shape[0], 12)


def test_memory_layouts_do_not_matter() -> None:
    """torch.export leaves `contiguous` out where its example is contiguous; other tensors may not be.

    A layout that the network itself does not accept is left out with a warning.
    """
    proof = traceable(Viewing(), "x:float32[batch,3,4]").prove()
    assert "strided" not in {batch.name for batch in proof.parity.batches}
    assert proof.warnings[-1] == (
        "the network itself does not accept these batches, so they were not compared: 'strided' "
        "(the reason for the first: expected contiguous rows)"
    )


def test_a_length_that_the_network_accepts_is_searched() -> None:
    net = traceable(Picky(), "x:float32[batch,2,time]")
    net.network.module.step = 8
    assert net.prove().random_rows.inputs["x"].shape == (128, 2, 8)


def test_a_network_that_accepts_nothing_is_reported() -> None:
    """The message has the reason for the first batch."""
    net = traceable(Picky(), "x:float32[batch,2,time]")

    def refuse(x: Tensor) -> Tensor:
        raise ValueError("never")

    net.network.module.forward = refuse
    with pytest.raises(UntraceableError, match=r"accepts no batch of x:float32\[batch,2,time\] .*: never"):
        net.prove()


def test_a_graph_with_other_inputs_is_reported(digits: Traceable) -> None:
    """The error is raised before anything is run."""
    network = replace(digits.network, inputs=parse_inputs(["x:float32[batch,1,8,8]", "y:float32[batch]"]))
    with pytest.raises(
        ParityError, match=r"inputs: expected the network's 2 \(x, y\), the graph has 1 \(x\)"
    ):
        replace(digits, network=network).prove()


class Cancelling(nn.Module):
    """(x + 1e6) - 1e6: what rounding leaves of x."""

    def forward(self, x: Tensor) -> Tensor:
        return (x + 1e6) - 1e6


def test_an_ill_conditioned_network_fails() -> None:
    """Both sides may be equal bit for bit, and both wrong."""
    with pytest.raises(ParityError, match="^output is ill-conditioned, so parity means nothing here"):
        traceable(Cancelling(), "x:float32[batch,4]").prove()


class Exact(nn.Module):
    """Results that float32 holds exactly."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) * 2


def test_an_exact_network_passes() -> None:
    """Errors of zero on both sides are not divided."""
    proof = traceable(Exact(), "x:float32[batch,4]").prove()
    assert proof.parity.tensors[0].max == proof.parity.tensors[0].max_torch == 0


def test_a_fixed_batch_passes() -> None:
    proof = traceable(nn.Linear(4, 2), "x:float32[3,4]").prove()
    assert {batch.rows for batch in proof.parity.batches} == {3}
    assert not proof.batch_coupled


def onnx_source() -> Network:
    """An .onnx file with one layer y = relu(x W) T + x (1 - T)."""
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
    return Network("adopted", "onnx", parse_inputs(["x:float32[batch,4]"]), graph=graph)


def test_an_onnx_source_is_proved_against_itself() -> None:
    """The graph with exposed gates and levers computes the same. A change of it is found."""
    network = onnx_source()
    model = ir.from_proto(network.graph)
    origins = instrument(model).origins
    assert "layer00.transform_gate" in origins

    def proof() -> Rounding:
        runtime = open_model(ir.to_proto(model).SerializeToString())
        return measure_rounding(network, None, model, origins, runtimes=[runtime])

    result = proof()
    assert result.parity.reference == "the graph as it came, by onnx's reference evaluator in float64"
    assert result.warnings == ()
    next(node for node in model.graph if node.op_type == "Relu").op_type = "Tanh"
    with pytest.raises(ParityError, match="^layer00.output over all ordinary batches"):
        proof()


def test_a_network_that_rejects_most_batches_of_random_rows_is_refused() -> None:
    net = traceable(Picky(), "x:float32[batch,2,time]")
    forward = net.network.module.forward

    def few(x: Tensor) -> Tensor:
        if x.shape[0] not in (2, 3):
            raise ValueError("expected two or three rows")
        return forward(x)

    net.network.module.forward = few
    with pytest.raises(UntraceableError, match=r"more than half of 6, got 2; .*'1 row'.*two or three"):
        net.prove()
