"""Where a run is to go: short ones run in the event loop, where they cost no change of thread; long ones go
to a thread, so that everybody else is heard meanwhile."""

from __future__ import annotations

# a change of thread takes some 0.1 ms, which is little beside this, and this is short for others to wait
SHORT_NS = 2_000_000
# how much the newest measurement counts beside those before it
NEWEST = 0.125


class Pace:
    """How long runs take, told by how much goes in: sizes within a factor of two are taken together."""

    def __init__(self) -> None:
        self._usual: dict[int, float] = {}
        self._request = 0.0

    def short(self, size: int) -> bool:
        """Whether a run of that many numbers is expected to be short; what was never measured is not."""
        known = self._usual
        of = size.bit_length()
        usual = known.get(of)
        if usual is None:
            if not known:
                return False
            near = min(known, key=lambda other: abs(other - of))
            usual = known[near] * 2.0 ** max(of - near, 0)
        return usual < SHORT_NS

    def saw(self, size: int, requests: int, ns: int) -> None:
        """Learn from a run."""
        of = size.bit_length()
        usual = self._usual.get(of, ns)
        self._usual[of] = usual + NEWEST * (ns - usual)
        each = ns / requests
        self._request += NEWEST * (each - self._request) if self._request else each

    def seconds(self, requests: int) -> float:
        """How long so many waiting requests take."""
        return requests * self._request / 1e9
