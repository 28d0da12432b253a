"""Cut graphs: they compute what the whole graph does with the removed units carried, and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from turnpike.export.compress.graph.carried_reference import carried_reference
from turnpike.export.compress.graph.cut_graph import FORMS, CutGraph, Form, cut_units
from turnpike.export.compress.graph.removable_layers import LayerSearch, find_removable_layers
from turnpike.export.compress.unit_changes import measure_changes
from turnpike.export.gates.instrument import Instrumentation, Origin
from turnpike.export.graph_identity import decide_identity
from turnpike.export.identity.decision import Decision, Verdict
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network, Rows
from turnpike.export.output.model_bytes import to_bytes
from turnpike.export.prepared_graph import PreparedGraph, prepare
from turnpike.models.layers.highway import ConvHighwayLayer, HighwayLayer
from turnpike.service.artifact.runtime import Runtime, open_model

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, np.dtype[Any]]


class FusedLayer(nn.Module):
    """One map for H and T together, as many write it; `parts` cuts its result along an axis."""

    def __init__(self, both: nn.Module, parts: Callable[[Tensor], Sequence[Tensor]]) -> None:
        super().__init__()
        self.both, self.parts = both, parts

    def forward(self, x: Tensor) -> Tensor:
        h, logit, *carry = self.parts(self.both(x))
        t = torch.sigmoid(logit)
        c = torch.sigmoid(carry[0]) if carry else 1 - t
        return t * torch.tanh(h) + c * x


class Stack(nn.Module):
    """Three layers between an entry and an output."""

    def __init__(self, entry: nn.Module, layers: Sequence[nn.Module], output: nn.Module) -> None:
        super().__init__()
        self.entry, self.layers, self.output = entry, nn.ModuleList(layers), output

    def forward(self, x: Tensor) -> Tensor:
        x = self.entry(x)
        for layer in self.layers:
            x = layer(x)
        return self.output(x)


def dense(**settings: Any) -> Stack:
    layers = [HighwayLayer(8, gate_bias=-0.5, **settings) for _ in range(3)]
    return Stack(nn.Linear(6, 8), layers, nn.Linear(8, 3))


def convolutional(dims: int) -> Stack:
    convolution = (nn.Conv1d, nn.Conv2d)[dims - 1]
    layers = [ConvHighwayLayer(8, dims=dims, gate_bias=-0.5, batch_norm=True) for _ in range(3)]
    return Stack(convolution(2, 8, 3, padding=1), layers, nn.Flatten())


def fused(
    parts: Callable[[Tensor], Sequence[Tensor]] = lambda both: both.chunk(2, dim=-1), count: int = 2
) -> Stack:
    layers = [FusedLayer(nn.Linear(8, count * 8), parts) for _ in range(3)]
    return Stack(nn.Linear(6, 8), layers, nn.Linear(8, 3))


def fused_convolutional() -> Stack:
    """The channels of H are the even ones, those of T the odd ones."""

    def both() -> nn.Module:
        return nn.Sequential(nn.Conv1d(8, 16, 3, padding=1), nn.BatchNorm1d(16))

    layers = [FusedLayer(both(), lambda both: (both[:, ::2], both[:, 1::2])) for _ in range(3)]
    return Stack(nn.Conv1d(2, 8, 3, padding=1), layers, nn.Flatten())


NETWORKS = {
    "dense": (dense, "x:float32[batch,6]"),
    # the shape behind a Reshape is not known
    "flattened": (
        lambda: Stack(nn.Flatten(), [HighwayLayer(8) for _ in range(3)], nn.Linear(8, 3)),
        "x:float32[batch,2,4]",
    ),
    "words": (dense, "x:float32[batch,words,6]"),
    "independent": (lambda: dense(carry="independent"), "x:float32[batch,6]"),
    "maxout": (lambda: dense(activation="maxout(2)"), "x:float32[batch,6]"),
    "batch norm": (lambda: dense(batch_norm=True), "x:float32[batch,6]"),
    "fused": (fused, "x:float32[batch,6]"),
    "fused, gate first": (lambda: fused(lambda both: (both[..., 8:], both[..., :8])), "x:float32[batch,6]"),
    "fused words": (fused, "x:float32[batch,words,6]"),
    "fused, independent": (
        lambda: fused(lambda both: both.chunk(3, dim=-1), count=3),
        "x:float32[batch,6]",
    ),
    "fused line": (fused_convolutional, "x:float32[batch,2,5]"),
    "line": (lambda: convolutional(1), "x:float32[batch,2,5]"),
    "plane": (lambda: convolutional(2), "x:float32[batch,2,5,4]"),
}

# variants of the others, which are proved in the slow tests
SLOW_NETWORKS = ("words", "maxout", "batch norm", "fused words", "fused, independent", "fused line")


@cache
def whole_graph(name: str) -> PreparedGraph:
    """The graph of a network, which tests do not change."""
    make, inputs = NETWORKS[name]
    torch.manual_seed(1)
    module = make()
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 2)
    return prepare(Network("net", "module", parse_inputs([inputs]), module=module.eval()))


def rows_for(graph: PreparedGraph, count: int = 5) -> dict[str, Array]:
    sizes = [5 if not isinstance(size, int) else size for size in (graph.model.graph.inputs[0].shape or ())]
    random = np.random.default_rng(0)
    return {"x": random.standard_normal((count, *sizes[1:])).astype(np.float32)}


def open_graph(model: ir.Model) -> Runtime:
    return open_model(to_bytes(model))


def some_units(search: LayerSearch, share: float = 0.4) -> dict[str, list[int]]:
    random = np.random.default_rng(2)
    return {
        layer.gate.name: sorted(random.choice(layer.units, round(share * layer.units), False).tolist())
        for layer in search.layers
    }


def cut(graph: PreparedGraph, search: LayerSearch, kept: dict[str, list[int]], form: Form) -> CutGraph:
    return cut_units(graph.model, graph.gates.gates, search.layers, kept, form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW_NETWORKS else []) for name in NETWORKS],
)
def test_removed_units_carry_their_input(name: str, form: Form) -> None:
    """Public outputs, gates and layer outputs are those of the whole graph with the units carried."""
    graph = whole_graph(name)
    search = find_removable_layers(graph.model, graph.gates.gates)
    assert len(search.layers) == 3
    kept = some_units(search)
    runtime = open_graph(cut(graph, search, kept, form).model)
    feeds = rows_for(graph)
    reference = carried_reference(graph.model, graph.public_outputs, search.layers, kept)
    # without a manifest, hidden outputs are like the others
    names = [tensor.name for tensor in runtime.outputs]
    assert {f"layer{n:02}.{part}" for n in range(3) for part in ("transform_gate", "output")} <= set(names)
    exposed = ir.from_proto(reference)
    values = {value.name: value for node in exposed.graph for value in node.outputs}
    exposed.graph.outputs[:] = [values[name] for name in names]
    expected = open_model(ir.to_proto(exposed).SerializeToString()).run(feeds, names)
    whole = open_model(graph.data).run(feeds, [names[0]])[0]
    for tensor, actual, wanted in zip(names, runtime.run(feeds, names), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, atol=1e-6, err_msg=tensor)
    assert np.abs(expected[0] - whole).max() > 1e-3


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW_NETWORKS else []) for name in NETWORKS],
)
def test_cut_graphs_are_decided_for_every_input(name: str, form: Form) -> None:
    """With their levers; and a cut of other units is another function."""
    graph = whole_graph(name)
    search = find_removable_layers(graph.model, graph.gates.gates)
    kept = some_units(search)
    reference = carried_reference(graph.model, graph.public_outputs, search.layers, kept)
    network = Network("net", "graph", parse_inputs([NETWORKS[name][1]]), graph=reference)

    def decided(kept: dict[str, list[int]]) -> Decision:
        result = cut(graph, search, kept, form)
        hidden = [str(value.name) for value in result.model.graph.outputs]
        origins = {name: Origin(name) for name in hidden if name in graph.gates.origins}
        gates = Instrumentation(result.gates, origins, ())
        prepared = PreparedGraph(None, result.model, gates, (), (), b"")
        return decide_identity(network, prepared, result.model)

    decision = decided(kept)
    assert decision.verdict is Verdict.IDENTICAL, decision
    assert len(decision.compared) >= 7
    assert decision.levers is not None
    assert decision.levers.verdict is Verdict.IDENTICAL, decision.levers
    first = search.layers[0].gate.name
    other = next(unit for unit in range(search.layers[0].units) if unit not in kept[first])
    assert decided(kept | {first: sorted([*kept[first][1:], other])}).verdict is Verdict.DIFFERENT


@pytest.mark.parametrize("form", FORMS)
def test_the_last_layer_may_lose_all_units(form: Form) -> None:
    """The network's output keeps its name, though it is then the state before."""
    torch.manual_seed(1)
    module = nn.Sequential(HighwayLayer(8), HighwayLayer(8)).eval()
    graph = prepare(Network("net", "module", parse_inputs(["x:float32[batch,8]"]), module=module))
    search = find_removable_layers(graph.model, graph.gates.gates)
    feeds = rows_for(graph)
    with torch.no_grad():
        first = module[0](torch.from_numpy(feeds["x"])).numpy()
    for kept, expected in (([1, 2], None), ([], feeds["x"]), (list(range(8)), first)):
        units = {layer.gate.name: kept if place == 0 else [] for place, layer in enumerate(search.layers)}
        runtime = open_graph(cut(graph, search, units, form).model)
        (answer,) = runtime.run(feeds, ["output"])
        wanted = np.where(np.isin(np.arange(8), kept), first, feeds["x"]) if expected is None else expected
        np.testing.assert_allclose(answer, wanted, atol=1e-6)


