"""What the replicas share: the sum of their counters, the history of traffic, and orders to load models.

It is a deployment of its own with one replica. On one machine, the supervisor does this for its workers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from turnpike.service.telemetry.counters import Snapshot, merge_snapshots, without_gauges
from turnpike.service.telemetry.traffic_history import MOMENT_SECONDS, TrafficHistory

log = logging.getLogger(__name__)

# a replica without a report for so long is taken for one that ended; an order does not wait for it
SILENT_SECONDS = 5.0
# after this time, its counters are added to those of the past, so that they take no more memory
FORGOTTEN_SECONDS = 3600.0
# how long a caller waits until every replica has carried out its order
ORDER_SECONDS = 15.0
POLL_SECONDS = 0.05

Outcome = dict[str, Any]


@dataclass
class ReplicaReport:
    """The last report of a replica: its counters, when they came, and the orders that it has carried out."""

    snapshot: dict[str, Any]
    at: float
    outcomes: dict[int, Outcome] = field(default_factory=dict)


class Coordinator:
    """Knows every replica by its reports, one a second.

    Its answers have an `epoch`. Another one tells the replicas that it started anew and knows no orders.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._epoch = uuid4().hex
        self._replicas: dict[str, ReplicaReport] = {}
        # counters of replicas that ended long ago
        self._past: Snapshot | None = None
        # the last order for each model: its number, and "load" or "unload"
        self._orders: dict[str, tuple[int, str]] = {}
        self._last_order = 0
        self._history = TrafficHistory()
        self._recording: asyncio.Task[None] | None = None

    async def report(
        self,
        replica: str,
        snapshot: dict[str, Any],
        epoch: str,
        outcomes: dict[int, Outcome],
        unloaded: list[str],
    ) -> dict[str, Any]:
        """Take the report of a replica.

        Args:
            replica: Its name.
            snapshot: Its counters since it started.
            epoch: The epoch of the last answer that it got; empty if there was none.
            outcomes: The outcomes of orders that it has carried out since its last report, by number.
            unloaded: The models that it was ordered to unload.

        Returns:
            The epoch, and the last order for each model as (number, "load" or "unload", model).
        """
        if self._recording is None:
            self._recording = asyncio.create_task(self._record_traffic())
        if epoch and epoch != self._epoch:
            # this coordinator is new: it learns from the replicas what was unloaded
            for model in unloaded:
                if model not in self._orders:
                    self._give_order("unload", model)
        known = self._replicas.get(replica)
        report = ReplicaReport(snapshot, self._clock(), {} if known is None else known.outcomes)
        if epoch == self._epoch:
            report.outcomes |= outcomes
        self._replicas[replica] = report
        orders = [(number, action, model) for model, (number, action) in self._orders.items()]
        return {"epoch": self._epoch, "orders": sorted(orders)}

    async def order(self, action: str, model: str) -> Outcome:
        """Have all replicas load or unload a model; returns the first outcome that is not ok, if any."""
        number = self._give_order(action, model)
        deadline = self._clock() + ORDER_SECONDS
        while self._clock() < deadline:
            alive = [report for report in self._replicas.values() if self._is_alive(report)]
            if alive and all(number in report.outcomes for report in alive):
                break
            await asyncio.sleep(POLL_SECONDS)
        outcomes = [
            report.outcomes.pop(number) for report in self._replicas.values() if number in report.outcomes
        ]
        failures = [outcome for outcome in outcomes if not outcome["ok"]]
        if failures and not any(outcome["known"] for outcome in failures):
            # otherwise every new replica would be told of it
            self._orders.pop(model, None)
        if not outcomes:
            return {
                "ok": False,
                "known": True,
                "reason": f"no replica has answered within {ORDER_SECONDS:g} s",
            }
        return failures[0] if failures else {"ok": True}

    async def snapshots(self) -> list[Any]:
        """The counters of all replicas, also of those that ended, so that no count decreases."""
        self._forget_old()
        known = [
            report.snapshot
            if self._is_alive(report)
            else {**report.snapshot, "counters": without_gauges(report.snapshot["counters"])}
            for report in self._replicas.values()
        ]
        return known if self._past is None else [*known, {"counters": self._past, "drift": {}}]

    async def traffic(self, after: float) -> Any:
        """The history of traffic, as `TrafficHistory.to_json` gives it."""
        return self._history.to_json(after)

    def _give_order(self, action: str, model: str) -> int:
        self._last_order += 1
        self._orders[model] = (self._last_order, action)
        return self._last_order

    def _is_alive(self, report: ReplicaReport) -> bool:
        return self._clock() - report.at < SILENT_SECONDS

    def _forget_old(self) -> None:
        old = [
            name for name, report in self._replicas.items() if self._clock() - report.at > FORGOTTEN_SECONDS
        ]
        for name in old:
            counters = without_gauges(self._replicas.pop(name).snapshot["counters"])
            self._past = merge_snapshots([self._past, counters] if self._past else [counters])

    async def _record_traffic(self) -> None:
        while True:
            try:
                snapshots = [snapshot["counters"] for snapshot in await self.snapshots()]
                self._history.record(self._clock() - self._started, merge_snapshots(snapshots))
            except Exception:
                log.exception("the traffic of the last seconds could not be recorded")
            await asyncio.sleep(MOMENT_SECONDS)
