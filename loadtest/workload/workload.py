"""What is sent and what it is judged by: a model, its requests, and their reference answers."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from time import perf_counter

from loadtest.plan import Plan, Wire
from loadtest.workload.answer_check import Judge
from loadtest.workload.http_client import Fetch
from loadtest.workload.payloads import Body, bodies
from loadtest.workload.target import find


class Load:
    """The model that a plan is about. Requests are made, and answered once, when they are first asked for."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._fetch = Fetch(plan.url, plan.api_key, plan.insecure, plan.timeout)
        self.target = find(plan, self._fetch)
        self.judge = Judge(self.target, plan)
        self._bodies: dict[Wire, tuple[Body, ...]] = {}
        self._times: list[float] = []

    def of(self, wire: Wire) -> tuple[Body, ...]:
        """All different requests of a wire."""
        if wire not in self._bodies:
            made = bodies(self.target, replace(self._plan, wire=wire))
            for body in made:
                begun = perf_counter()
                reply = self._fetch.post(body.path, body.data, body.headers)
                self._times.append(perf_counter() - begun)
                self.judge.learn(body, reply)
            self._bodies[wire] = made
        return self._bodies[wire]

    @property
    def unloaded(self) -> float:
        """Seconds that an answer took while nothing else ran, the median."""
        return median(self._times)
