"""What the original network answers, in its own precision and in float64: the truth an export is measured by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import onnx
import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from export.batches import Batch
from export.double import copy_of, double, widened
from export.errors import ParityError, UntraceableError
from export.evaluator import Evaluator
from export.gates import Origin
from export.inner import Inner
from export.source import Array, Source
from export.trace import Traced, quiet

Answers = dict[str, Array]

# how far two computations in float64 may be apart, for each unit of what they compute
SAME = 1e-9
# what is left of numbers near 1 that cancel out
REST = 1e-14


class RejectedError(Exception):
    """The network itself takes no such batch."""


class Truth(Protocol):
    """The network's own answers by the names of the graph's outputs; `reference` says what they come from."""

    reference: str
    warnings: tuple[str, ...]

    def own(self, batch: Batch) -> Answers:
        """In the network's own precision; a RejectedError where it takes no such batch."""
        ...

    def wide(self, batch: Batch) -> Answers:
        """In float64."""
        ...


def find_truth(
    source: Source, traced: Traced | None, model: ir.Model, origins: Mapping[str, Origin]
) -> Truth:
    """What the outputs of a graph, public and hidden, are to be measured by."""
    if traced is None:
        assert source.graph is not None
        return GraphTruth(source.graph, public(model, origins), origins)
    return NetworkTruth(source, traced, model, origins)


def public(model: ir.Model, origins: Mapping[str, Origin]) -> list[str]:
    """The outputs that are the network's own, in order."""
    return [str(value.name) for value in model.graph.outputs if value.name not in origins]


class NetworkTruth:
    """Outputs of the original module itself, values inside it of the program that was traced."""

    def __init__(
        self, source: Source, traced: Traced, model: ir.Model, origins: Mapping[str, Origin]
    ) -> None:
        self.reference = "the original network in float64"
        self.warnings: tuple[str, ...] = ()
        self.network = Network(source)
        self._inputs = [one.name for one in source.inputs]
        self._public = public(model, origins)
        self._origins = origins
        self._inner = Inner(traced.program, [origin.value for origin in origins.values()])
        unknown = [name for name, origin in origins.items() if origin.value not in self._inner.known]
        self._evaluator = Evaluator(ir.to_proto(model), unknown) if unknown else None
        self._names = [str(v.name) for v in model.graph.inputs if v.name not in model.graph.initializers]
        if unknown:
            self.reference += f"; onnx's reference evaluator in float64 for {', '.join(unknown)}"

    def own(self, batch: Batch) -> Answers:
        """The original as it is, and in small batches the program's inner values."""
        try:
            with quiet():
                outputs = self.network.own(batch)
        except Exception as exc:  # whatever their code raises
            raise RejectedError(" ".join(str(exc).split()) or type(exc).__name__) from exc
        if not batch.small:
            return self._named(outputs, batch)
        try:
            with quiet():
                inner, _ = self._inner.own(self.network.tensors(batch))
        except Exception as exc:  # whatever an operator raises
            reason = " ".join(str(exc).split()) or type(exc).__name__
            raise ParityError(
                f"the traced program does not take the batch {batch.name!r}, which the network takes ({reason})"
            ) from exc
        return self._named(outputs, batch) | self._hidden(inner, batch, wide=False)

    def wide(self, batch: Batch) -> Answers:
        """Both in float64; a ParityError where the program is not the module."""
        if not batch.small and not self.warnings:
            return self._named(self.network.wide(batch), batch)
        with quiet():
            inner, traced = self._inner.wide(self.network.tensors(batch))
            outputs = self._named([tensor.numpy() for tensor in traced], batch)
            try:
                original = self._named(self.network.wide(batch), batch)
            except ParityError:
                raise
            except Exception as exc:  # whatever their code raises
                self._without_original(exc)
            else:
                expect_same(original, outputs, batch)
                outputs = original
        return outputs | self._hidden(inner, batch, wide=True)

    def _without_original(self, exc: Exception) -> None:
        if not self.warnings:
            self.reference = self.reference.replace("the original network", "the traced program")
            reason = " ".join(str(exc).split()) or type(exc).__name__
            self.warnings = (
                f"the network does not run in float64 ({reason}), so its traced program stood for the truth",
            )

    def _named(self, outputs: list[Array], batch: Batch) -> Answers:
        if len(outputs) != len(self._public):
            raise ParityError(
                f"outputs: expected the network's {len(outputs)} tensors, the graph has {len(self._public)} "
                f"({', '.join(self._public)}), with the batch {batch.name!r}"
            )
        return dict(zip(self._public, outputs, strict=True))

    def _hidden(self, inner: dict[str, Tensor], batch: Batch, wide: bool) -> Answers:
        found: Answers = {}
        if self._evaluator is not None:
            feeds = [batch.arrays[name] for name in self._inputs]
            found = self._evaluator.run(dict(zip(self._names, feeds, strict=True)), wide=wide)
        for name, origin in self._origins.items():
            if origin.value in inner:
                found[name] = complemented(inner[origin.value].numpy(), origin)
        return found