def test_layers_with_units_on_different_axes_are_cut() -> None:
    """A state of one shape may be that of channels in one layer, and of a row's numbers in the next."""
    torch.manual_seed(1)
    module = nn.Sequential(ConvHighwayLayer(6, dims=1), HighwayLayer(6)).eval()
    graph = prepare(Network("net", "module", parse_inputs(["x:float32[batch,6,6]"]), module=module))
    search = find_removable_layers(graph.model, graph.gates.gates)
    kept = {layer.gate.name: [0, 2, 3][: 3 - place] for place, layer in enumerate(search.layers)}
    feeds = rows_for(graph)
    reference = open_model(
        carried_reference(graph.model, graph.public_outputs, search.layers, kept).SerializeToString()
    )
    (expected,) = reference.run(feeds, ["output"])
    (answer,) = open_graph(cut(graph, search, kept, "scatter").model).run(feeds, ["output"])
    np.testing.assert_allclose(answer, expected, atol=1e-6)


def test_layers_may_stay_whole() -> None:
    """The reference then has no outputs but the network's own, since a proof takes its outputs in order."""
    graph = whole_graph("dense")
    search = find_removable_layers(graph.model, graph.gates.gates)
    layer = search.layers[1]
    kept = {layer.gate.name: [0, 3]}
    reference = carried_reference(graph.model, graph.public_outputs, [layer], kept)
    assert tuple(output.name for output in reference.graph.output) == graph.public_outputs
    result = cut_units(graph.model, graph.gates.gates, [layer], kept)
    assert [gate.kept for gate in result.gates] == [None, (0, 3), None]
    feeds = rows_for(graph)
    (expected,) = open_model(reference.SerializeToString()).run(feeds)
    np.testing.assert_allclose(open_graph(result.model).run(feeds)[0], expected, atol=1e-6)


