"""Exact arithmetic modulo several random primes at once, with random functions.

An array of residues has one axis more than its tensor, the first: one residue for each prime.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from turnpike.export.identity.numbers.kept_weights import KeptWeights
from turnpike.export.identity.numbers.primes import random_primes
from turnpike.export.identity.numbers.siphash import siphash

Array = np.ndarray[Any, np.dtype[Any]]
U64 = np.uint64
Divisor: TypeAlias = np.uint64 | Array
# Primes of a run. With six, the bound of the error is below 1e-18 for all networks that were tried.
PRIMES = 6
# exponents of the last bits of float64
LOWEST_POWER, HIGHEST_POWER = -1074, 972
# numbers converted at a time, to stay in the processor's cache
CHUNK = 1 << 16
# residues up to which those of all primes are computed at once: more leave the processor's cache
MAX_SMALL = 1 << 15
# a residue is below 2**31, and whole numbers are exact in float64 up to 2**53
RESIDUE_BITS, EXACT_BITS = 31, 53
# with this many summands, limbs of a product are 4 bits wide
MAX_SUMMANDS = 1 << 18


class Residues:
    """Arithmetic on residues of random numbers. All methods broadcast as NumPy does.

    Random functions are keyed hashes: equal arguments have equal values, everything else is random. The
    functions of one run are independent of those of another, as is every choice of primes.
    """

    # equal numbers are the same residues, so that results can be compared
    exact = True

    def __init__(self, count: int = PRIMES) -> None:
        self.primes = random_primes(count)
        self.weights = KeptWeights()
        self._secret = secrets.token_bytes(32)
        self._keys: dict[str, tuple[int, int]] = {}
        self._column = np.array(self.primes, U64)[:, None]
        powers = np.array([_powers_of_two(prime) for prime in self.primes])
        self._floats = {
            4: _FloatTable(self._column, powers, np.dtype(np.uint32), fraction=23, last_bit=-150),
            8: _FloatTable(self._column, powers, np.dtype(np.uint64), fraction=52, last_bit=-1075),
        }

    # ---- conversion

    def random(self, shape: Sequence[int]) -> Array:
        """Independent random residues."""
        generator = np.random.Generator(np.random.PCG64(secrets.randbits(128)))
        return np.stack([generator.integers(0, prime, tuple(shape), dtype=U64) for prime in self.primes])

    def from_floats(self, array: Array) -> Array:
        """The residues of finite numbers of 16, 32 or 64 bits: mantissa times a power of two, exactly."""
        if array.size * len(self.primes) <= MAX_SMALL:
            return self._from_floats(array, slice(None))
        return np.stack([self.from_floats_modulo(array, number) for number in range(len(self.primes))])

    def from_floats_modulo(self, array: Array, number: int) -> Array:
        """The same for one of the primes: six at once would take 12 times the memory of a layer's weights."""
        chosen = slice(number, number + 1)
        return self.weights.residues(array, number, lambda data: self._from_floats(data, chosen)[0])

    def _from_floats(self, array: Array, chosen: slice) -> Array:
        dtype = np.float64 if array.dtype.itemsize == 8 else np.float32
        flat = np.ascontiguousarray(array, dtype).reshape(-1)
        table, column = self._floats[flat.itemsize], self._column[chosen]
        residues = np.empty((len(column), flat.size), U64)
        for start in range(0, flat.size, CHUNK):
            residues[:, start : start + CHUNK] = table.convert(flat[start : start + CHUNK], column, chosen)
        return residues.reshape(-1, *array.shape)

    def from_integers(self, array: Array) -> Array:
        if array.dtype == np.uint64:
            return np.asarray(array % self._primes_for(array[None]))
        return np.mod(array.astype(np.int64), self._primes_for(array[None]).astype(np.int64)).astype(U64)

    # ---- sums and products

    def add(self, a: Array, b: Array) -> Array:
        total = a + b
        for part, prime in self._parts(total):
            # the smaller one is the residue, because a negative difference wraps around
            np.minimum(part, part - prime, out=part)
        return total

    def subtract(self, a: Array, b: Array) -> Array:
        difference = a - b
        for part, prime in self._parts(difference):
            np.minimum(part, part + prime, out=part)
        return difference

    def multiply(self, a: Array, b: Array) -> Array:
        return self._reduced(a * b)

    def sum(self, a: Array, axes: Sequence[int], *, keepdims: bool = False) -> Array:
        """The sum along axes of the tensor; exact for up to 2**33 numbers."""
        places = tuple(axis + 1 for axis in axes)
        return self._reduced(np.asarray(a.sum(axis=places, dtype=U64, keepdims=keepdims)))

    def cumulative_sum(self, a: Array, axis: int) -> Array:
        return self._reduced(np.cumsum(a, axis=axis + 1, dtype=U64))

    def inverse(self, a: Array) -> Array:
        """The inverses of numbers that are not zero."""
        # Fermat: a**(p - 2)
        return np.stack(
            [_power(part, prime - 2, U64(prime)) for part, prime in zip(a, self.primes, strict=True)]
        )

    def product(self, a: Array, b: Array, number: int) -> Array:
        """The matrix product modulo one of the primes, by float64 products that are exact below 2**53.

        The operand with fewer residues is split into limbs, so narrow that their sums stay below that.
        Residues may be given in float64.
        """
        count = a.shape[-1]
        if count > MAX_SUMMANDS:
            raise ValueError(f"expected at most {MAX_SUMMANDS} summands, got {count}")
        prime = U64(self.primes[number])
        # `count` products below 2**bits * 2**31 each
        bits = EXACT_BITS - RESIDUE_BITS - (count - 1).bit_length()
        limbs = -(-RESIDUE_BITS // bits)
        rows, columns = a.shape[-2], b.shape[-1]
        if b.size < a.size:
            split = _limbs(b.astype(U64, copy=False), bits, -2).reshape(*b.shape[:-1], limbs * columns)
            sums = _float_product(a.astype(np.float64, copy=False), split)
            sums = np.moveaxis(sums.reshape(*sums.shape[:-1], limbs, columns), -2, 0)
        else:
            split = _limbs(a.astype(U64, copy=False), bits, -3).reshape(*a.shape[:-2], limbs * rows, count)
            sums = _float_product(split, b.astype(np.float64, copy=False))
            sums = np.moveaxis(sums.reshape(*sums.shape[:-2], limbs, rows, columns), -3, 0)
        total = _remainder(sums[0].astype(U64), prime)
        for limb in sums[1:]:
            total <<= U64(bits)
            total += limb.astype(U64)
            _remainder(total, prime)
        return total

    def _parts(self, array: Array) -> Iterator[tuple[Array, Divisor]]:
        """Views of the residues with their primes, in pieces that stay in the processor's cache."""
        if array.size <= MAX_SMALL:
            yield array, self._primes_for(array)
            return
        for number, prime in enumerate(self.primes):
            # a view also of a vector, of which array[number] would be a copy
            part = array[number : number + 1]
            if not part.flags.c_contiguous:
                yield part, U64(prime)
                continue
            flat = part.reshape(-1)
            for start in range(0, flat.size, CHUNK):
                yield flat[start : start + CHUNK], U64(prime)

    def _primes_for(self, array: Array) -> Array:
        """The primes, in a shape that is broadcast with residues of this one."""
        return self._column.reshape(-1, *(1,) * (array.ndim - 1))

    def _reduced(self, array: Array) -> Array:
        for part, prime in self._parts(array):
            _remainder(part, prime)
        return array

    # ---- random functions

    def function(self, name: str, arguments: Sequence[Array]) -> Array:
        """A random function of its arguments, of which the order counts."""
        arguments = np.broadcast_arrays(*arguments)
        words = [word for argument in arguments for word in _words(argument)]
        return self._spread(name, words, arguments[0].shape[1:])

    def odd_function(self, name: str, a: Array) -> Array:
        """A random function with f(-x) = -f(x)."""
        positive, negated, zero = self._oriented(a)
        value = self.function(name, [positive])
        value = np.where(negated, self.subtract(np.zeros_like(value), value), value)
        return np.where(zero, U64(0), value)

    def even_function(self, name: str, a: Array) -> Array:
        """A random function with f(-x) = f(x)."""
        return self.function(name, [self._oriented(a)[0]])

    def set_function(self, name: str, a: Array) -> Array:
        """A random function of the set of the numbers along the last axis."""
        hashes = siphash(self._key(f"{name}: element"), _words(a), 3)
        shape = a.shape[1:]
        order = np.argsort(hashes[0].reshape(shape), axis=-1)
        words = [np.take_along_axis(word.reshape(shape), order, -1) for word in hashes]
        # equal numbers count once
        new = np.ones(shape, bool)
        new[..., 1:] = np.any([word[..., 1:] != word[..., :-1] for word in words], axis=0)
        totals = [np.where(new, word, U64(0)).sum(-1, dtype=U64) for word in words]
        return self._spread(name, [np.atleast_1d(total).reshape(-1) for total in totals], shape[:-1])

    def rows(self, table: Array, ids: Array) -> Array:
        """The rows of a table at ids: a random function of table, id and place in the row."""
        digest = hashlib.sha256(np.ascontiguousarray(table).data).hexdigest()
        places = np.arange(math.prod(table.shape[1:]))
        column = ids.reshape(len(ids), -1, 1)
        name = f"row of {table.dtype} {table.shape} {digest}"
        data = self.function(name, [column, self.from_integers(places)[:, None, :]])
        return data.reshape(*ids.shape, *table.shape[1:])

    def _key(self, name: str) -> tuple[int, int]:
        if name not in self._keys:
            digest = hashlib.blake2b(name.encode(), key=self._secret, digest_size=16).digest()
            self._keys[name] = (int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little"))
        return self._keys[name]

    def _spread(self, name: str, words: Sequence[Array], shape: tuple[int, ...]) -> Array:
        """Residues from messages of words."""
        count = len(self.primes)
        hashes = siphash(self._key(name), words, -(-count // 2))
        # Two residues from each word of 64 bits. A value of 32 bits modulo p has no value with a higher
        # probability than 2**-30, which is what the bound of the error assumes.
        halves = [half for word in hashes for half in (word >> U64(32), word & U64(0xFFFFFFFF))]
        return self._reduced(np.stack(halves[:count])).reshape(count, *shape)

    def _oriented(self, a: Array) -> tuple[Array, Array, Array]:
        """One of x and -x, the same for both; whether that is -x; and whether x is zero."""
        negated = self.subtract(np.zeros_like(a), a)
        smaller, undecided = np.zeros(a.shape[1:], bool), np.ones(a.shape[1:], bool)
        for part, other in zip(a, negated, strict=True):
            smaller |= undecided & (other < part)
            undecided &= part == other
        return np.where(smaller, negated, a), smaller, undecided


class _FloatTable:
    """What the bits of a float above its fraction stand for: its sign and its exponent."""

    def __init__(
        self,
        column: Array,
        powers: Array,
        word: np.dtype[np.unsignedinteger[Any]],
        fraction: int,
        last_bit: int,
    ) -> None:
        """The smallest exponent, 0, has the last bit 2**(last_bit + 1), and no leading bit."""
        self._word, self._fraction = word, fraction
        exponents = np.arange(1 << (8 * word.itemsize - 1 - fraction))
        last = powers[:, np.maximum(exponents, 1) + last_bit - LOWEST_POWER]
        lead = last * (U64(1 << fraction) % column) % column * (exponents > 0)
        # behind the positive ones, and 0 stays 0
        self._last = np.concatenate([last, column - last], 1)
        self._lead = np.concatenate([lead, (column - lead) % column], 1)

    def convert(self, numbers: Array, column: Array, chosen: slice) -> Array:
        """The residues of numbers modulo the chosen primes."""
        bits = numbers.view(self._word)
        kinds = (bits >> self._word.type(self._fraction)).astype(np.intp)
        fractions = (bits & self._word.type((1 << self._fraction) - 1)).astype(U64)
        # below 2**54, which is 2**23 * 2**31, after a division if the fraction is longer
        values = fractions % column if self._fraction > 31 else fractions
        values = values * self._last[chosen].take(kinds, 1)
        values += self._lead[chosen].take(kinds, 1)
        return _remainder(values, column)


def _powers_of_two(prime: int) -> Array:
    """The powers from 2**LOWEST_POWER to that of the last bit of the largest float64."""
    power = pow(2, LOWEST_POWER, prime)
    powers = []
    for _ in range(LOWEST_POWER, HIGHEST_POWER + 1):
        powers.append(power)
        power = power * 2 % prime
    return np.array(powers, U64)


def _words(a: Array) -> list[Array]:
    """Two residues in each word of 64 bits, in flat arrays."""
    flat = a.reshape(len(a), -1)
    if len(flat) % 2:
        flat = np.concatenate([flat, np.zeros_like(flat[:1])])
    return [high << U64(32) | low for high, low in zip(flat[::2], flat[1::2], strict=True)]


def _remainder(a: Array, prime: Divisor) -> Array:
    """The residues, in place. NumPy divides by one number with SIMD instructions; its remainder does not."""
    quotient = a // prime
    quotient *= prime
    a -= quotient
    return a


def _limbs(a: Array, bits: int, axis: int) -> Array:
    """Residues as limbs of this width along a new axis, the highest first, in float64."""
    shifts = [U64(shift) for shift in range(0, RESIDUE_BITS, bits)][::-1]
    mask = U64((1 << bits) - 1)
    return np.stack([(a >> shift & mask).astype(np.float64) for shift in shifts], axis)


def _float_product(a: Array, b: Array) -> Array:
    """A matrix product by PyTorch: NumPy's would start threads that wait for work by spinning."""
    # views of windows are not writable, which PyTorch warns about
    first, second = (torch.from_numpy(np.require(operand, requirements="W")) for operand in (a, b))
    product: Array = torch.matmul(first, second).numpy()
    return product


def _power(a: Array, exponent: int, prime: U64) -> Array:
    result = np.ones_like(a)
    while exponent:
        if exponent & 1:
            result = result * a % prime
        a = a * a % prime
        exponent >>= 1
    return result
