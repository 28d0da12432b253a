"""Heads that are known: the same bytes, the same way."""

from __future__ import annotations

from service.http import head_cache as rooms
from service.http.head_cache import Heads

HEAD = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n"


def way(connection: object) -> str:
    return "way"


def test_a_head_is_known_again_before_another_body() -> None:
    """What follows it may differ, but not how much."""
    heads = Heads()
    assert heads.find(HEAD + b"abc") is None
    heads.keep(HEAD + b"abc", 3, way)
    found = heads.find(HEAD + b"xyz")
    assert found is not None
    assert (found.size, found.way) == (3, way)


def test_a_piece_of_more_or_less_is_for_the_parser() -> None:
    """Such as two requests at once, or a body that is still coming."""
    heads = Heads()
    heads.keep(HEAD + b"abc", 3, way)
    for piece in (HEAD + b"ab", HEAD, HEAD + b"abc" + HEAD, HEAD[:-2], b"", b"abc", HEAD.upper() + b"abc"):
        assert heads.find(piece) is None


def test_only_whole_requests_are_kept() -> None:
    """Where more came than a head and its body, nobody can tell which was which."""
    heads = Heads()
    heads.keep(b"abc" + HEAD + b"abc", 6, way)
    heads.keep(HEAD + b"abc" + HEAD + b"abc", 3, way)
    assert heads.find(HEAD + b"abc") is None
    assert not heads._known


def test_heads_do_not_pile_up() -> None:
    """Whoever sends another with each request, or a very long one, fills no memory."""
    heads = Heads()
    for number in range(2 * rooms.MOST + 1):
        heads.keep(b"POST /%d HTTP/1.1\r\n\r\n" % number, 0, way)
        assert len(heads._known) <= rooms.MOST
    long = b"POST /%b HTTP/1.1\r\n\r\n" % (b"x" * rooms.LONGEST)
    heads.keep(long, 0, way)
    assert heads.find(long) is None
