"""The workload: target model, payloads to send, and the answers to expect."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from turnpike.loadtest.errors import TargetError
from turnpike.loadtest.plan import LoadPlan, Wire
from turnpike.loadtest.workload.answer_check import AnswerChecker
from turnpike.loadtest.workload.http_client import HttpClient, Reply
from turnpike.loadtest.workload.payloads import Payload, make_payloads
from turnpike.loadtest.workload.target import find_target


class Workload:
    """Finds the target model; makes the payloads of a wire format when they are first needed."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        self._client = HttpClient(plan.url, plan.api_key, plan.insecure, plan.timeout)
        self.target = find_target(plan, self._client)
        self.checker = AnswerChecker(self.target, plan)
        self._payloads: dict[Wire, tuple[Payload, ...]] = {}
        # seconds that each reference answer took, when the server had no other load
        self._idle_latencies: dict[Payload, float] = {}

    def payloads(self, wire: Wire) -> tuple[Payload, ...]:
        """All payloads of a wire format. Each is sent once when it is made, to learn its reference answer."""
        if wire not in self._payloads:
            payloads = make_payloads(self.target, replace(self._plan, wire=wire))
            for payload in payloads:
                reply, latency = _post(self._client, payload)
                self._idle_latencies[payload] = latency
                self.checker.learn(payload, reply)
            self._payloads[wire] = payloads
        return self._payloads[wire]

    @property
    def idle_latency(self) -> float:
        """Median latency in seconds of the reference answers, when the server had no other load."""
        return self._idle_latencies[self._median_payload]

    def is_answered_within(self, seconds: float) -> bool:
        """Send one request, and return whether it is answered in this time."""
        # a shorter time than a second would cut off requests that are on their way
        client = HttpClient(self._plan.url, self._plan.api_key, self._plan.insecure, max(1.0, seconds))
        try:
            reply, latency = _post(client, self._median_payload)
        except TargetError:
            return False
        return reply.status == 200 and latency <= seconds

    @property
    def _median_payload(self) -> Payload:
        by_latency = sorted(self._idle_latencies, key=self._idle_latencies.__getitem__)
        return by_latency[len(by_latency) // 2]


def _post(client: HttpClient, payload: Payload) -> tuple[Reply, float]:
    """The answer, and the seconds it took."""
    begun = perf_counter()
    reply = client.post(payload.path, payload.data, payload.headers)
    return reply, perf_counter() - begun
