"""Reference for PyTorch networks: the original module for outputs, its traced program for inner values."""

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
    """A copy of the source's module in eval mode (or of its program), run natively and in float64."""

    def __init__(self, source: Source) -> None:
        self._inputs = [spec.name for spec in source.inputs]
        self._in_spec: pytree.TreeSpec | None = None
        if source.module is not None:
            self._module = independent_copy(source.module).eval()
        elif source.program is not None:
            with isolated():
                self._module = independent_copy(source.program.module())
            self._in_spec = source.program.call_spec.in_spec
        else:
            raise UntraceableError("expected a network to compare with, got only a graph")
        self._float64_weights: dict[str, Tensor] | None = None

    def native(self, batch: ProofBatch) -> list[Array]:
        """The outputs that are tensors, in order. Exceptions of the network are not translated."""
        with isolated():
            return self._outputs(self._module, self.tensors(batch))

    def float64(self, batch: ProofBatch) -> list[Array]:
        """The same outputs in float64."""
        with isolated(), float64_mode():
            tensors = [to_float64(tensor) for tensor in self.tensors(batch)]
            return self._outputs(lambda *args, **kwargs: self._call_in_float64(args, kwargs), tensors)

    def tensors(self, batch: ProofBatch) -> list[Tensor]:
        """The arguments of the network, each in memory of its own in case the network writes into it."""
        return [_tensor(batch.arrays[name], batch.strided) for name in self._inputs]

    def float64_weights(self) -> dict[str, Tensor]:
        """Every parameter and buffer in float64, by name."""
        if self._float64_weights is None:
            self._float64_weights = {
                name: to_float64(tensor.detach()) for name, tensor in self._weights().items()
            }
        return self._float64_weights

    def changed_by(self, batch: ProofBatch) -> str | None:
        """The name of a parameter or buffer that a run changes; None if it changes none."""
        before = self._digests()
        self.native(batch)
        changed = before.items() ^ self._digests().items()
        return min((name for name, _ in changed), default=None)

    def _digests(self) -> dict[str, object]:
        return {
            name: (tensor.dtype, tensor.shape, zlib.crc32(tensor.detach().contiguous().numpy().data))
            for name, tensor in self._weights().items()
        }

    def _weights(self) -> dict[str, Tensor]:
        return {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}

    def _call_in_float64(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return functional_call(self._module, self.float64_weights(), args, kwargs)

    def _outputs(self, call: Callable[..., Any] | nn.Module, tensors: list[Tensor]) -> list[Array]:
        args, kwargs = tensors, dict[str, Any]()
        if self._in_spec is not None:
            args, kwargs = pytree.tree_unflatten(tensors, self._in_spec)
        leaves = pytree.tree_leaves(call(*args, **kwargs))
        return [leaf.detach().numpy() for leaf in leaves if isinstance(leaf, Tensor)]


@contextmanager
def isolated() -> Iterator[None]:
    """Run a network without gradients and warnings, and restore torch's random state afterwards."""
    with torch.no_grad(), warnings.catch_warnings(action="ignore"), torch.random.fork_rng(devices=[]):
        # a new seed for each run, so that a network that draws random numbers is detected
        torch.seed()
        yield


def _tensor(array: Array, strided: bool) -> Tensor:
    tensor = torch.from_numpy(array.copy())
    return torch.stack([tensor, tensor], dim=-1)[..., 0] if strided else tensor


class TracedValues:
    """Runs a traced program and returns the values of chosen nodes, natively and in float64.

    `known` holds those of the requested names that are nodes of the program.
    """

    def __init__(self, program: ExportedProgram, names: Sequence[str]) -> None:
        self._program = program
        self._weights = program_weights(program)
        self._float64_weights: dict[str, Any] | None = None
        tensor_nodes = {node.name for node in program.graph.nodes if isinstance(node.meta.get("val"), Tensor)}
        self.known = frozenset(names) & tensor_nodes

    def native(self, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        """The values by the names of their nodes."""
        with isolated():
            return self._run(self._weights, tensors)[0]

    def float64(
        self, tensors: Sequence[Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """The values and the outputs in float64; `weights` are the network's, by its own names."""
        if self._float64_weights is None:
            targets = {spec.arg.name: spec.target for spec in self._program.graph_signature.input_specs}
            self._float64_weights = {
                name: weights[targets[name]] if targets[name] in weights else to_float64(value)
                for name, value in self._weights.items()
            }
        with isolated(), float64_mode():
            return self._run(self._float64_weights, [to_float64(tensor) for tensor in tensors])

    def _run(
        self, weights: Mapping[str, Any], tensors: Sequence[Tensor]
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        inputs = iter(tensors)
        names = [spec.arg.name for spec in self._program.graph_signature.input_specs]
        values = [weights[name] if name in weights else next(inputs) for name in names]
        recorder = _ValueRecorder(self._program.graph_module, self.known)
        results = pytree.tree_leaves(recorder.run(*values, enable_io_processing=False))
        kinds = [spec.kind for spec in self._program.graph_signature.output_specs]
        outputs = [
            result
            for kind, result in zip(kinds, results, strict=True)
            if kind is OutputKind.USER_OUTPUT and isinstance(result, Tensor)
        ]
        return recorder.values, outputs


def recompute_constant(program: ExportedProgram, name: str) -> Array | None:
    """Recompute a constant node in float64; None if the node depends on an input or does not exist."""
    weights = program_weights(program)
    values: dict[fx.Node, Any] = {}
    with isolated(), float64_mode():
        for node in program.graph.nodes:
            if node.op == "placeholder" and node.name in weights:
                values[node] = to_float64(weights[node.name])
            elif node.op == "call_function" and all(operand in values for operand in node.all_input_nodes):
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = node.target(*args, **kwargs)
            if node.name == name:
                value = values.get(node)
                return value.numpy() if isinstance(value, Tensor) else None
    return None


def program_weights(program: ExportedProgram) -> dict[str, Any]:
    """Parameters, buffers and constants by the names of the inputs of the program's graph."""
    weights: dict[str, Any] = {}
    for spec in program.graph_signature.input_specs:
        if isinstance(spec.arg, ConstantArgument):
            weights[spec.arg.name] = spec.arg.value
        elif spec.kind is not InputKind.USER_INPUT and spec.target is not None:
            tensors = program.state_dict if spec.target in program.state_dict else program.constants
            weights[spec.arg.name] = tensors[spec.target]
    return weights


class _ValueRecorder(fx.Interpreter):
    """Runs a graph and records the results of the named nodes."""

    def __init__(self, module: fx.GraphModule, names: frozenset[str]) -> None:
        super().__init__(module)
        self.names = names
        self.values: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.name in self.names:
            self.values[n.name] = result
        return result


class TorchReference:
    """Takes outputs from the original network, and gates and layers from the program traced from it.

    A hidden value that is not a node of the program (inside an operator that was split into several, for
    example) is computed from the graph by onnx's reference evaluator.
    """

    def __init__(
        self, source: Source, traced: TracedGraph, model: ir.Model, origins: Mapping[str, Origin]
    ) -> None:
        self.description = "the original network in float64"
        self.warnings: tuple[str, ...] = ()
        self.noise = 0.0
        self.may_drop_nan = False
        self._network = NetworkCopy(source)
        self._public_outputs = public_outputs(model, origins)
        self._origins = origins
        self._traced = TracedValues(traced.program, [origin.value for origin in origins.values()])
        source_names = (spec.name for spec in source.inputs)
        self._source_inputs = dict(zip(network_inputs(model), source_names, strict=True))
        unknown = [name for name, origin in origins.items() if origin.value not in self._traced.known]
        self._evaluator = GraphEvaluator(ir.to_proto(model), unknown) if unknown else None
        if unknown:
            names = ", ".join(unknown)
            self.description += f"; the graph by onnx's reference evaluator in float64 for {names}"

    def native(self, batch: ProofBatch) -> TensorValues:
        """Outputs of the original network, and if layers are compared, the program's inner values."""
        try:
            outputs = self._named(self._network.native(batch), batch)
        except ParityError:
            raise
        except Exception as exc:  # the user's code may raise anything
            raise RejectedError(one_line(exc)) from exc
        if not batch.compare_layers:
            return outputs
        try:
            inner = self._traced.native(self._network.tensors(batch))
        except Exception as exc:  # operators may raise anything
            raise ParityError(
                f"the traced program does not accept the batch {batch.name!r}, which the network accepts: "
                f"{one_line(exc)}"
            ) from exc
        return outputs | self._hidden(inner, batch, float64=False)

    def float64(self, batch: ProofBatch) -> TensorValues:
        """The same in float64; a ParityError if the program and the network differ."""
        original = self._original(batch)
        if original is not None and not batch.compare_layers:
            return original
        inner, outputs = self._traced.float64(self._network.tensors(batch), self._network.float64_weights())
        traced = self._named([tensor.numpy() for tensor in outputs], batch)
        if original is not None:
            expect_traced_equal(original, traced, batch)
        return (original or traced) | self._hidden(inner, batch, float64=True)

    def expect_stateless(self, batch: ProofBatch) -> None:
        """Raise an UntraceableError if a run changes a parameter or a buffer."""
        if (changed := self._network.changed_by(batch)) is not None:
            raise UntraceableError(
                f"{changed}: forward changes it, so each answer would depend on earlier requests: expected "
                "parameters and buffers that do not change in eval mode; pass state in and out instead"
            )

    def _original(self, batch: ProofBatch) -> TensorValues | None:
        """Outputs of the original network in float64, or None if its code cannot run in float64."""
        if self.warnings:
            return None
        try:
            outputs = self._network.float64(batch)
        except Exception as exc:  # the user's code may raise anything
            self.description = self.description.replace("the original network", "the traced program", 1)
            self.warnings = (
                f"the network does not run in float64 ({one_line(exc)}), so its traced program served as "
                "the reference",
            )
            return None
        return self._named(outputs, batch)

    def _named(self, outputs: list[Array], batch: ProofBatch) -> TensorValues:
        if len(outputs) != len(self._public_outputs):
            raise ParityError(
                f"outputs: expected the network's {len(outputs)} tensors with the batch {batch.name!r}, "
                f"the graph has {len(self._public_outputs)} ({', '.join(self._public_outputs)})"
            )
        return dict(zip(self._public_outputs, outputs, strict=True))

    def _hidden(self, inner: Mapping[str, Tensor], batch: ProofBatch, float64: bool) -> TensorValues:
        values: TensorValues = {}
        if self._evaluator is not None:
            feeds = {name: batch.arrays[source_name] for name, source_name in self._source_inputs.items()}
            values = self._evaluator.run(feeds, float64=float64)
        for name, origin in self._origins.items():
            if origin.value in inner:
                values[name] = complement(inner[origin.value].numpy(), origin)
        return values


def expect_traced_equal(original: TensorValues, traced: TensorValues, batch: ProofBatch) -> None:
    """Raise a ParityError unless both are equal up to the rounding of float64."""
    for name, expected in original.items():
        if not equal_up_to_rounding(expected, traced[name]):
            raise ParityError(
                f"{name}: the traced program does not compute what the network does with the batch "
                f"{batch.name!r}: tracing recorded a random number, a Python branch or a number computed "
                "in Python as a constant"
            )