def test_the_reference_is_the_formula() -> None:
    """By hand, in NumPy: y = T H + (1 - T) x for the kept units, x for the others."""
    graph = whole_graph("dense")
    search = find_removable_layers(graph.model, graph.gates.gates)
    kept = some_units(search)
    feeds = rows_for(graph)
    weights = {
        name: value.const_value.numpy().astype(np.float64)
        for name, value in graph.model.graph.initializers.items()
        if value.const_value is not None
    }
    x = feeds["x"] @ weights["entry.weight"].T + weights["entry.bias"]
    for number, units in enumerate(kept.values()):
        prefix = f"layers.{number}"
        h = np.maximum(
            x @ weights[f"{prefix}.normal_layer.weight"].T + weights[f"{prefix}.normal_layer.bias"], 0
        )
        t = 1 / (1 + np.exp(-(x @ weights[f"{prefix}.gate.weight"].T + weights[f"{prefix}.gate.bias"])))
        y = t * h + (1 - t) * x
        x = np.where(np.isin(np.arange(8), units), y, x)
    expected = x @ weights["output.weight"].T + weights["output.bias"]
    for form in FORMS:
        actual, *_ = open_graph(cut(graph, search, kept, form).model).run(feeds)
        np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "maxout"])
def test_matrices_lose_the_rows_of_removed_units(name: str) -> None:
    """Three of eight units are kept, and three eighths of each matrix, also if it is one for H and T."""
    graph = whole_graph(name)
    search = find_removable_layers(graph.model, graph.gates.gates)
    result = cut(graph, search, some_units(search), "scatter")
    # the words of a row are a dimension without a size
    positions = {"line": 5, "fused line": 5, "plane": 20}.get(name, 1)
    kernel = {"line": 3, "fused line": 3, "plane": 9}.get(name, 1)
    maps = 3 if "independent" in name else 2
    assert result.macs_whole == 3 * maps * 8 * 8 * kernel * positions
    assert result.macs_share == 0.375
    assert not any(node.op_type == "Split" for node in result.model.graph)


