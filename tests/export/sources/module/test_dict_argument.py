"""Modules whose forward takes a dictionary are called with a tensor for each key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import pytest
import torch
from torch import Tensor, nn

from turnpike.export.errors import UsageError
from turnpike.export.options import SourceOptions
from turnpike.export.sources.load import load_source
from turnpike.export.sources.module.dict_argument import takes_dict
from turnpike.export.trace.trace_network import trace

if TYPE_CHECKING:
    from collections.abc import Unknown  # type: ignore[attr-defined]

INPUTS = ["image:float32[batch,4]", "mask:float32[batch,4]"]


class Batch(TypedDict):
    image: Tensor


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.linear(batch["image"]) - self.linear(batch["mask"])


def test_the_inputs_are_the_keys() -> None:
    """Weights keep their names, and the module that was passed still takes a dictionary."""
    module = Masked()
    source = load_source(module, SourceOptions(inputs=INPUTS))
    assert source.module is not None
    image, mask = torch.rand(2, 3, 4)
    expected = module({"image": image, "mask": mask})
    assert torch.equal(source.module(image, mask), expected)
    graph = trace(source).model.graph
    assert [value.name for value in graph.inputs] == ["image", "mask"]
    assert {"linear.weight", "linear.bias"} <= graph.initializers.keys()


def test_a_dictionary_needs_inputs() -> None:
    with pytest.raises(
        UsageError, match="expected one for each key of the dictionary that forward of Masked"
    ):
        load_source(Masked(), SourceOptions(inputs=[]))


def test_inputs_that_could_be_keys_are_told_so() -> None:
    """Without its type, the argument cannot be known to be a dictionary."""

    class Untyped(Masked):
        def forward(self, batch: Any) -> Tensor:
            return super().forward(batch)

    with pytest.raises(
        UsageError, match=r"got 2: if it is a dictionary, write its type, as in .*batch: dict"
    ):
        load_source(Untyped(), SourceOptions(inputs=INPUTS))
    source = load_source(Untyped(), SourceOptions(inputs=INPUTS[:1]))
    with pytest.raises(UsageError, match=r"forward takes a dictionary: .*forward\(self, batch: dict\)"):
        trace(source)


def test_dictionaries_are_recognized_by_their_type() -> None:
    class Net(nn.Module):
        forward: Any

    def a(self: Any, batch: Mapping[str, Tensor]) -> None: ...
    def b(self: Any, batch: Batch, scale: float = 1.0, **options: int) -> None: ...
    def c(self: Any, batch: dict[str, Unknown]) -> None: ...
    def d(self: Any, x: Tensor) -> None: ...
    def e(self: Any, batch: dict[str, Tensor], x: Tensor) -> None: ...
    def f(self: Any, *batches: dict[str, Tensor]) -> None: ...
    def g(self: Any, x: list[dict[str, Tensor]]) -> None: ...

    for function, expected in (
        (a, True),
        (b, True),
        (c, True),
        (d, False),
        (e, False),
        (f, False),
        (g, False),
    ):
        module = type("Net", (Net,), {"forward": function})()
        assert takes_dict(module) is expected, function.__name__


def test_arguments_of_any_number_are_traced() -> None:
    """Each has dynamic dimensions of its own."""

    class Sum(nn.Module):
        def forward(self, first: Tensor, *others: Tensor) -> Tensor:
            return first + others[0] * others[1]

    source = load_source(
        Sum(), SourceOptions(inputs=["a:float32[batch,4]", "b:float32[batch,4]", "c:float32[batch,4]"])
    )
    assert [str(value.shape) for value in trace(source).model.graph.inputs] == ["[batch,4]"] * 3
