"""Matrix products and einsum of terms. Weights become elements for one prime at a time, to save memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import (
    Term,
    UndecidedError,
    Value,
    known_integers,
    shape_of,
)
from turnpike.export.identity.algebra.reductions import sum_of

# bytes that the residues of one product's operands may take
MAX_OPERAND_BYTES = 4 << 30


def matrix_product(algebra: Algebra, a: Value, b: Value) -> Value:
    """The product of matrices, of stacks of them, or with vectors, as NumPy's matmul."""
    if (integers := known_integers(a, b)) is not None:
        return np.asarray(np.matmul(*integers))
    return algebra.once(("matmul",), (a, b), lambda: _matrix_product(algebra, a, b))


def _matrix_product(algebra: Algebra, a: Value, b: Value) -> Term:
    _expect_fit(algebra, a, b)
    parts = []
    for number in range(len(algebra.numbers.primes)):
        x, y = algebra.part(a, number), algebra.part(b, number)
        row, column = x.ndim == 1, y.ndim == 1
        x, y = x[None] if row else x, y[:, None] if column else y
        if y.ndim == 2:
            # one product in place of many
            product = algebra.numbers.product(x.reshape(-1, x.shape[-1]), y, number)
            product = product.reshape(*x.shape[:-1], y.shape[-1])
        else:
            product = algebra.numbers.product(x, y, number)
        product = product[..., 0, :] if row else product
        parts.append(product[..., 0] if column else product)
    count = shape_of(a)[-1]
    return Term(np.stack(parts), "f", algebra.size(a).times(algebra.size(b)).summed(count))


def _expect_fit(algebra: Algebra, *operands: Value) -> None:
    # a residue takes 8 bytes, and its two limbs in float64 take 16
    size = sum(math.prod(shape_of(operand)) * 24 for operand in operands)
    if algebra.numbers.exact and size > MAX_OPERAND_BYTES:
        raise UndecidedError(
            f"a product of {' and '.join(str(list(shape_of(operand))) for operand in operands)} needs "
            f"{size / 2**30:.1f} GiB, expected at most {MAX_OPERAND_BYTES / 2**30:.0f}"
        )


def einsum(algebra: Algebra, equation: str, operands: Sequence[Value]) -> Value:
    """Products of operands whose axes have letters: one matrix product after the other."""
    equation = _without_ellipsis(equation.replace(" ", ""), operands)
    left, _, output = equation.partition("->")
    terms = left.split(",")
    if any(len(set(term)) != len(term) for term in terms):
        raise UndecidedError("einsum of a diagonal")
    if "->" not in equation:
        output = "".join(sorted(letter for letter in set(left) - {","} if left.count(letter) == 1))
    letters, result = terms[0], operands[0]
    for number in range(1, len(terms)):
        later = set("".join(terms[number + 1 :])) | set(output)
        letters, result = _product_of_two(
            algebra, (letters, result), (terms[number], operands[number]), later
        )
    letters, result = _without(algebra, letters, result, set(letters) - set(output))
    order = [letters.index(letter) for letter in output]
    return algebra.move(result, lambda data: data.transpose(order))


def _without_ellipsis(equation: str, operands: Sequence[Value]) -> str:
    """The equation with a letter for each axis that an ellipsis stands for."""
    if "..." not in equation:
        return equation
    left, arrow, output = equation.partition("->")
    if not arrow:
        raise UndecidedError("einsum with an ellipsis and without an output")
    unused = [letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in equation]
    terms, longest = [], 0
    for term, operand in zip(left.split(","), operands, strict=True):
        # the letters of all operands are aligned at the end
        count = len(shape_of(operand)) - len(term.replace("...", "")) if "..." in term else 0
        longest = max(longest, count)
        terms.append(term.replace("...", "".join(reversed(unused[:count]))))
    return ",".join(terms) + "->" + output.replace("...", "".join(reversed(unused[:longest])))


Lettered = tuple[str, Value]


def _without(algebra: Algebra, letters: str, value: Value, summed: set[str]) -> Lettered:
    """A value summed along the axes of these letters."""
    axes = [axis for axis, letter in enumerate(letters) if letter in summed]
    kept = "".join(letter for letter in letters if letter not in summed)
    return kept, sum_of(algebra, value, axes) if axes else value


def _product_of_two(algebra: Algebra, first: Lettered, second: Lettered, later: set[str]) -> Lettered:
    """The product of two operands; letters that nobody needs later are summed."""
    p, a = _without(algebra, *first, set(first[0]) - later - set(second[0]))
    q, b = _without(algebra, *second, set(second[0]) - later - set(p))
    batch = [letter for letter in p if letter in q and letter in later]
    summed = [letter for letter in p if letter in q and letter not in later]
    left = [letter for letter in p if letter not in q]
    right = [letter for letter in q if letter not in p]
    sizes = dict(zip(p, shape_of(a), strict=True)) | dict(zip(q, shape_of(b), strict=True))

    def as_matrices(letters: str, value: Value, rows: list[str], columns: list[str]) -> Value:
        order = [letters.index(letter) for letter in (*batch, *rows, *columns)]
        shape = [math.prod(sizes[letter] for letter in group) for group in (batch, rows, columns)]
        return algebra.move(value, lambda data: data.transpose(order).reshape(shape))

    product = matrix_product(algebra, as_matrices(p, a, left, summed), as_matrices(q, b, summed, right))
    letters = "".join((*batch, *left, *right))
    shape = [sizes[letter] for letter in letters]
    return letters, algebra.move(product, lambda data: data.reshape(shape))
