"""Random primes."""

from __future__ import annotations

from turnpike.export.identity.numbers.primes import HIGH, LOW, is_prime, random_primes

# a number that is no prime, and passes the test of Miller and Rabin for base 2
STRONG_PSEUDOPRIME = 3_215_031_751


def test_primes_are_recognized() -> None:
    sieve = [number for number in range(2, 2000) if all(number % divisor for divisor in range(2, number))]
    assert [number for number in range(2000) if is_prime(number)] == sieve
    assert is_prime(2**31 - 1)
    assert not is_prime(STRONG_PSEUDOPRIME)
    assert not is_prime(46_337 * 46_337)


def test_primes_are_different_and_drawn_anew() -> None:
    primes = random_primes(20)
    assert len(set(primes)) == 20
    assert all(LOW < prime < HIGH and is_prime(prime) for prime in primes)
    assert not set(primes) & set(random_primes(20))