def test_a_layer_without_units_disappears() -> None:
    """Its gate and levers go with it. The others keep their numbers, and one with all units stays whole."""
    graph = whole_graph("dense")
    search = find_removable_layers(graph.model, graph.gates.gates)
    first, middle, last = (layer.gate.name for layer in search.layers)
    kept = {first: list(range(8)), middle: [], last: [1, 5]}
    result = cut(graph, search, kept, "scatter")
    runtime = open_graph(result.model)
    assert [gate.name for gate in result.gates] == [first, last]
    assert [gate.layer for gate in result.gates] == [0, 2]
    assert [gate.kept for gate in result.gates] == [None, (1, 5)]
    assert not any(tensor.name.startswith("layer01") for tensor in runtime.outputs)
    assert len(runtime.levers) == 2
    actual, *_ = runtime.run(feeds := rows_for(graph))
    reference = carried_reference(graph.model, graph.public_outputs, search.layers, kept)
    (expected,) = open_model(reference.SerializeToString()).run(feeds)
    np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["dense", "independent", "plane", "fused", "fused, gate first", "fused line"]
)
def test_levers_move_the_kept_units(name: str) -> None:
    """A gate of the cut graph is closed by its levers, so that its layer returns its input."""
    graph = whole_graph(name)
    search = find_removable_layers(graph.model, graph.gates.gates)
    result = cut(graph, search, some_units(search), "scatter")
    runtime = open_graph(result.model)
    feeds = rows_for(graph)
    gate = result.gates[1]
    overrides: dict[str, Array] = {}
    for lever in gate.levers:
        value = result.model.graph.initializers[lever.tensor].const_value
        assert value is not None
        bias = overrides.setdefault(lever.tensor, value.numpy().copy())
        bias.reshape(-1)[lever.start : lever.stop] -= lever.sign * 1e4
    before, after, t = runtime.run(
        feeds | overrides, [str(result.gates[0].output), str(gate.output), gate.name]
    )
    assert np.abs(t).max() == 0
    np.testing.assert_array_equal(after, before)
    assert t.shape[gate.unit_axis] == gate.units == len(gate.kept or ())


def test_importance_is_the_root_mean_square_of_the_change() -> None:
    """Over all rows, in batches, and over the positions of a plane."""
    for name in ("dense", "plane"):
        graph = whole_graph(name)
        search = find_removable_layers(graph.model, graph.gates.gates)
        rows = rows_for(graph, 70)
        importance = measure_changes(graph.model, search.layers, Rows(rows))
        names = [str(layer.gate.output) for layer in search.layers]
        outputs = open_model(graph.data).run(rows, names)
        for layer, before, after in zip(search.layers[1:], outputs, outputs[1:], strict=False):
            axis = after.ndim + layer.gate.unit_axis
            others = tuple(number for number in range(after.ndim) if number != axis)
            np.testing.assert_allclose(
                importance[layer.gate.name], np.sqrt(np.square(after - before).mean(others)), rtol=1e-5
            )


def test_other_layers_are_left_whole() -> None:
    """Each reason is said once. A recurrent layer has one set of weights for all of its steps."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = HighwayLayer(6)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(3):
                x = self.layer(x)
            return x

    network = Network("net", "module", parse_inputs(["x:float32[batch,6]"]), module=Recurrent().eval())
    graph = prepare(network)
    search = find_removable_layers(graph.model, graph.gates.gates)
    assert search.layers == ()
    assert search.left_whole == ("3 gates left whole: a recurrent layer, whose units are used at every step",)
