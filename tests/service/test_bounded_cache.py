from __future__ import annotations

from turnpike.service.bounded_cache import BoundedCache


def test_a_full_cache_is_emptied() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    assert cache.add("a", 1) == 1
    cache.add("b", 2)
    assert cache == {"a": 1, "b": 2}
    cache.add("c", 3)
    assert cache == {"c": 3}


def test_a_cache_never_exceeds_its_limit() -> None:
    cache: BoundedCache[int, int] = BoundedCache(3)
    for number in range(20):
        cache.add(number, number)
        assert len(cache) <= 3
        assert cache[number] == number


def test_replacing_an_entry_drops_none() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    cache.add("a", 1)
    cache.add("b", 2)
    cache.add("b", 3)
    assert cache == {"a": 1, "b": 3}
