"""The cache of parsed heads: the same bytes are the same head."""

from __future__ import annotations

from turnpike.service.http.connection.head_cache import MAX_CACHED_HEADS, MAX_HEAD_BYTES, HeadCache
from turnpike.service.requests.request import RequestHead

HEAD = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n"


def parsed(length: int | None, *headers: tuple[bytes, bytes], path: str = "/x") -> RequestHead:
    return RequestHead("POST", path, path, b"", list(headers), content_length=length)


def test_a_head_is_found_with_another_body_of_the_same_length() -> None:
    """The body may differ, but not its length."""
    cache, head = HeadCache(), parsed(3)
    assert cache.find(HEAD + b"abc") is None
    assert cache.get(HEAD) is None
    cache.add_parsed(HEAD, head)
    assert cache.find(HEAD + b"xyz") is head
    assert cache.get(HEAD) is head


def test_only_exactly_one_request_is_found() -> None:
    """The parser handles several requests at once, and bodies that are still arriving."""
    cache = HeadCache()
    cache.add_parsed(HEAD, parsed(3))
    for piece in (HEAD + b"ab", HEAD, HEAD + b"abc" + HEAD, HEAD[:-2], b"", b"abc", HEAD.upper() + b"abc"):
        assert cache.find(piece) is None


def test_heads_that_differ_in_each_request_are_not_added() -> None:
    """Heads of bodies in chunks are left out too, because such a request never arrives in one known piece."""
    cache = HeadCache()
    cache.add_parsed(HEAD, parsed(None))
    cache.add_parsed(HEAD, parsed(3, (b"x-request-id", b"1")))
    cache.add_parsed(HEAD, parsed(3, (b"traceparent", b"1")))
    assert not cache


def test_the_cache_is_bounded() -> None:
    """A client that always sends new heads, or very long ones, must not fill the memory."""
    cache = HeadCache()
    for number in range(2 * MAX_CACHED_HEADS + 1):
        cache.add_parsed(b"POST /%d HTTP/1.1\r\n\r\n" % number, parsed(0))
        assert len(cache) <= MAX_CACHED_HEADS
    long = b"POST /%b HTTP/1.1\r\n\r\n" % (b"x" * MAX_HEAD_BYTES)
    cache.add_parsed(long, parsed(0))
    assert cache.find(long) is None
