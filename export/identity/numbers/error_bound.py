"""The probability that two different programs agree at the random point at which they run.

Every number of a run stands for a polynomial in *atoms*: the numbers of the inputs, and the values of random
functions. Its coefficients are rational. Two different polynomials agree modulo a random prime p if

- p divides every coefficient of their difference. A coefficient of n bits has at most n / 30 prime factors
  among the `PRIMES_IN_RANGE` candidates. Or
- the random values of the atoms are a root: at most degree / 2**30 (Schwartz and Zippel), because no value of
  an atom has a higher probability than 2**-30.

A run takes several primes, drawn apart, and two numbers count as equal if they agree modulo all of them. A
program can only agree with another one by chance if two different arguments of one function agree, or two
different outputs: the bound adds the probability for all such pairs. It assumes that SipHash with a random
key cannot be told from a random function.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnpike.export.identity.numbers.primes import LOW, PRIMES_IN_RANGE

# bits of a hash: two different arguments have the same one with probability 2**-HASH_BITS
HASH_BITS = 186


@dataclass(frozen=True)
class Size:
    """Bounds of a polynomial with rational coefficients.

    Attributes:
        degree: In the atoms.
        norm: log2 of the sum of the absolute numerators, over a common denominator.
        twos: The power of two in that denominator.
        odd: Its odd part.
    """

    degree: int = 0
    norm: float = 0.0
    twos: int = 0
    odd: int = 1

    def plus(self, other: Size) -> Size:
        twos, odd = max(self.twos, other.twos), math.lcm(self.odd, other.odd)
        norms = [size.norm + (twos - size.twos) + math.log2(odd // size.odd) for size in (self, other)]
        return Size(max(self.degree, other.degree), _log2_sum(*norms), twos, odd)

    def times(self, other: Size) -> Size:
        return Size(
            self.degree + other.degree, self.norm + other.norm, self.twos + other.twos, self.odd * other.odd
        )

    def summed(self, count: int) -> Size:
        """The bounds of a sum of this many numbers."""
        return Size(self.degree, self.norm + math.log2(max(1, count)), self.twos, self.odd)

    def agreement(self) -> float:
        """The probability that two different polynomials of this size agree modulo one random prime."""
        if self.degree >= LOW:
            return 1.0
        # the difference of two has twice the norm
        factors = (self.norm + 1) / math.log2(LOW)
        return min(1.0, self.degree / LOW + factors / PRIMES_IN_RANGE)


# the size of an atom
ATOM = Size(degree=1)


def _log2_sum(a: float, b: float) -> float:
    low, high = sorted((a, b))
    return high + math.log2(1 + 2 ** max(low - high, -64))


class ErrorBound:
    """Counts what is compared in a run, for the probability that one of the comparisons is wrong."""

    def __init__(self, primes: int) -> None:
        self._primes = primes
        # by the name of a function
        self._applications: Counter[str] = Counter()
        self._largest: dict[str, Size] = {}
        self._outputs = 0.0

    def count_function(self, name: str, applications: int, arguments: Size) -> None:
        """Note that a function was applied to this many arguments of at most this size."""
        self._applications[name] += applications
        largest = self._largest.get(name)
        self._largest[name] = arguments if largest is None else _larger(largest, arguments)

    def count_comparison(self, numbers: int, size: Size) -> None:
        """Note that this many pairs of numbers of at most this size were compared."""
        self._outputs += numbers * self._agreement(size)

    def probability(self) -> float:
        """A bound of the probability that a comparison has called different numbers equal."""
        total = self._outputs
        for name, count in self._applications.items():
            total += count * (count - 1) / 2 * self._agreement(self._largest[name])
        return min(1.0, total)

    def _agreement(self, size: Size) -> float:
        return float(size.agreement() ** self._primes + 2.0**-HASH_BITS)


def _larger(a: Size, b: Size) -> Size:
    """Bounds that both have; of the denominators, only the effect on the norm counts here."""
    return Size(max(a.degree, b.degree), max(a.norm, b.norm))


def size_of(array: np.ndarray[Any, np.dtype[Any]]) -> Size:
    """Bounds of known floats, over a common power of two."""
    if not array.size or not (numbers := array[array != 0]).size:
        return Size()
    exponents = np.frexp(numbers.astype(np.float64))[1]
    mantissa = {2: 11, 4: 24}.get(array.dtype.itemsize, 53)
    twos = max(0, mantissa - int(exponents.min()))
    return Size(norm=float(exponents.max()) + twos, twos=twos)
