"""Runs a PyTorch network natively and in float64: the module itself, or the program traced from it."""

from __future__ import annotations

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
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from turnpike.export.errors import UntraceableError
from turnpike.export.module_copy import copy_module
from turnpike.export.network import Array, Network
from turnpike.export.parity.batches import ProofBatch
from turnpike.export.trace.trace_network import uncompiled_branches
from turnpike.export.trace.untraceable import source_location

# the functions that choose an eps by the dtype of their input if they get none, and those that choose limits
RMS_NORMS = frozenset((torch.rms_norm, nn.functional.rms_norm, torch.ops.aten.rms_norm.default))
NAN_TO_NUMS = frozenset(
    (
        torch.nan_to_num,
        torch.nan_to_num_,
        Tensor.nan_to_num,
        Tensor.nan_to_num_,
        torch.ops.aten.nan_to_num.default,
    )
)

NARROW_DTYPES = frozenset((torch.float32, torch.float16, torch.bfloat16))


class NetworkCopy:
    """A copy of a network's module in eval mode (or of its program), run natively and in float64."""

    def __init__(self, network: Network) -> None:
        self._inputs = [spec.name for spec in network.inputs]
        self._in_spec: pytree.TreeSpec | None = None
        if network.module is not None:
            self._module = copy_module(network.module).eval()
        elif network.program is not None:
            with isolated():
                self._module = copy_module(network.program.module())
            self._in_spec = network.program.call_spec.in_spec
        else:
            raise UntraceableError("expected a network to compare with, got only a graph")
        self._float64_weights: dict[str, Tensor] | None = None
        dtypes = {tensor.dtype for tensor in self._weights().values() if tensor.is_floating_point()}
        self._dtype = torch.float64 if dtypes == {torch.float64} else torch.float32

    def native(self, batch: ProofBatch) -> list[Array]:
        """The outputs that are tensors, in order. Exceptions of the network are not translated."""
        with isolated():
            return self._outputs(self._module, self.tensors(batch))

    def float64(self, batch: ProofBatch) -> list[Array]:
        """The same outputs in float64."""
        with isolated(), float64_mode(self._dtype):
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
            name: (tensor.dtype, tensor.shape, zlib.crc32(_bytes_of(tensor).tobytes()))
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


def _bytes_of(tensor: Tensor) -> Array:
    """The bytes of a tensor, of dtypes too that NumPy does not have."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()


@contextmanager
def isolated() -> Iterator[None]:
    """Run a network without gradients and warnings, and restore torch's random state afterwards."""
    with (
        torch.no_grad(),
        warnings.catch_warnings(action="ignore"),
        torch.random.fork_rng(devices=[]),
        uncompiled_branches(),
    ):
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
        self._branches: dict[fx.Node, set[bool]] = {
            node: set() for node in program.graph.nodes if node.target is torch.ops.higher_order.cond
        }

    @property
    def has_branches(self) -> bool:
        """Whether values choose between branches of the program."""
        return bool(self._branches)

    def branches_not_run(self) -> list[str]:
        """A sentence for each branch of a `torch.cond` that no ordinary batch of finite rows took."""
        return [
            f"{source_location(node)}no ordinary batch of finite rows took the branch for {condition}: "
            "this branch is not proved"
            for node, conditions in self._branches.items()
            for condition in (True, False)
            if condition not in conditions
        ]

    def native(self, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        """The values by the names of their nodes."""
        with isolated():
            return self._run(self._weights, tensors, {})[0]

    def float64(
        self, tensors: Sequence[Tensor], weights: Mapping[str, Tensor], *, ordinary: bool = True
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """The values and the outputs in float64; `weights` are the network's, by its own names.

        The branches that `ordinary`, finite values take count as proved.
        """
        if self._float64_weights is None:
            targets = {spec.arg.name: spec.target for spec in self._program.graph_signature.input_specs}
            self._float64_weights = {
                name: weights[targets[name]] if targets[name] in weights else to_float64(value)
                for name, value in self._weights.items()
            }
        with isolated(), float64_mode():
            counts = ordinary and all(bool(torch.isfinite(tensor).all()) for tensor in tensors)
            branches = self._branches if counts else {}
            return self._run(self._float64_weights, [to_float64(tensor) for tensor in tensors], branches)

    def _run(
        self, weights: Mapping[str, Any], tensors: Sequence[Tensor], branches: Mapping[fx.Node, set[bool]]
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        inputs = iter(tensors)
        names = [spec.arg.name for spec in self._program.graph_signature.input_specs]
        values = [weights[name] if name in weights else next(inputs) for name in names]
        recorder = _ValueRecorder(self._program.graph_module, self.known, branches)
        results = pytree.tree_leaves(recorder.run(*values, enable_io_processing=False))
        kinds = [spec.kind for spec in self._program.graph_signature.output_specs]
        outputs = [
            result
            for kind, result in zip(kinds, results, strict=True)
            if kind is OutputKind.USER_OUTPUT and isinstance(result, Tensor)
        ]
        return recorder.values, outputs


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
    """Runs a graph, and records the results of the named nodes and the conditions of branches."""

    def __init__(
        self, module: fx.GraphModule, names: frozenset[str], branches: Mapping[fx.Node, set[bool]]
    ) -> None:
        super().__init__(module)
        self.names = names
        self.branches = branches
        self.values: dict[str, Tensor] = {}

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # the program has views for the memory layouts of its example tensors; a reshape fits every layout
        target = torch.ops.aten.reshape.default if target is torch.ops.aten.view.default else target
        return super().call_function(target, args, kwargs)

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n in self.branches:
            condition = self.fetch_args_kwargs_from_env(n)[0][0]
            self.branches[n].add(bool(condition))
        if n.name in self.names:
            self.values[n.name] = result
        return result


class _PromoteToFloat64(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Replaces every narrow tensor or dtype among an operator's arguments by float64."""

    supports_higher_order_operators = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.higher_order.cond:
            condition, if_true, if_false, operands = args
            with self:  # a mode is not active while it handles an operator
                return (if_true if condition else if_false)(*operands)
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


class _FreezeLimits(TorchFunctionMode):
    """Gives functions the numbers of the network's dtype where they would take those of their input's.

    RMSNorm has an eps, and `nan_to_num` the largest numbers. With those of float64, the float64 copy would be
    another function.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._limits = torch.finfo(dtype)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in RMS_NORMS and (args[3] if len(args) > 3 else kwargs.get("eps")) is None:
            args, kwargs["eps"] = args[:3], self._limits.eps
        if func in NAN_TO_NUMS:
            for place, (name, limit) in enumerate(
                (("posinf", self._limits.max), ("neginf", self._limits.min)), 2
            ):
                if (args[place] if len(args) > place else kwargs.get(name)) is None:
                    args, kwargs[name] = args[:place], limit
        return func(*args, **kwargs)


@contextmanager
def float64_mode(dtype: torch.dtype = torch.float32) -> Iterator[None]:
    """Make PyTorch compute in float64 while the block runs. `dtype` is that of the network."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _FreezeLimits(dtype), _PromoteToFloat64():  # type: ignore[no-untyped-call]
            yield
    finally:
        torch.set_default_dtype(default)


def to_float64(values: Any) -> Any:
    """Convert narrow floating-point tensors, also in lists and tuples; anything else stays as it is."""
    return _promoted(values, in_place=False)
