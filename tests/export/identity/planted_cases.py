"""Faults in the graphs of networks: changes by name, and the decision about each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import onnx_ir as ir
import pytest
import torch
from _pytest.mark.structures import ParameterSet

from tests.export.identity.fault_networks import SOURCES
from tests.export.identity.planting import Array, Operand, Plant
from turnpike.export.graph_identity import decide_identity
from turnpike.export.identity.decision import Decision
from turnpike.export.network import Network
from turnpike.export.options import SourceOptions
from turnpike.export.prepared_graph import PreparedGraph, prepare
from turnpike.export.sources.load import load_source

FLOAT16, FLOAT, INT8, INT32, INT64 = 10, 1, 3, 6, 7
END = 2**63 - 1

Change = Callable[[Plant], object]
Step = Callable[..., ir.Value]


@dataclass(frozen=True)
class Case:
    """A change of the graph of a network."""

    network: str
    name: str
    plant: Change


@cache
def prepared(name: str) -> tuple[Network, PreparedGraph]:
    torch.manual_seed(3)
    source = SOURCES[name]
    net = source.make().eval()
    # fresh networks have biases of 0 and scales of 1
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)
    network = load_source(net, SourceOptions(inputs=list(source.inputs), name="n"))
    return network, prepare(network, open_recurrent=source.open_recurrent)


def decided(case: Case) -> Decision:
    """The decision about the graph with the fault."""
    network, graph = prepared(case.network)
    model = graph.model.clone()
    case.plant(Plant(model))
    return decide_identity(network, graph, model)


def parameters(cases: Sequence[Case]) -> list[ParameterSet]:
    """Grouped by network, so that each is prepared once."""
    in_order = sorted(cases, key=lambda case: case.network)
    return [pytest.param(case, id=f"{case.network}: {case.name}") for case in in_order]


def wrap(name: str, step: Step, *arguments: object) -> Change:
    """Another value instead of a value: `step` of the plant, the value, and the arguments."""
    return lambda p: p.wrap(name, lambda v: step(p, v, *arguments))


def feed(name: str, index: int, step: Step, *arguments: object) -> Change:
    """Another input for the operator that computes a value."""
    return lambda p: p.feed(name, index, lambda v: step(p, v, *arguments))


def constant(name: str, index: int, operand: Operand) -> Change:
    """A constant as the input of the operator that computes a value."""
    return lambda p: p.feed(name, index, operand)


def answer(name: str, step: Step, *arguments: object) -> Change:
    """Another value of an output, and of nothing else."""
    return lambda p: p.answer(name, lambda v: step(p, v, *arguments))


def use(name: str, index: int, other: str) -> Change:
    """Another value of the graph as the input of the operator that computes a value."""
    return lambda p: p.feed(name, index, p[other])


def attribute(name: str, **settings: object) -> Change:
    return lambda p: [p.attribute(name, key, setting) for key, setting in settings.items()]


def operator(name: str, operator: str, **settings: object) -> Change:
    return lambda p: p.operator(name, operator, **settings)


def swap(name: str, first: int, second: int) -> Change:
    return lambda p: p.swap(name, first, second)


def weight(name: str, change: Callable[[Array], Array | None]) -> Change:
    return lambda p: p.weight(name, change)


def lengths(p: Plant, limit: int) -> ir.Value:
    """The length of each row, up to a limit."""
    length = p.Cast(p.Min(p.size(1), [limit]), to=INT32)
    return p.Expand(length, p.size())


def by(operator: str, *numbers: float) -> Step:
    """One operator with numbers after a value."""
    return lambda p, v: getattr(p, operator)(v, *numbers)


def renamed(first: str, second: str) -> Change:
    """Two values with each other's names."""

    def plant(p: Plant) -> None:
        one, other = p[first], p[second]
        one.name, other.name = "unused", first
        one.name = second

    return plant


def before(name: str, step: Step) -> Change:
    """Another operator instead of the one that computes a value, on its first input."""

    def plant(p: Plant) -> None:
        source = p.producer(name).inputs[0]
        p.wrap(name, lambda v: step(p, source))

    return plant


def numbers(value: ir.Value) -> Array:
    assert value.const_value is not None
    return value.const_value.numpy().copy()
