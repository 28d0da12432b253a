"""The workload: target model, payloads to send, and the answers to expect."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median
from time import perf_counter

from loadtest.errors import TargetError
from loadtest.plan import LoadPlan, Wire
from loadtest.workload.answer_check import AnswerChecker
from loadtest.workload.http_client import HttpClient, Reply
from loadtest.workload.payloads import Payload, make_payloads
from loadtest.workload.target import find_target


class Workload:
    """Finds the target model; makes the payloads of a wire format when they are first needed."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        self._client = HttpClient(plan.url, plan.api_key, plan.insecure, plan.timeout)
        self.target = find_target(plan, self._client)
        self.checker = AnswerChecker(self.target, plan)
        self._payloads: dict[Wire, tuple[Payload, ...]] = {}
        self._latencies: list[float] = []

    def payloads(self, wire: Wire) -> tuple[Payload, ...]:
        """All payloads of a wire format. Each is sent once when it is made, to learn its reference answer."""
        if wire not in self._payloads:
            payloads = make_payloads(self.target, replace(self._plan, wire=wire))
            for payload in payloads:
                reply, latency = self._post(payload)
                self._latencies.append(latency)
                self.checker.learn(payload, reply)
            self._payloads[wire] = payloads
        return self._payloads[wire]

    def measure_latency(self) -> float:
        """Send one request, and return how many seconds it took; infinity if it has no answer."""
        payload = next(iter(self._payloads.values()))[0]
        try:
            reply, latency = self._post(payload)
        except TargetError:
            return math.inf
        return latency if reply.status == 200 else math.inf

    def _post(self, payload: Payload) -> tuple[Reply, float]:
        """An answer, and the seconds it took."""
        begun = perf_counter()
        reply = self._client.post(payload.path, payload.data, payload.headers)
        return reply, perf_counter() - begun

    @property
    def idle_latency(self) -> float:
        """Median latency in seconds of the reference answers, when the server had no other load."""
        return median(self._latencies)
