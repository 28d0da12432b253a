"""Runs a program of torch.export on terms, node by node; all sizes are numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx
from torch._decomp import core_aten_decompositions, decomposition_table
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import (
    Array,
    Sizes,
    Term,
    UndecidedError,
    Value,
    kind_of,
    shape_of,
)
from turnpike.export.identity.algebra.chosen_rows import Selection
from turnpike.export.identity.aten import elementwise, layers, reductions, shapes, writes
from turnpike.export.identity.aten.chosen_places import run_on_chosen
from turnpike.export.identity.aten.operator_table import Call, OperatorTable

TABLES = (elementwise.table, reductions.table, layers.table, shapes.table, writes.table)
OPERATORS = OperatorTable({name: handler for table in TABLES for name, handler in table.items()})
# what PyTorch computes with sizes
SIZE_ARITHMETIC: dict[Any, Callable[..., Value]] = {
    operator.add: Algebra.add,
    operator.sub: Algebra.subtract,
    operator.mul: Algebra.multiply,
    operator.neg: Algebra.negate,
    operator.floordiv: lambda algebra, a, b: algebra.integer_function("div floor", np.floor_divide, a, b),
    operator.mod: lambda algebra, a, b: algebra.integer_function("remainder", np.mod, a, b),
    operator.truediv: Algebra.divide,
    torch.sym_max: Algebra.maximum,
    torch.sym_min: Algebra.minimum,
    torch.sym_float: lambda algebra, a: algebra.cast(a, np.float32),
    operator.eq: lambda algebra, a, b: algebra.compare(a, b, "eq"),
    operator.ne: lambda algebra, a, b: algebra.compare(a, b, "ne"),
    operator.gt: lambda algebra, a, b: algebra.compare(a, b, "gt"),
    operator.ge: lambda algebra, a, b: algebra.compare(a, b, "ge"),
    operator.lt: lambda algebra, a, b: algebra.compare(a, b, "lt"),
    operator.le: lambda algebra, a, b: algebra.compare(a, b, "le"),
}
# literals that programs have in double precision
DOUBLE_LITERALS = ("eps",)


@dataclass(frozen=True)
class ProgramRun:
    """The results of a program.

    Attributes:
        outputs: The outputs that the user gets, in order.
        values: The value of each node, by its name.
        operators: The operators that the program has, by their names in `OPERATORS`.
    """

    outputs: tuple[Value, ...]
    values: Mapping[str, Any]
    operators: frozenset[str]


def run_program(
    program: ExportedProgram,
    algebra: Algebra,
    inputs: Sequence[Value],
    constants: Mapping[str, Array] | None = None,
) -> ProgramRun:
    """Run a program.

    Args:
        program: The program.
        algebra: The operators.
        inputs: The user's inputs, in order.
        constants: Values of nodes that need no input, by name, where the exporter's are to be taken.

    Raises:
        UndecidedError: The program has something that cannot be run on terms.
    """
    weights, given = dict(program_weights(program)), iter(inputs)
    arguments = [
        to_numpy(weights[spec.arg.name]) if spec.arg.name in weights else next(given)
        for spec in program.graph_signature.input_specs
    ]
    interpreter = _Interpreter(program.graph_module, algebra, constants or {})
    results = interpreter.run(*arguments, enable_io_processing=False)
    kinds = [spec.kind for spec in program.graph_signature.output_specs]
    if any(isinstance(result, Selection) for result in pytree.tree_leaves(results)):
        raise UndecidedError("a result has a length that depends on the input")
    outputs = [
        result
        for kind, result in zip(kinds, pytree.tree_leaves(results), strict=True)
        if kind is OutputKind.USER_OUTPUT and isinstance(result, Term | np.ndarray)
    ]
    return ProgramRun(tuple(outputs), interpreter.values, frozenset(interpreter.operators))


def program_weights(program: ExportedProgram) -> Iterator[tuple[str, Any]]:
    """Parameters, buffers and constants, by the names of the placeholders of the program's graph."""
    for spec in program.graph_signature.input_specs:
        if isinstance(spec.arg, ConstantArgument):
            yield spec.arg.name, spec.arg.value
        elif spec.kind is not InputKind.USER_INPUT and spec.target is not None:
            tensors: Mapping[str, Any] = (
                program.state_dict if spec.target in program.state_dict else program.constants
            )
            yield spec.arg.name, tensors[spec.target]


def to_numpy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu()
    return (value.float() if value.dtype is torch.bfloat16 else value).numpy()


