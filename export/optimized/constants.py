"""Finds what constants of an optimized graph stand for: expressions of the file that onnxruntime rounds.

onnxruntime computes what needs no input before it runs, and joins batch norms and factors with the weights of
a layer. It does so in float32, so that the constants are not exactly those of the file. A constant within
`MAX_ULPS` of an expression is taken for it, and the largest distance is part of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from turnpike.export.identity.algebra import joining
from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import Array, Term, UndecidedError, Value, shape_of
from turnpike.export.identity.numbers.reals import Reals
from turnpike.export.identity.onnx.run_graph import constant_values

# Units in the last place that a constant may be off. Each of the few operations that make one rounds by half
# a unit, and numbers that are joined have more than one.
MAX_ULPS = 8.0
# factors of a product of matrices that may be joined: those of both operands and of the result
MAX_FACTORS = 4

# computes a value from those of the file, by name
Compute: TypeAlias = Callable[[Algebra, Mapping[str, Value]], Value]


@dataclass(frozen=True)
class Expression:
    """A constant that the file computes.

    Attributes:
        name: The value of the file that it belongs to.
        summands: The expression is their sum.
        is_node: Whether it is all of a node, of which onnxruntime has also rounded what it is computed from.
    """

    name: str
    summands: tuple[Compute, ...]
    is_node: bool = False

    def compute(self, algebra: Algebra, values: Mapping[str, Value]) -> Value:
        return reduce(algebra.add, [summand(algebra, values) for summand in self.summands])

    def numbers(self, values: Mapping[str, Value]) -> tuple[Array, Array]:
        """The numbers in float64, and the magnitudes of what was rounded.

        These are the largest summand of each number; of a node, its largest number.
        """
        algebra = Algebra(Reals(), symbolic_sizes=False)
        terms = [algebra.term(summand(algebra, values)) for summand in self.summands]
        arrays = np.broadcast_arrays(*(term.data[0] for term in terms))
        total, magnitudes = np.sum(arrays, axis=0), np.max(np.abs(arrays), axis=0)
        return total, np.full_like(magnitudes, magnitudes.max(initial=0)) if self.is_node else magnitudes


# an expression, its numbers in float64, and the magnitudes of what was rounded
_Candidate: TypeAlias = tuple[Expression, Array, Array]


@dataclass(frozen=True)
class ComputedConstant:
    """A constant of the optimized graph, the value of the file that it stands for, and its rounding."""

    name: str
    value: str
    ulps: float
    compute: Compute


def explain_constants(
    file: ir.Model, optimized: ir.Model, *, prefer_joined: bool = False
) -> tuple[list[ComputedConstant], list[str]]:
    """The constants of an optimized graph that the file computes, and the names of those that are unknown.

    Constants that the file has bit for bit are neither, unless a node of the file has their name.

    Args:
        file: The file.
        optimized: The graph, in ONNX's operators.
        prefer_joined: Which of several expressions to take that a constant may be: that with the most nodes
            joined, and not the nearest. A factor may be so near to 1 that it changes no bit.
    """
    values = constant_values(file)
    named = list(_evaluated(_named_expressions(file, values), values))
    layers: list[_Candidate] | None = None
    known = {array.tobytes() for array in _stored_arrays(file)}
    found, unknown = [], []
    for name, array in _float_initializers(optimized):
        # onnxruntime keeps the name of what it folds
        own = [candidate for candidate in named if candidate[0].name == name]
        chosen = _best(array, own, prefer_last=False)
        if chosen is None:
            is_known = array.tobytes() in known or (array.ndim == 2 and array.T.tobytes() in known)
            if is_known and not prefer_joined:
                continue
            if layers is None:
                layers = list(_evaluated(_layer_expressions(file, values), values))
            chosen = _best(array, [*named, *layers], prefer_last=prefer_joined)
            if chosen is None and is_known:
                continue
        if chosen is None:
            unknown.append(name)
        else:
            ulps, expression = chosen
            found.append(
                ComputedConstant(name, expression.name, ulps, _filled(expression.compute, array.shape))
            )
    return found, unknown


def _best(
    array: Array, candidates: Iterable[_Candidate], *, prefer_last: bool
) -> tuple[float, Expression] | None:
    """The nearest expression that a constant may be, or the last of all; None if none is near enough."""
    distances = [(_distance(array, numbers, sizes), expression) for expression, numbers, sizes in candidates]
    fitting = [pair for pair in distances if pair[0] <= MAX_ULPS]
    if prefer_last:
        return fitting[-1] if fitting else None
    return min(fitting, key=lambda pair: pair[0], default=None)


def _evaluated(expressions: Iterable[Expression], values: Mapping[str, Value]) -> Iterator[_Candidate]:
    """The expressions with their numbers and magnitudes."""
    for expression in expressions:
        try:
            with np.errstate(all="ignore"):
                numbers, magnitudes = expression.numbers(values)
        except (UndecidedError, ValueError):
            # shapes that are not broadcast: onnxruntime joins no such values
            continue
        yield expression, numbers, magnitudes


def _stored_arrays(model: ir.Model) -> Iterator[Array]:
    for _, array in _float_initializers(model):
        yield array
    for node in model.graph.all_nodes():
        for attribute in node.attributes.values():
            if attribute.type is ir.AttributeType.TENSOR:
                yield attribute.as_tensor().numpy()


def _float_initializers(model: ir.Model) -> Iterator[tuple[str, Array]]:
    for name, value in model.graph.initializers.items():
        if value.const_value is not None and not value.is_graph_input() and value.uses():
            array = value.const_value.numpy()
            if array.dtype.kind == "f":
                yield name, array


def _distance(actual: Array, expected: Array, magnitude: Array) -> float:
    """The largest difference in units in the last place; infinite for other shapes than `_filled` makes."""
    if actual.ndim != expected.ndim or any(
        size > limit for size, limit in zip(expected.shape, actual.shape, strict=True)
    ):
        return math.inf
    inside = tuple(map(slice, expected.shape))
    if not (np.isfinite(actual).all() and np.isfinite(expected).all()):
        return math.inf
    if actual.shape != expected.shape:
        outside = np.ones(actual.shape, bool)
        outside[inside] = False
        if actual[outside].any():
            return math.inf
    if not expected.size:
        return 0.0
    # float32 is denormal below its smallest normal number
    unit = np.spacing(np.maximum(magnitude, np.finfo(np.float32).tiny).astype(np.float32)).astype(np.float64)
    return float((np.abs(actual[inside].astype(np.float64) - expected) / unit).max())


def _filled(compute: Compute, shape: tuple[int, ...]) -> Compute:
    """An expression with zeros behind it, which fill the blocks of channels of a layer."""

    def filled(algebra: Algebra, values: Mapping[str, Value]) -> Value:
        result = compute(algebra, values)
        widths = [(0, limit - size) for size, limit in zip(shape_of(result), shape, strict=True)]
        return joining.pad(algebra, result, widths) if any(high for _, high in widths) else result

    return filled


# ---- expressions of the file


def _value(name: str) -> Compute:
    return lambda algebra, values: values[name]


def _named_expressions(file: ir.Model, values: Mapping[str, Value]) -> Iterator[Expression]:
    """The nodes that need no input: onnxruntime keeps their names."""
    for node in file.graph:
        for output in node.outputs:
            name = str(output.name)
            if isinstance(values.get(name), Term) or _is_float(values.get(name)):
                yield Expression(name, (_value(name),), is_node=True)


def _is_float(value: Value | None) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


@dataclass(frozen=True)
class _Layer:
    """A layer and what follows it: weight * x + the sum of the biases. `axis` is that of its outputs."""

    name: str
    weight: Compute
    biases: tuple[Compute, ...]
    axis: int
    rank: int

    def scaled(self, name: str, factor: Compute) -> _Layer:
        weight_factor = _along(factor, self.axis, self.rank)
        biases = tuple(_product(bias, _along(factor, 0, 1)) for bias in self.biases)
        return _Layer(name, _product(self.weight, weight_factor), biases, self.axis, self.rank)

    def shifted(self, name: str, *numbers: Compute) -> _Layer:
        biases = (*self.biases, *(_along(number, 0, 1) for number in numbers))
        return _Layer(name, self.weight, biases, self.axis, self.rank)

    def expressions(self) -> Iterator[Expression]:
        yield Expression(self.name, (self.weight,))
        if self.biases:
            yield Expression(self.name, self.biases)


def _product(a: Compute, b: Compute) -> Compute:
    return lambda algebra, values: algebra.multiply(a(algebra, values), b(algebra, values))


def _along(vector: Compute, axis: int, rank: int) -> Compute:
    """A vector of channels along an axis, from whatever shape it has; a single number as it is."""

    def moved(algebra: Algebra, values: Mapping[str, Value]) -> Value:
        value = vector(algebra, values)
        count = math.prod(shape_of(value))
        shape = [1] * rank
        shape[axis] = count
        return algebra.move(value, lambda data: data.reshape(shape))

    return moved


def _layer_expressions(file: ir.Model, values: Mapping[str, Value]) -> Iterator[Expression]:
    """The weights of layers with the batch norms, factors and sums behind them; and scales of products."""
    for node in file.graph:
        layer = _layer_of(node, values)
        if layer is not None:
            yield from layer.expressions()
            yield from _followers(layer, node.outputs[0], values)
        if node.op_type == "BatchNormalization" and (parts := _batch_norm(node, values)) is not None:
            # alone, it becomes a convolution of each channel
            factor, shifts = parts
            name = str(node.outputs[0].name)
            yield Expression(name, (_along(factor, 0, 4),))
            yield Expression(name, shifts)
        if node.op_type in ("MatMul", "Gemm", "FusedMatMul"):
            yield from _scales(node, values)


def _layer_of(node: ir.Node, values: Mapping[str, Value]) -> _Layer | None:
    if node.op_type not in ("Conv", "ConvTranspose", "MatMul", "Gemm") or len(node.inputs) < 2:
        return None
    names = [None if value is None else str(value.name) for value in node.inputs]
    weight = values.get(str(names[1]))
    if weight is None or names[0] in values:
        return None
    rank = len(shape_of(weight))
    transposed = node.op_type == "Gemm" and "transB" in node.attributes and node.attributes["transB"].as_int()
    biases: tuple[Compute, ...] = ()
    if len(names) > 2 and names[2] is not None:
        if names[2] not in values:
            return None
        biases = (_along(_value(names[2]), 0, 1),)
    if node.op_type == "ConvTranspose":
        if "group" in node.attributes and node.attributes["group"].as_int() != 1:
            return None
        axis = 1
    else:
        axis = 0 if node.op_type == "Conv" or transposed else rank - 1
    return _Layer(str(node.outputs[0].name), _value(str(names[1])), biases, axis, rank)


def _followers(layer: _Layer, value: ir.Value, values: Mapping[str, Value]) -> Iterator[Expression]:
    """The layer with each further node that multiplies or shifts its outputs by constants."""
    for node, place in value.uses():
        name = str(node.outputs[0].name)
        following: _Layer | None = None
        if node.op_type in ("Reshape", "Transpose", "Unsqueeze", "Squeeze") and place == 0:
            # onnxruntime joins a product of matrices with a batch norm across these
            yield from _followers(layer, node.outputs[0], values)
        elif node.op_type == "BatchNormalization" and place == 0:
            if (parts := _batch_norm(node, values)) is not None:
                factor, shifts = parts
                following = layer.scaled(name, factor).shifted(name, *shifts)
        elif node.op_type in ("Mul", "Add") and len(node.inputs) == 2:
            other = node.inputs[1 - place]
            if other is not None and str(other.name) in values:
                constant = _value(str(other.name))
                is_factor = node.op_type == "Mul"
                following = layer.scaled(name, constant) if is_factor else layer.shifted(name, constant)
        if following is not None:
            yield from following.expressions()
            yield from _followers(following, node.outputs[0], values)


def _batch_norm(node: ir.Node, values: Mapping[str, Value]) -> tuple[Compute, tuple[Compute, ...]] | None:
    """The factor of each channel, and what is added: the bias, and the mean times the factor."""
    names = [str(value.name) for value in node.inputs if value is not None]
    if len(names) != 5 or any(name not in values for name in names[1:]):
        return None
    scale, bias, mean, variance = map(_value, names[1:])
    attribute = node.attributes.get("epsilon")
    epsilon = np.float32(1e-5 if attribute is None else attribute.as_float())

    def factor(algebra: Algebra, values: Mapping[str, Value]) -> Value:
        root = algebra.sqrt(algebra.add(variance(algebra, values), epsilon))
        return algebra.divide(scale(algebra, values), root)

    def center(algebra: Algebra, values: Mapping[str, Value]) -> Value:
        return algebra.negate(algebra.multiply(mean(algebra, values), factor(algebra, values)))

    return factor, (center, bias)


def _scales(node: ir.Node, values: Mapping[str, Value]) -> Iterator[Expression]:
    """The products of the numbers by which operands and result of a product of matrices are multiplied."""
    found: list[Compute] = []
    for operand in node.inputs[:2]:
        value = operand
        while value is not None and (before := value.producer()) is not None:
            if (factor := _factor_of(before, values)) is not None:
                found.append(factor)
            elif before.op_type != "Transpose":
                break
            value = next((v for v in before.inputs if v is not None and str(v.name) not in values), None)
    value = node.outputs[0]
    while len(uses := value.uses()) == 1:
        user = next(iter(uses))[0]
        if (factor := _factor_of(user, values)) is None:
            break
        found.append(factor)
        value = user.outputs[0]
    name = str(node.outputs[0].name)
    for count in range(1, min(len(found), MAX_FACTORS) + 1):
        for chosen in combinations(found, count):
            yield Expression(name, (reduce(_product, chosen),))


def _factor_of(node: ir.Node, values: Mapping[str, Value]) -> Compute | None:
    """The single number by which a node multiplies its other operand."""
    if node.op_type not in ("Mul", "Div") or len(node.inputs) != 2:
        return None
    for place, value in enumerate(node.inputs):
        if value is None or (node.op_type == "Div" and place == 0):
            continue
        name = str(value.name)
        if name in values and math.prod(shape_of(values[name])) == 1:
            number = _number(name)
            if node.op_type == "Mul":
                return number
            return lambda algebra, values: algebra.reciprocal(number(algebra, values))
    return None


def _number(name: str) -> Compute:
    return lambda algebra, values: algebra.move(values[name], lambda data: data.reshape(()))
