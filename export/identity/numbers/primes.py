"""Random primes of 31 bits."""

from __future__ import annotations

import secrets

# Primes are drawn from this range: a product of two residues fits into 62 bits.
LOW, HIGH = 1 << 30, 1 << 31
# how many primes there are in it
PRIMES_IN_RANGE = 50_697_537
# with these bases, the test of Miller and Rabin is exact for numbers of 32 bits
BASES = (2, 7, 61)


def random_primes(count: int) -> tuple[int, ...]:
    """Draw different primes from the operating system's randomness: nobody can prepare a file for them."""
    primes: set[int] = set()
    while len(primes) < count:
        number = LOW + secrets.randbelow(HIGH - LOW) | 1
        if is_prime(number):
            primes.add(number)
    return tuple(primes)


def is_prime(number: int) -> bool:
    """Whether a number below 2**32 is a prime."""
    if number in BASES:
        return True
    if number < 2 or number % 2 == 0:
        return False
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_is_probable_prime(number, base, odd, twos) for base in BASES)


def _is_probable_prime(number: int, base: int, odd: int, twos: int) -> bool:
    power = pow(base, odd, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False
