"""Laws of functions: equal formulas have equal elements and true values, and near misses have others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from turnpike.export.identity.algebra import activations
from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import Term, Value
from turnpike.export.identity.numbers.error_bound import ATOM
from turnpike.export.identity.numbers.reals import Reals
from turnpike.export.identity.numbers.residues import Residues

Formula = Callable[[Algebra, Value], Value]
SHAPE = (3, 4)


def relu_twice(algebra: Algebra, x: Value) -> Value:
    return activations.relu(algebra, activations.relu(algebra, x))


def relu_of_abs(algebra: Algebra, x: Value) -> Value:
    return activations.relu(algebra, algebra.absolute(x))


def abs_of_relu(algebra: Algebra, x: Value) -> Value:
    return algebra.absolute(activations.relu(algebra, x))


def zero_or_relu(algebra: Algebra, x: Value) -> Value:
    return algebra.maximum(np.zeros(SHAPE, np.float32), activations.relu(algebra, x))


def relu_of_exp(algebra: Algebra, x: Value) -> Value:
    return activations.relu(algebra, algebra.exp(x))


def sigmoid_by_exp(algebra: Algebra, x: Value, one: Value = 1, more: float = 0.0) -> Value:
    total = algebra.add(one, algebra.exp(algebra.negate(x)))
    return algebra.reciprocal(algebra.add(total, np.float64(more)) if more else total)


def silu_by_exp(algebra: Algebra, x: Value) -> Value:
    return algebra.divide(x, algebra.add(algebra.exp(algebra.negate(x)), np.ones(SHAPE, np.float32)))


def tanh_by_exp(algebra: Algebra, x: Value) -> Value:
    """2 / (1 + exp(-2x)) - 1."""
    power = algebra.exp(algebra.multiply(-2, x))
    return algebra.subtract(algebra.divide(2, algebra.add(power, 1)), 1)


def clip_from_above(algebra: Algebra, x: Value, low: Value = -1, high: Value = 2) -> Value:
    return algebra.maximum(algebra.minimum(x, high), low)


def clip_from_below(algebra: Algebra, x: Value, low: Value = -1, high: Value = 2) -> Value:
    return algebra.minimum(algebra.maximum(x, low), high)


def larger_multiple(algebra: Algebra, x: Value, slope: float = 0.25) -> Value:
    return algebra.maximum(x, algebra.multiply(np.float32(slope), x))


def leaky(algebra: Algebra, x: Value, slope: float = 0.25) -> Value:
    return activations.leaky_relu(algebra, x, np.float32(slope))


LAWS: dict[str, tuple[Formula, Formula]] = {
    "relu(relu(x))": (relu_twice, activations.relu),
    "relu(|x|)": (relu_of_abs, Algebra.absolute),
    "|relu(x)|": (abs_of_relu, activations.relu),
    "max(0, relu(x))": (zero_or_relu, activations.relu),
    "relu(exp(x))": (relu_of_exp, Algebra.exp),
    "1 / (1 + exp(-x))": (sigmoid_by_exp, Algebra.sigmoid),
    "x / (exp(-x) + 1)": (silu_by_exp, activations.silu),
    "2 / (1 + exp(-2x)) - 1": (tanh_by_exp, Algebra.tanh),
    "max(min(x, 2), -1)": (clip_from_above, clip_from_below),
    "max(x, x / 4)": (larger_multiple, leaky),
    "max(x, -2 x)": (
        lambda algebra, x: larger_multiple(algebra, x, -2),
        lambda algebra, x: leaky(algebra, x, -2),
    ),
    "max(x, 3 x)": (
        lambda algebra, x: larger_multiple(algebra, x, 3),
        lambda algebra, x: algebra.add(x, algebra.multiply(2, activations.relu(algebra, x))),
    ),
}
NEAR_MISSES: dict[str, tuple[Formula, Formula]] = {
    "relu(x)": (activations.relu, lambda algebra, x: x),
    "|relu(x) - 1|": (
        lambda algebra, x: algebra.absolute(algebra.subtract(activations.relu(algebra, x), 1)),
        lambda algebra, x: algebra.subtract(activations.relu(algebra, x), 1),
    ),
    "max(relu(x), 1e-30)": (
        lambda algebra, x: algebra.maximum(activations.relu(algebra, x), np.float32(1e-30)),
        activations.relu,
    ),
    "max(relu(x), (0, 0, 0, 1e-30))": (
        lambda algebra, x: algebra.maximum(activations.relu(algebra, x), np.array([0, 0, 0, 1e-30])),
        activations.relu,
    ),
    "relu(max(x, -1))": (
        lambda algebra, x: activations.relu(algebra, algebra.maximum(x, -1)),
        lambda algebra, x: algebra.maximum(x, -1),
    ),
    "max(min(x, -1), 2)": (
        lambda algebra, x: clip_from_above(algebra, x, 2, -1),
        lambda algebra, x: clip_from_below(algebra, x, 2, -1),
    ),
    "max(min(x, (2, 2, 2, -2)), -1)": (
        lambda algebra, x: clip_from_above(algebra, x, -1, np.array([2, 2, 2, -2])),
        lambda algebra, x: clip_from_below(algebra, x, -1, np.array([2, 2, 2, -2])),
    ),
    "max(min(x, 2 + 1e-6), -1)": (
        lambda algebra, x: clip_from_above(algebra, x, -1, 2 + 1e-6),
        clip_from_below,
    ),
    "max(x, x / 5)": (lambda algebra, x: larger_multiple(algebra, x, 0.2), leaky),
    "max(x, 4 x)": (
        lambda algebra, x: larger_multiple(algebra, x, 4),
        lambda algebra, x: leaky(algebra, x, 4),
    ),
    "1 / (1 + exp(x))": (
        lambda algebra, x: algebra.reciprocal(algebra.add(1, algebra.exp(x))),
        Algebra.sigmoid,
    ),
    "1 / (2 + exp(-x))": (lambda algebra, x: sigmoid_by_exp(algebra, x, 2), Algebra.sigmoid),
    "1 / (1 + exp(-x) + 1e-12)": (
        lambda algebra, x: sigmoid_by_exp(algebra, x, 1, 1e-12),
        Algebra.sigmoid,
    ),
    "1 / ((1, 1, 1, 1 + 1e-9) + exp(-x))": (
        lambda algebra, x: sigmoid_by_exp(algebra, x, np.array([1, 1, 1, 1 + 1e-9])),
        Algebra.sigmoid,
    ),
}


def results(algebra: Algebra, x: Term, formulas: tuple[Formula, Formula]) -> list[np.ndarray]:
    return [algebra.term(formula(algebra, x)).data for formula in formulas]


def on_residues(formulas: tuple[Formula, Formula]) -> list[np.ndarray]:
    algebra = Algebra(Residues(), symbolic_sizes=False)
    return results(algebra, Term(algebra.numbers.random(SHAPE), "f", ATOM), formulas)


@pytest.mark.parametrize("name", LAWS)
def test_formulas_that_are_equal_by_a_law_have_equal_elements(name: str) -> None:
    first, second = on_residues(LAWS[name])
    assert first.shape == second.shape
    assert (first == second).all()


@pytest.mark.parametrize("name", LAWS)
def test_a_law_holds_for_the_true_functions(name: str) -> None:
    """With an error in the law, the run in float64 would have another value."""
    numbers = np.random.default_rng(5).normal(scale=3, size=(1, *SHAPE))
    first, second = results(Algebra(Reals(), symbolic_sizes=False), Term(numbers, "f", ATOM), LAWS[name])
    np.testing.assert_allclose(first, second, rtol=1e-12)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_have_other_elements(name: str) -> None:
    first, second = on_residues(NEAR_MISSES[name])
    assert first.shape == second.shape
    assert (first != second).any()


def test_true_values_of_the_formulas() -> None:
    """They are those of NumPy: the law is no coincidence of two wrong formulas."""
    numbers = np.random.default_rng(6).normal(scale=3, size=SHAPE)
    algebra = Algebra(Reals(), symbolic_sizes=False)
    term = Term(numbers[None], "f", ATOM)
    sigmoid = 1 / (1 + np.exp(-numbers))
    expected: dict[Formula, Any] = {
        relu_twice: np.maximum(numbers, 0),
        relu_of_abs: np.abs(numbers),
        abs_of_relu: np.maximum(numbers, 0),
        relu_of_exp: np.exp(numbers),
        sigmoid_by_exp: sigmoid,
        silu_by_exp: numbers * sigmoid,
        tanh_by_exp: np.tanh(numbers),
        clip_from_above: np.clip(numbers, -1, 2),
        larger_multiple: np.maximum(numbers, numbers / 4),
        lambda algebra, x: larger_multiple(algebra, x, 3): np.maximum(numbers, 3 * numbers),
        lambda algebra, x: larger_multiple(algebra, x, -2): np.maximum(numbers, -2 * numbers),
    }
    for formula, values in expected.items():
        np.testing.assert_allclose(algebra.term(formula(algebra, term)).data[0], values, rtol=1e-9)
