"""The values inside a traced program, node by node, in its own precision and in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as pytree

from export.double import double, widened
from export.source import Array


class Inner:
    """Runs a program and keeps the values of some of its nodes; its weights are those of the network."""

    def __init__(self, program: ExportedProgram, wanted: Sequence[str]) -> None:
        self._program = program
        values = {node.name for node in program.graph.nodes if isinstance(node.meta.get("val"), Tensor)}
        self.known = frozenset(wanted) & values
        self._narrow = self._weights()
        self._wide: dict[str, Any] | None = None

    def own(self, tensors: Sequence[Tensor]) -> tuple[dict[str, Tensor], list[Tensor]]:
        """The values kept, by the names of their nodes, and the program's outputs."""
        with torch.no_grad():
            return self._run(self._narrow, tensors)

    def wide(self, tensors: Sequence[Tensor]) -> tuple[dict[str, Tensor], list[Tensor]]:
        """The same in float64."""
        if self._wide is None:
            self._wide = {name: widened(value) for name, value in self._narrow.items()}
        with torch.no_grad(), double():
            return self._run(self._wide, [widened(tensor) for tensor in tensors])

    def constant(self, name: str) -> Array | None:
        """The value in float64 of a node that no input has a part in; None where there is no such node."""
        node = next((node for node in self._program.graph.nodes if node.name == name), None)
        needed, waiting = set[fx.Node](), [] if node is None else [node]
        while waiting:
            current = waiting.pop()
            needed.add(current)
            waiting += [before for before in current.all_input_nodes if before not in needed]
        weights = self._weights()
        if node is None or any(one.op == "placeholder" and one.name not in weights for one in needed):
            return None
        values: dict[fx.Node, Any] = {}
        with torch.no_grad(), double():
            for one in self._program.graph.nodes:
                if one not in needed:
                    continue
                if one.op == "placeholder":
                    values[one] = widened(weights[one.name])
                elif one.op == "call_function":
                    args, kwargs = fx.map_arg((one.args, one.kwargs), values.__getitem__)
                    values[one] = one.target(*args, **kwargs)
                else:
                    return None
        return values[node].numpy() if isinstance(values[node], Tensor) else None

    def _run(
        self, weights: dict[str, Any], tensors: Sequence[Tensor]
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        given = iter(tensors)
        specs = self._program.graph_signature.input_specs
        values = [weights[spec.arg.name] if spec.arg.name in weights else next(given) for spec in specs]
        keeper = _Keeper(self._program.graph_module, self.known)
        results = pytree.tree_leaves(keeper.run(*values, enable_io_processing=False))
        kinds = [spec.kind for spec in self._program.graph_signature.output_specs]
        outputs = [
            result
            for kind, result in zip(kinds, results, strict=True)
            if kind is OutputKind.USER_OUTPUT and isinstance(result, Tensor)
        ]
        return keeper.kept, outputs

    def _weights(self) -> dict[str, Any]:
        """What stands for every input of the graph that is none of the network's."""
        program = self._program
        found: dict[str, Any] = {}
        for spec in program.graph_signature.input_specs:
            if isinstance(spec.arg, ConstantArgument):
                found[spec.arg.name] = spec.arg.value
            elif spec.kind is not InputKind.USER_INPUT:
                assert spec.target is not None
                held = program.state_dict if spec.target in program.state_dict else program.constants
                found[spec.arg.name] = held[spec.target]
        return found


class _Keeper(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, wanted: frozenset[str]) -> None:
        super().__init__(module)
        self.wanted = wanted
        self.kept: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.name in self.wanted:
            self.kept[n.name] = result.detach()
        return result