class _Interpreter(fx.Interpreter):
    """Runs the graph of a program."""

    def __init__(self, module: fx.GraphModule, algebra: Algebra, constants: Mapping[str, Array]) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._algebra = algebra
        self._constants = constants
        self._node: fx.Node | None = None
        self.values: dict[str, Any] = {}
        self.operators: set[str] = set()

    def run_node(self, n: fx.Node) -> Any:
        self._node = n
        place = f"{n.name} = {n.target}"
        try:
            result = self._constants[n.name] if n.name in self._constants else super().run_node(n)
        except UndecidedError:
            raise
        except Exception as error:
            lines = str(error).splitlines() or [""]
            raise UndecidedError(f"{place}: {type(error).__name__}: {lines[0]}") from error
        # a wrong shape is an error of these operators, and must not look like one of the file
        expected = n.meta.get("val")
        if isinstance(expected, torch.Tensor) and isinstance(result, Term | np.ndarray):
            rank = len(shape_of(result))
            if rank != expected.ndim:
                raise UndecidedError(f"{place}: expected {expected.ndim} axes, got {rank}")
        if n.op != "output":
            self.values[n.name] = result
        return result

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is torch.ops.higher_order.cond:
            return self._cond(*args)
        if not isinstance(target, torch._ops.OpOverload):
            # arithmetic on sizes
            function = SIZE_ARITHMETIC.get(target)
            if function is not None and any(isinstance(value, Sizes | Term) for value in args):
                return function(self._algebra, *args)
            return super().call_function(target, args, kwargs)
        name = target._schema.name.split("::")[1]
        overload = target._overloadname
        key = f"{name}.{overload}" if f"{name}.{overload}" in OPERATORS else name
        self.operators.add(key)
        handler = OPERATORS.get(key)
        if handler is None:
            return self._decomposed(target, args, kwargs)
        node = self._node
        if node is None:
            raise UndecidedError(f"operator {target} outside of a graph")
        expected = node.meta.get("val")
        is_double = isinstance(expected, torch.Tensor) and expected.dtype == torch.float64
        literal = np.float64 if is_double else np.float32
        schema = target._schema.arguments
        arguments = {argument.name: argument.default_value for argument in schema}
        arguments |= {argument.name: value for argument, value in zip(schema, args, strict=False)} | kwargs
        # a literal has the precision of the tensors that it meets
        named = {
            "self_" if key == "self" else key: literal(value)
            if type(value) is float and key not in DOUBLE_LITERALS
            else value
            for key, value in arguments.items()
        }
        call = Call(self._algebra, node, name, overload)
        if any(isinstance(value, Selection) for value in pytree.tree_leaves(named)):
            return run_on_chosen(key, handler, call, named)
        return handler(call, **named)

    def _decomposed(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator that no table has, by PyTorch's own decomposition into others."""
        function = core_aten_decompositions().get(target) or decomposition_table.get(target)
        if function is None and not target._can_decompose():
            raise UndecidedError(f"operator {target}")
        leaves, structure = pytree.tree_flatten((args, kwargs), is_leaf=lambda leaf: isinstance(leaf, Term))
        if any(isinstance(leaf, Selection) for leaf in leaves):
            raise UndecidedError(f"operator {target} of a tensor whose length depends on the input")
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Term | np.ndarray)]

        def call(*tensors: torch.Tensor) -> Any:
            filled = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                filled[place] = tensor
            given, named = pytree.tree_unflatten(filled, structure)
            return target.decompose(*given, **named) if function is None else function(*given, **named)

        dtypes = {"f": torch.float32, "i": torch.int64, "b": torch.bool}
        examples = [
            torch.zeros(shape_of(leaves[place]), dtype=dtypes[kind_of(leaves[place])]) for place in places
        ]
        graph = make_fx(call, tracing_mode="fake")(*examples)
        try:
            return self._run_inner(graph, [leaves[place] for place in places])
        except UndecidedError as error:
            raise UndecidedError(f"operator {target}: {str(error).splitlines()[0]}") from error

    def _cond(self, condition: Value, if_true: Any, if_false: Any, operands: Sequence[Any] = ()) -> Any:
        """Both branches run unless the condition is known: each result is one of either."""
        if not isinstance(condition, Term | Sizes):
            chosen = if_true if np.asarray(condition).all() else if_false
            return pytree.tree_leaves(self._run_inner(chosen, operands))
        branches = [pytree.tree_leaves(self._run_inner(module, operands)) for module in (if_true, if_false)]
        scalar = self._algebra.move(condition, lambda data: data.reshape(()))
        return [self._algebra.either_branch(scalar, a, b) for a, b in zip(*branches, strict=True)]

    def _run_inner(self, module: Any, operands: Sequence[Any]) -> Any:
        inner = _Interpreter(module, self._algebra, {})
        result = inner.run(*operands, enable_io_processing=False)
        self.operators |= inner.operators
        return result
