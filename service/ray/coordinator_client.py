"""A replica's side of the coordinator: reports counters once a second, and carries out orders."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from turnpike.service.errors import NotReadyError
from turnpike.service.repository.rollout import Rollout

log = logging.getLogger(__name__)

REPORT_SECONDS = 1.0
# how long a report, or a question of a client, waits for the coordinator; an order takes longer
ANSWER_SECONDS, ORDER_SECONDS = 5.0, 30.0
UNREACHABLE = "the coordinator of the replicas does not answer; ask again in a moment"


class CoordinatorClient:
    """Answers what an application asks of its supervisor.

    Args:
        coordinator: Handle of the deployment `Coordinator`.
        replica: Name of this replica.
        snapshot: Returns the counters of this replica.
    """

    def __init__(self, coordinator: Any, replica: str, snapshot: Callable[[], Awaitable[Any]]) -> None:
        self._coordinator = coordinator
        self._replica = replica
        self._snapshot = snapshot
        self._epoch = ""
        self._last_order = 0
        self._outcomes: dict[int, Any] = {}
        # the last order for each model, as it is carried out
        self._orders: dict[str, asyncio.Task[None]] = {}
        self._unloaded: set[str] = set()
        self._is_unreachable = False

    async def ask(self, what: str, argument: Any = None) -> Any:
        """Answer "snapshots" and "traffic" with those of all replicas; have all "load" or "unload" a model.

        Raises:
            NotReadyError: The coordinator does not answer.
        """
        coordinator = self._coordinator
        if what in ("load", "unload"):
            return await _answer(coordinator.order.remote(what, argument), ORDER_SECONDS)
        if what == "traffic":
            return await _answer(coordinator.traffic.remote(argument), ANSWER_SECONDS)
        # the caller's own requests are counted in its answer
        await self._send_report()
        return await _answer(coordinator.snapshots.remote(), ANSWER_SECONDS)

    async def report_regularly(self, rollout: Rollout) -> None:
        """Report once a second, and carry out the orders that come in answer."""
        while True:
            await self.report(rollout)
            await asyncio.sleep(REPORT_SECONDS)

    async def report(self, rollout: Rollout) -> None:
        """Report now, and carry out the orders that come in answer.

        Does not wait for an order that takes long: the coordinator takes a replica without reports for dead.
        """
        try:
            answer = await self._send_report()
        except NotReadyError:
            if not self._is_unreachable:
                log.warning("the coordinator of the replicas does not answer")
            self._is_unreachable = True
            return
        self._is_unreachable = False
        if answer["epoch"] != self._epoch:
            self._epoch, self._last_order = answer["epoch"], 0
        for number, action, model in answer["orders"]:
            if number > self._last_order:
                self._last_order = number
                before = self._orders.get(model)
                self._orders[model] = asyncio.create_task(
                    self._carry_out(number, action, model, rollout, before)
                )
        self._orders = {model: order for model, order in self._orders.items() if not order.done()}
        if self._orders:
            await asyncio.wait(self._orders.values(), timeout=REPORT_SECONDS)

    async def _send_report(self) -> Any:
        outcomes, self._outcomes = self._outcomes, {}
        report = self._coordinator.report.remote(
            self._replica, await self._snapshot(), self._epoch, outcomes, sorted(self._unloaded)
        )
        try:
            return await _answer(report, ANSWER_SECONDS)
        except NotReadyError:
            self._outcomes = outcomes | self._outcomes
            raise

    async def _carry_out(
        self, number: int, action: str, model: str, rollout: Rollout, before: asyncio.Task[None] | None
    ) -> None:
        """Carry out an order after the one before it, and keep the outcome for the next report."""
        if before is not None:
            await asyncio.wait([before])
        try:
            if action == "unload":
                self._unloaded.add(model)
                outcome = await rollout.unload(model)
            else:
                self._unloaded.discard(model)
                outcome = await rollout.load(model)
        except Exception:
            log.exception("%s of model %r failed", action, model)
            reason = f"{action} failed; the log of a replica says why"
            outcome = {"ok": False, "known": True, "reason": reason}
        self._outcomes[number] = outcome


async def _answer(response: Any, seconds: float) -> Any:
    """The result of a call to the coordinator. Ray raises many kinds of errors if it cannot be reached."""
    try:
        return await asyncio.wait_for(response, seconds)
    except Exception as error:
        log.debug("the coordinator does not answer", exc_info=True)
        raise NotReadyError(UNREACHABLE) from error
