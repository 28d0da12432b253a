"""GRU and LSTM of terms, step by step, in one direction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import Array, Value, shape_of
from turnpike.export.identity.algebra.joining import stack
from turnpike.export.identity.algebra.products import matrix_product


@dataclass(frozen=True)
class Weights:
    """Weights of one direction: the gates are stacked along the first axis, `units` rows each."""

    inputs: Value
    states: Value
    input_bias: Value
    state_bias: Value

    @property
    def units(self) -> int:
        return shape_of(self.states)[-1]


def _steps(x: Value, *, backwards: bool) -> Iterator[int]:
    steps = range(shape_of(x)[0])
    yield from reversed(steps) if backwards else steps


def _transposed(algebra: Algebra, matrix: Value) -> Value:
    return algebra.move(matrix, lambda data: data.swapaxes(0, 1))


def gru(
    algebra: Algebra, x: Value, state: Value, weights: Weights, *, reset_after: bool, backwards: bool
) -> tuple[Value, Value]:
    """From (time, rows, inputs) to the states of all steps and the last state. Gates in the order z, r, n.

    With `reset_after`, the reset gate multiplies the product of state and weights, as in PyTorch.
    """
    units = weights.units

    def gate(value: Value, first: int, last: int) -> Value:
        return algebra.move(value, lambda data: data[first * units : last * units])

    input_weights, state_weights = _transposed(algebra, weights.inputs), weights.states
    zr_states, n_states = (_transposed(algebra, gate(state_weights, *places)) for places in ((0, 2), (2, 3)))
    zr_bias, n_bias = (gate(weights.state_bias, *places) for places in ((0, 2), (2, 3)))
    from_inputs = algebra.add(matrix_product(algebra, x, input_weights), weights.input_bias)
    states: list[Value] = [np.zeros(0)] * shape_of(x)[0]
    for step in _steps(x, backwards=backwards):
        inputs = algebra.move(from_inputs, lambda data, step=step: data[step])
        zr = algebra.add(matrix_product(algebra, state, zr_states), zr_bias)
        zr = algebra.sigmoid(algebra.add(algebra.move(inputs, lambda data: data[..., : 2 * units]), zr))
        z, r = _columns(algebra, zr, 2, units)
        if reset_after:
            inner = algebra.multiply(r, algebra.add(matrix_product(algebra, state, n_states), n_bias))
        else:
            inner = algebra.add(matrix_product(algebra, algebra.multiply(r, state), n_states), n_bias)
        n = algebra.tanh(algebra.add(algebra.move(inputs, lambda data: data[..., 2 * units :]), inner))
        state = algebra.add(n, algebra.multiply(z, algebra.subtract(state, n)))
        states[step] = state
    return stack(algebra, states, 0), state


def lstm(
    algebra: Algebra, x: Value, state: Value, cell: Value, weights: Weights, *, backwards: bool
) -> tuple[Value, Value, Value]:
    """From (time, rows, inputs) to the states of all steps, the last state and cell. Gates: i, f, g, o."""
    bias = algebra.add(weights.input_bias, weights.state_bias)
    product = matrix_product(algebra, x, _transposed(algebra, weights.inputs))
    from_inputs = algebra.add(product, bias)
    state_weights = _transposed(algebra, weights.states)
    states: list[Value] = [np.zeros(0)] * shape_of(x)[0]
    for step in _steps(x, backwards=backwards):
        inputs = algebra.move(from_inputs, lambda data, step=step: data[step])
        logits = algebra.add(inputs, matrix_product(algebra, state, state_weights))
        i, f, g, o = _columns(algebra, logits, 4, weights.units)
        kept = algebra.multiply(algebra.sigmoid(f), cell)
        cell = algebra.add(kept, algebra.multiply(algebra.sigmoid(i), algebra.tanh(g)))
        state = algebra.multiply(algebra.sigmoid(o), algebra.tanh(cell))
        states[step] = state
    return stack(algebra, states, 0), state, cell


def _columns(algebra: Algebra, value: Value, count: int, units: int) -> list[Value]:
    """Equal parts along the last axis."""

    def part(number: int) -> Value:
        def cut(data: Array) -> Array:
            return data[..., number * units : (number + 1) * units]

        return algebra.move(value, cut)

    return [part(number) for number in range(count)]
