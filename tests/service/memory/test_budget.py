"""The bytes of all requests of a worker are counted, and refused beyond the budget."""

from __future__ import annotations

import pytest

from tests.support.fake_request import FakeRequest
from turnpike.service.errors import OverloadedError, TooLargeError
from turnpike.service.memory.budget import MemoryBudget


def test_what_is_refused_is_not_counted() -> None:
    """The budget may be used up to its last byte."""
    budget, first, second = MemoryBudget(10), FakeRequest("POST"), FakeRequest("POST")
    budget.take(first, 6)
    with pytest.raises(OverloadedError, match=r"server: the memory for requests \(--max-held\) is used up"):
        budget.take(second, 5)
    assert (budget.bytes, second.budgeted_bytes) == (6, 0)
    budget.take(second, 3)
    budget.take(second, 1)
    assert (budget.bytes, second.budgeted_bytes) == (10, 4)
    budget.release(first)
    assert (budget.bytes, first.budgeted_bytes) == (4, 0)


def test_decoded_arrays_count_in_place_of_a_body() -> None:
    """They may be larger than the body, and beyond the budget the request is refused."""
    budget, request, other = MemoryBudget(12), FakeRequest("POST"), FakeRequest("POST")
    budget.take(other, 2)
    budget.take(request, 6)
    budget.recount(request, 9)
    assert (budget.bytes, request.budgeted_bytes) == (11, 9)
    with pytest.raises(OverloadedError):
        budget.recount(request, 11)
    assert (budget.bytes, request.budgeted_bytes) == (11, 9)
    budget.recount(request, 2)
    assert budget.bytes == 4
    budget.release(request)
    assert budget.bytes == 2


def test_what_never_fits_is_too_large() -> None:
    """Even if nothing else was held. A client that is asked to try again would do so for ever."""
    budget, request, other = MemoryBudget(10), FakeRequest("POST"), FakeRequest("POST")
    budget.take(other, 1)
    budget.take(request, 6)
    message = r"server: expected at most 10 bytes of memory \(--max-held\) .*, got 11; send fewer rows"
    with pytest.raises(TooLargeError, match=message):
        budget.recount(request, 11)
    with pytest.raises(TooLargeError, match=message), budget.hold(11):
        pass
    with pytest.raises(OverloadedError), budget.hold(10):
        pass
    assert (budget.bytes, request.budgeted_bytes) == (7, 6)
