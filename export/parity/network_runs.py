"""Runs a PyTorch network natively and in float64: the module itself, or the program traced from it."""

from __future__ import annotations

import copy
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.func import functional_call
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from export.errors import UntraceableError
from export.parity.batches import ProofBatch
from export.source import Array, Source

NARROW_DTYPES = frozenset((torch.float32, torch.float16, torch.bfloat16))


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


class _PromoteToFloat64(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Replaces every narrow tensor or dtype among an operator's arguments by float64."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        in_place = func._schema.is_mutable
        args = tuple(_promoted(arg, in_place) for arg in args)
        return func(*args, **{key: _promoted(arg, in_place) for key, arg in (kwargs or {}).items()})


def _promoted(value: Any, in_place: bool) -> Any:
    if isinstance(value, Tensor):
        if value.dtype not in NARROW_DTYPES:
            return value
        if in_place:
            # the caller keeps this very tensor object and reads the result from it
            value.data = value.data.double()
            return value
        return value.double()
    if isinstance(value, torch.dtype):
        return torch.float64 if value in NARROW_DTYPES else value
    if isinstance(value, list | tuple):
        return type(value)(_promoted(item, in_place) for item in value)
    return value


@contextmanager
def float64_mode() -> Iterator[None]:
    """Make PyTorch compute in float64 while the block runs."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _PromoteToFloat64():  # type: ignore[no-untyped-call]
            yield
    finally:
        torch.set_default_dtype(default)


def to_float64(values: Any) -> Any:
    """Convert narrow floating-point tensors, also in lists and tuples; anything else stays as it is."""
    return _promoted(values, in_place=False)


def independent_copy(module: nn.Module) -> nn.Module:
    """A deep copy that shares nothing with the module."""
    memo: dict[int, Any] = {}
    for part in module.modules():
        for value in vars(part).values():
            # deepcopy refuses tensors computed from parameters, such as old weight norm keeps
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    return copy.deepcopy(module, memo)