class GraphTruth:
    """A graph that came as it is: the same graph, run by onnx's reference evaluator."""

    def __init__(self, graph: onnx.ModelProto, names: list[str], origins: Mapping[str, Origin]) -> None:
        self.reference = "onnx's reference evaluator in float64"
        self.warnings: tuple[str, ...] = ()
        self._origins = origins
        self._public = dict(zip(names, (value.name for value in graph.graph.output), strict=True))
        wanted = [*self._public.values(), *(origin.value for origin in origins.values())]
        self._evaluator = Evaluator(graph, wanted)

    def own(self, batch: Batch) -> Answers:
        """The graph as it is."""
        try:
            return self._run(batch, wide=False)
        except Exception as exc:  # the evaluator's ops raise almost anything
            raise RejectedError(" ".join(str(exc).split()) or type(exc).__name__) from exc

    def wide(self, batch: Batch) -> Answers:
        """The graph with float64 in place of every narrower type."""
        return self._run(batch, wide=True)

    def _run(self, batch: Batch, wide: bool) -> Answers:
        values = self._evaluator.run(batch.arrays, wide=wide)
        found = {name: values[own] for name, own in self._public.items()}
        return found | {
            name: complemented(values[origin.value], origin) for name, origin in self._origins.items()
        }


class Network:
    """The original module, or the program that it came as: copies of it, so that it stays as it is."""

    def __init__(self, source: Source) -> None:
        self._inputs = [one.name for one in source.inputs]
        if source.module is not None:
            self._in_spec = None
            self.module = copy_of(source.module).eval()
        elif source.program is not None:
            self._in_spec = source.program.call_spec.in_spec
            self.module = copy_of(source.program.module())
        else:
            raise UntraceableError("a network to compare with is needed, and there is only a graph")
        self._wide: nn.Module | None = None

    def own(self, batch: Batch) -> list[Array]:
        """The outputs that are tensors, in order."""
        with torch.no_grad():
            return self._answer(self.module, self.tensors(batch))

    def wide(self, batch: Batch) -> list[Array]:
        """The same in float64."""
        if self._wide is None:
            self._wide = copy_of(self.module).double()
        with torch.no_grad(), double():
            return self._answer(self._wide, [widened(tensor) for tensor in self.tensors(batch)])

    def state(self) -> dict[str, Tensor]:
        """Every parameter and buffer, as they are now."""
        named = (*self.module.named_parameters(), *self.module.named_buffers())
        return {name: tensor.detach().clone() for name, tensor in named}

    def tensors(self, batch: Batch) -> list[Tensor]:
        """What the network is called with; memory of its own for each, in case the network writes there."""
        return [_tensor(batch.arrays[name], batch.strided) for name in self._inputs]

    def _answer(self, module: nn.Module, tensors: list[Tensor]) -> list[Array]:
        args: tuple[Any, ...] = tuple(tensors)
        kwargs: dict[str, Any] = {}
        if self._in_spec is not None:
            args, kwargs = pytree.tree_unflatten(tensors, self._in_spec)
        given = pytree.tree_leaves(module(*args, **kwargs))
        return [leaf.detach().numpy() for leaf in given if isinstance(leaf, Tensor)]


def _tensor(array: Array, strided: bool) -> Tensor:
    tensor = torch.from_numpy(array.copy())
    return torch.stack([tensor, tensor], dim=-1)[..., 0] if strided else tensor


def complemented(value: Array, origin: Origin) -> Array:
    """The value that a hidden output stands for, of the value it came from."""
    return 1 - value if origin.complement else value


def expect_same(original: Answers, traced: Answers, batch: Batch) -> None:
    """Stop with a ParityError unless both are the same but for the rounding of float64."""
    for name, expected in original.items():
        came = traced[name]
        if came.shape == expected.shape and came.dtype == expected.dtype:
            if expected.dtype.kind != "f":
                same = np.array_equal(expected, came)
            else:
                finite = np.isfinite(expected)
                scale = np.abs(expected[finite]).max(initial=0.0)
                same = np.array_equal(finite, np.isfinite(came)) and bool(
                    np.all(np.abs(expected[finite] - came[finite]) <= SAME * scale)
                )
            if same:
                continue
        raise ParityError(
            f"{name}: the traced program does not compute what the network does with the batch "
            f"{batch.name!r}: a random number, a Python branch or a number worked out while tracing "
            "was baked in"
        )
