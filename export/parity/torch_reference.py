"""The truth of a network: its own code for the outputs, the program traced from it for what is inside."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.func import functional_call
from torch.utils import _pytree as pytree

from export.errors import ParityError, UntraceableError
from export.gates.instrument import Origin
from export.parity.batches import ProofBatch
from export.parity.float64 import float64_mode, independent_copy, to_float64
from export.parity.onnx_reference import GraphEvaluator
from export.parity.reference import (
    RejectedError,
    TensorValues,
    complement,
    equal_up_to_rounding,
    network_inputs,
    one_line,
    public_outputs,
)
from export.source import Array, Source
from export.trace.trace import TracedGraph


class NetworkCopy:
    """A copy of a module in eval mode, or of the program that came in a module's place."""

    def __init__(self, source: Source) -> None:
        self._inputs = [one.name for one in source.inputs]
        self._in_spec: pytree.TreeSpec | None = None
        if source.module is not None:
            self._module = independent_copy(source.module).eval()
        elif source.program is not None:
            with isolated():
                self._module = independent_copy(source.program.module())
            self._in_spec = source.program.call_spec.in_spec
        else:
            raise UntraceableError("expected a network to compare with, and there is only a graph")
        self._wide: dict[str, Tensor] | None = None

    def own(self, batch: ProofBatch) -> list[Array]:
        """The outputs that are tensors, in order; whatever the network raises comes out as it is."""
        with isolated():
            return self._answers(self._module, self.tensors(batch))

    def wide(self, batch: ProofBatch) -> list[Array]:
        """The same in float64."""
        with isolated(), float64_mode():
            tensors = [to_float64(tensor) for tensor in self.tensors(batch)]
            return self._answers(lambda *args, **kw: self._with_wide(args, kw), tensors)

    def tensors(self, batch: ProofBatch) -> list[Tensor]:
        """What the network is called with; memory of its own for each, in case the network writes there."""
        return [_tensor(batch.arrays[name], batch.strided) for name in self._inputs]

    def wide_weights(self) -> dict[str, Tensor]:
        """Every parameter and buffer in float64, by name."""
        if self._wide is None:
            self._wide = {name: to_float64(tensor.detach()) for name, tensor in self._weights().items()}
        return self._wide

    def changed_by(self, batch: ProofBatch) -> str | None:
        """The name of a parameter or buffer that a run leaves other than it was; None where all stay."""
        before = self._digests()
        self.own(batch)
        changed = before.items() ^ self._digests().items()
        return min((name for name, _ in changed), default=None)

    def _digests(self) -> dict[str, object]:
        return {
            name: (tensor.dtype, tensor.shape, zlib.crc32(tensor.detach().contiguous().numpy().data))
            for name, tensor in self._weights().items()
        }

    def _weights(self) -> dict[str, Tensor]:
        return {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}

    def _with_wide(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return functional_call(self._module, self.wide_weights(), args, kwargs)

    def _answers(self, call: Callable[..., Any] | nn.Module, tensors: list[Tensor]) -> list[Array]:
        args, kwargs = tensors, dict[str, Any]()
        if self._in_spec is not None:
            args, kwargs = pytree.tree_unflatten(tensors, self._in_spec)
        given = pytree.tree_leaves(call(*args, **kwargs))
        return [leaf.detach().numpy() for leaf in given if isinstance(leaf, Tensor)]


@contextmanager
def isolated() -> Iterator[None]:
    """Run a network without gradients and warnings, and without a trace in torch's random numbers."""
    with torch.no_grad(), warnings.catch_warnings(action="ignore"), torch.random.fork_rng(devices=[]):
        # each run draws its own random numbers, so that a network that uses them is found out
        torch.seed()
        yield


def _tensor(array: Array, strided: bool) -> Tensor:
    tensor = torch.from_numpy(array.copy())
    return torch.stack([tensor, tensor], dim=-1)[..., 0] if strided else tensor


class TracedValues:
    """Runs a program, and keeps the values of those of its nodes that are `wanted` and `known`."""

    def __init__(self, program: ExportedProgram, wanted: Sequence[str]) -> None:
        self._program = program
        self._weights = program_weights(program)
        self._wide: dict[str, Any] | None = None
        values = {node.name for node in program.graph.nodes if isinstance(node.meta.get("val"), Tensor)}
        self.known = frozenset(wanted) & values

    def own(self, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        """The values kept, by the names of their nodes."""
        with isolated():
            return self._run(self._weights, tensors)[0]

    def wide(
        self, tensors: Sequence[Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """The values kept and the outputs, in float64; `weights` are the network's, by its own names."""
        if self._wide is None:
            called = {spec.arg.name: spec.target for spec in self._program.graph_signature.input_specs}
            self._wide = {
                name: weights[called[name]] if called[name] in weights else to_float64(value)
                for name, value in self._weights.items()
            }
        with isolated(), float64_mode():
            return self._run(self._wide, [to_float64(tensor) for tensor in tensors])

    def _run(
        self, weights: Mapping[str, Any], tensors: Sequence[Tensor]
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        given = iter(tensors)
        names = [spec.arg.name for spec in self._program.graph_signature.input_specs]
        values = [weights[name] if name in weights else next(given) for name in names]
        keeper = _ValueRecorder(self._program.graph_module, self.known)
        results = pytree.tree_leaves(keeper.run(*values, enable_io_processing=False))
        kinds = [spec.kind for spec in self._program.graph_signature.output_specs]
        outputs = [
            result
            for kind, result in zip(kinds, results, strict=True)
            if kind is OutputKind.USER_OUTPUT and isinstance(result, Tensor)
        ]
        return keeper.kept, outputs


def recompute_constant(program: ExportedProgram, name: str) -> Array | None:
    """The value in float64 of a node that no input has a part in; None where there is no such node."""
    weights = program_weights(program)
    values: dict[fx.Node, Any] = {}
    with isolated(), float64_mode():
        for node in program.graph.nodes:
            if node.op == "placeholder" and node.name in weights:
                values[node] = to_float64(weights[node.name])
            elif node.op == "call_function" and all(one in values for one in node.all_input_nodes):
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = node.target(*args, **kwargs)
            if node.name == name:
                found = values.get(node)
                return found.numpy() if isinstance(found, Tensor) else None
    return None


def program_weights(program: ExportedProgram) -> dict[str, Any]:
    """What stands for every input of the program's graph that is not the network's own input."""
    found: dict[str, Any] = {}
    for spec in program.graph_signature.input_specs:
        if isinstance(spec.arg, ConstantArgument):
            found[spec.arg.name] = spec.arg.value
        elif spec.kind is not InputKind.USER_INPUT and spec.target is not None:
            held = program.state_dict if spec.target in program.state_dict else program.constants
            found[spec.arg.name] = held[spec.target]
    return found


class _ValueRecorder(fx.Interpreter):
    """Remembers what the wanted nodes gave."""

    def __init__(self, module: fx.GraphModule, wanted: frozenset[str]) -> None:
        super().__init__(module)
        self.wanted = wanted
        self.kept: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.name in self.wanted:
            self.kept[n.name] = result
        return result


class TorchReference:
    """Outputs of the original network itself, values inside of it of the program that was traced.

    A hidden value that is no node of the program, as inside an operator that became several, is worked
    out from the graph by onnx's reference evaluator.
    """

    def __init__(
        self, source: Source, traced: TracedGraph, model: ir.Model, origins: Mapping[str, Origin]
    ) -> None:
        self.reference = "the original network in float64"
        self.warnings: tuple[str, ...] = ()
        self.noise = 0.0
        self.forgets = False
        self._network = NetworkCopy(source)
        self._public = public_outputs(model, origins)
        self._origins = origins
        self._inner = TracedValues(traced.program, [origin.value for origin in origins.values()])
        self._feeds = dict(zip(network_inputs(model), (one.name for one in source.inputs), strict=True))
        unknown = [name for name, origin in origins.items() if origin.value not in self._inner.known]
        self._evaluator = GraphEvaluator(ir.to_proto(model), unknown) if unknown else None
        if unknown:
            self.reference += f"; the graph by onnx's reference evaluator in float64 for {', '.join(unknown)}"

    def own(self, batch: ProofBatch) -> TensorValues:
        """The original as it is, and in small batches the program's inner values."""
        try:
            outputs = self._named(self._network.own(batch), batch)
        except ParityError:
            raise
        except Exception as exc:  # whatever their code raises
            raise RejectedError(one_line(exc)) from exc
        if not batch.small:
            return outputs
        try:
            inner = self._inner.own(self._network.tensors(batch))
        except Exception as exc:  # whatever an operator raises
            raise ParityError(
                f"the traced program does not take the batch {batch.name!r} that the network takes: "
                f"{one_line(exc)}"
            ) from exc
        return outputs | self._hidden(inner, batch, wide=False)

    def wide(self, batch: ProofBatch) -> TensorValues:
        """Both in float64; a ParityError where the program is not the network."""
        original = self._original(batch)
        if original is not None and not batch.small:
            return original
        inner, outputs = self._inner.wide(self._network.tensors(batch), self._network.wide_weights())
        traced = self._named([tensor.numpy() for tensor in outputs], batch)
        if original is not None:
            expect_traced_equal(original, traced, batch)
        return (original or traced) | self._hidden(inner, batch, wide=True)

    def expect_stateless(self, batch: ProofBatch) -> None:
        """Stop with an UntraceableError where a run changes a parameter or a buffer."""
        if (changed := self._network.changed_by(batch)) is not None:
            raise UntraceableError(
                f"{changed}: forward changes it, so that an answer would depend on those before it: expected "
                "parameters and buffers that stay as they are in eval mode; hand state in and out instead"
            )

    def _original(self, batch: ProofBatch) -> TensorValues | None:
        """The original in float64, or None where its code has no mind for such numbers."""
        if self.warnings:
            return None
        try:
            outputs = self._network.wide(batch)
        except Exception as exc:  # whatever their code raises
            self.reference = self.reference.replace("the original network", "the traced program", 1)
            self.warnings = (
                f"the network does not run in float64 ({one_line(exc)}): its traced program stood for it",
            )
            return None
        return self._named(outputs, batch)

    def _named(self, outputs: list[Array], batch: ProofBatch) -> TensorValues:
        if len(outputs) != len(self._public):
            raise ParityError(
                f"outputs: expected the network's {len(outputs)} tensors, the graph has {len(self._public)} "
                f"({', '.join(self._public)}), with the batch {batch.name!r}"
            )
        return dict(zip(self._public, outputs, strict=True))

    def _hidden(self, inner: Mapping[str, Tensor], batch: ProofBatch, wide: bool) -> TensorValues:
        found: TensorValues = {}
        if self._evaluator is not None:
            feeds = {name: batch.arrays[own] for name, own in self._feeds.items()}
            found = self._evaluator.run(feeds, wide=wide)
        for name, origin in self._origins.items():
            if origin.value in inner:
                found[name] = complement(inner[origin.value].numpy(), origin)
        return found


def expect_traced_equal(original: TensorValues, traced: TensorValues, batch: ProofBatch) -> None:
    """Stop with a ParityError unless both are the same but for the rounding of float64."""
    for name, expected in original.items():
        if not equal_up_to_rounding(expected, traced[name]):
            raise ParityError(
                f"{name}: the traced program does not compute what the network does with the batch "
                f"{batch.name!r}: a random number, a Python branch or a number that Python worked out was "
                "baked in while tracing"
            )
