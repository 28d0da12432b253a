"""`Exhibit`: a network, and the edit that turns its right file into the wrong file of a bug.

These modules import torch and onnx_ir, and nothing of turnpike: the other tools that check these files run in
an environment without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir
import torch
from onnx_ir.passes.common import RemoveUnusedNodesPass, ShapeInferencePass
from torch import Tensor, nn

from tests.export.identity.planting import Plant

Edit = Callable[[Plant], object]


@dataclass(frozen=True)
class Exhibit:
    """A silent bug.

    Attributes:
        name: The name of its files.
        source: Repository and number of the issue or pull request that describes it.
        culprit: The program that had it.
        symptom: What the file computed instead, in a few words.
        make: Makes the network.
        inputs: Its inputs, as `turnpike export --input` takes them.
        example: The inputs that an exporter gets to trace with, as in the issue where it names some.
        edit: Turns the right graph into the wrong one.
        noticed: Whether turnpike decides that the wrong graph is another function, for every input, or only
            measures on batches that its values differ.
        is_pull: Whether `source` is a pull request.
    """

    name: str
    source: str
    culprit: str
    symptom: str
    make: Callable[[], nn.Module]
    inputs: tuple[str, ...]
    example: Callable[[], tuple[Tensor, ...]]
    edit: Edit
    noticed: Literal["decided", "measured"] = "decided"
    is_pull: bool = False

    @property
    def url(self) -> str:
        repository, _, number = self.source.partition("#")
        return f"https://github.com/{repository}/{'pull' if self.is_pull else 'issues'}/{number}"

    def network(self) -> nn.Module:
        """The network, with the same random weights in each process."""
        torch.manual_seed(0)
        return self.make().eval()

    def example_inputs(self) -> tuple[Tensor, ...]:
        torch.manual_seed(1)
        return self.example()

    def spoil(self, model: ir.Model) -> None:
        """Turn the right graph of this network into the wrong one."""
        self.edit(Plant(model))
        RemoveUnusedNodesPass()(model)
        # the shapes in the file are those of the right graph
        for node in model.graph:
            for value in node.outputs:
                value.shape = None
        ShapeInferencePass()(model)


def output_of(plant: Plant, operator: str, number: int = 0) -> str:
    """The name of what a node computes: the first of that operator, or a later one."""
    nodes = [node for node in plant.model.graph if node.op_type == operator]
    return str(nodes[number].outputs[0].name)


def attribute(operator: str, number: int = 0, **settings: object) -> Edit:
    """Other attributes of a node."""

    def edit(plant: Plant) -> None:
        for key, setting in settings.items():
            plant.attribute(output_of(plant, operator, number), key, setting)

    return edit


def instead(operator: str, build: Callable[[Plant, ir.Node], ir.Value], number: int = 0) -> Edit:
    """Another value instead of what a node computes. `build` gets the node."""

    def edit(plant: Plant) -> None:
        name = output_of(plant, operator, number)
        node = plant.producer(name)
        plant.wrap(name, lambda _: build(plant, node))

    return edit


def user_of(plant: Plant, operator: str) -> str:
    """The name of what is computed from the first output of a node."""
    (user, _), *_ = plant[output_of(plant, operator)].uses()
    return str(user.outputs[0].name)


def operand(node: ir.Node, number: int = 0) -> ir.Value:
    value = node.inputs[number]
    assert value is not None
    return value
