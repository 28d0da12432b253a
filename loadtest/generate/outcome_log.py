"""Notes outcomes while requests are sent, and counts good ones in groups, which takes less CPU time."""

from __future__ import annotations

from collections.abc import Callable

from turnpike.loadtest.ledger import Ledger, Outcome
from turnpike.loadtest.workload.payloads import Payload

# Good answers that are counted at once. Larger groups would take hardly less time for each answer, and delay
# requests that are due: counting 1,000 takes about a quarter of a millisecond.
GROUP_LENGTH = 1000
TIMES_PER_ANSWER = 3

# called with each outcome and the size of its answer in bytes
OnOutcome = Callable[[Outcome, int], None]


class OutcomeLog:
    """The outcomes of one process."""

    def __init__(self, on_outcome: OnOutcome | None = None) -> None:
        """`on_outcome` is called with every outcome, in addition to the ledger."""
        self._ledger = Ledger()
        self._on_outcome = on_outcome
        # good answers that are not in the ledger yet, by kind and rows: `Ledger.add_good` has the times
        self._times: dict[tuple[str, int], list[float]] = {}

    @property
    def ledger(self) -> Ledger:
        """All outcomes since the ledger was last emptied."""
        for (kind, rows), times in self._times.items():
            if times:
                self._ledger.add_good(kind, rows, times)
                times.clear()
        return self._ledger

    def good(self, payload: Payload, due: float, begun: float, ended: float, size: int) -> None:
        """Note a good answer.

        Args:
            payload: The request.
            due: When it should have been sent.
            begun: When the sender took it up; it may then have waited for a connection.
            ended: When its answer was complete.
            size: Bytes of the answer.
        """
        times = self._times.get((payload.kind, payload.rows))
        if times is None:
            times = self._times[payload.kind, payload.rows] = []
        times += (due, begun, ended)
        if len(times) >= GROUP_LENGTH * TIMES_PER_ANSWER:
            self._ledger.add_good(payload.kind, payload.rows, times)
            times.clear()
        if self._on_outcome is not None:
            self._on_outcome(_outcome(payload, due, begun, ended, None), size)

    def bad(self, payload: Payload, due: float, begun: float, ended: float, fault: str, size: int) -> None:
        """Note a request without a good answer; the arguments are those of `good`, and the fault."""
        outcome = _outcome(payload, due, begun, ended, fault)
        self._ledger.add(outcome)
        if self._on_outcome is not None:
            self._on_outcome(outcome, size)


def _outcome(payload: Payload, due: float, begun: float, ended: float, fault: str | None) -> Outcome:
    return Outcome(payload.kind, due, begun - due, ended - due, payload.rows, fault)
