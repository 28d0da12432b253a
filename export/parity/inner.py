"""The values inside a traced program, node by node, in its own precision and in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as pytree

from export.parity.float64 import double, widened
from export.parity.network import undisturbed
from export.source import Array


class Inner:
    """Runs a program, and keeps the values of those of its nodes that are `wanted` and `known`."""

    def __init__(self, program: ExportedProgram, wanted: Sequence[str]) -> None:
        self._program = program
        self._weights = weights_of(program)
        self._wide: dict[str, Any] | None = None
        values = {node.name for node in program.graph.nodes if isinstance(node.meta.get("val"), Tensor)}
        self.known = frozenset(wanted) & values

    def own(self, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        """The values kept, by the names of their nodes."""
        with undisturbed():
            return self._run(self._weights, tensors)[0]

    def wide(
        self, tensors: Sequence[Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """The values kept and the outputs, in float64; `weights` are the network's, by its own names."""
        if self._wide is None:
            called = {spec.arg.name: spec.target for spec in self._program.graph_signature.input_specs}
            self._wide = {
                name: weights[called[name]] if called[name] in weights else widened(value)
                for name, value in self._weights.items()
            }
        with undisturbed(), double():
            return self._run(self._wide, [widened(tensor) for tensor in tensors])

    def _run(
        self, weights: Mapping[str, Any], tensors: Sequence[Tensor]
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        given = iter(tensors)
        names = [spec.arg.name for spec in self._program.graph_signature.input_specs]
        values = [weights[name] if name in weights else next(given) for name in names]
        keeper = _Keeper(self._program.graph_module, self.known)
        results = pytree.tree_leaves(keeper.run(*values, enable_io_processing=False))
        kinds = [spec.kind for spec in self._program.graph_signature.output_specs]
        outputs = [
            result
            for kind, result in zip(kinds, results, strict=True)
            if kind is OutputKind.USER_OUTPUT and isinstance(result, Tensor)
        ]
        return keeper.kept, outputs


def constant(program: ExportedProgram, name: str) -> Array | None:
    """The value in float64 of a node that no input has a part in; None where there is no such node."""
    weights = weights_of(program)
    values: dict[fx.Node, Any] = {}
    with undisturbed(), double():
        for node in program.graph.nodes:
            if node.op == "placeholder" and node.name in weights:
                values[node] = widened(weights[node.name])
            elif node.op == "call_function" and all(one in values for one in node.all_input_nodes):
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = node.target(*args, **kwargs)
            if node.name == name:
                found = values.get(node)
                return found.numpy() if isinstance(found, Tensor) else None
    return None


def weights_of(program: ExportedProgram) -> dict[str, Any]:
    """What stands for every input of the program's graph that is not the network's own input."""
    found: dict[str, Any] = {}
    for spec in program.graph_signature.input_specs:
        if isinstance(spec.arg, ConstantArgument):
            found[spec.arg.name] = spec.arg.value
        elif spec.kind is not InputKind.USER_INPUT and spec.target is not None:
            held = program.state_dict if spec.target in program.state_dict else program.constants
            found[spec.arg.name] = held[spec.target]
    return found


class _Keeper(fx.Interpreter):
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
