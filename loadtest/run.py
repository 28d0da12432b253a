"""Runs one load test from start to end: prepare the requests, warm up, load or search, make the record."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import gevent

from turnpike.loadtest.generate.coordinator import LoadCoordinator, running_workers
from turnpike.loadtest.generate.default_processes import default_processes
from turnpike.loadtest.generate.load_shape import LoadProfile, load_factor
from turnpike.loadtest.generate.locust_users import LocustShape
from turnpike.loadtest.generate.wrk import WrkProcess, find_wrk
from turnpike.loadtest.ledger import now
from turnpike.loadtest.measure.capacity import LONG, CapacitySearch, Step
from turnpike.loadtest.measure.record import Capacity, LiveState, RateStep, Record, WrkLoad
from turnpike.loadtest.measure.server_metrics import MetricsPoller
from turnpike.loadtest.measure.summary import make_record
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.slo import Slo
from turnpike.loadtest.workload.workload import Workload

# seconds between checks for signals and failed workers, and between changes of a varying rate
POLL_SECONDS = 0.25
# seconds at the start of each rate of a search that its result leaves out: the previous rate still has
# effects
SETTLING_SECONDS = 1.0
# After a rate that was too high, the search waits for 1 to 30 seconds, until a request takes at most this
# many times as long as before the load. The server may still be busy with old requests, which would slow
# down the next rate.
RECOVERED_FACTOR = 3.0
MIN_RECOVERY_SECONDS, MAX_RECOVERY_SECONDS = 1.0, 30.0
# the search starts at this fraction of the rate that one connection could reach
START_FRACTION = 0.5

# a load test that gets one of these ends early, and still reports what it measured
SIGNALS = (signal.SIGINT, signal.SIGTERM)

OnState = Callable[[LiveState], None]


class StoppedError(Exception):
    """The user asked to end the test now."""


class LoadTest:
    """One load test in progress."""

    def __init__(
        self,
        plan: LoadPlan,
        workload: Workload,
        coordinator: LoadCoordinator,
        stop_requested: Callable[[], bool],
        on_state: OnState,
    ) -> None:
        """Prepare the test.

        Args:
            plan: What to do.
            workload: The requests to send and their expected answers.
            coordinator: The processes that send.
            stop_requested: Returns True once the test has to end early.
            on_state: Called about once a second with the current state.
        """
        self._plan, self._workload, self._coordinator = plan, workload, coordinator
        self._stop_requested, self._on_state = stop_requested, on_state
        self._phase, self._rate = "start", 0.0 if plan.open_loop else None
        self._begun = self._phase_begun = now()
        self._reported_at = 0.0
        # the whole seconds that count: first, and the one after the last
        self._first = self._last = int(self._begun)
        self._expected_seconds: float | None = None
        self._steps: list[RateStep] = []
        self._capacity: Capacity | None = None
        self._interrupted = False
        self._poller = MetricsPoller(plan, workload)

    def run(self) -> Record:
        """Run the test; if it is stopped early, the record covers the time until then."""
        try:
            self._generate_load()
            self._phase = "waiting for answers"
            self._report_state()
            self._coordinator.drain()
        finally:
            self._poller.stop()
        return self._record()

    def _generate_load(self) -> None:
        try:
            if self._plan.find_capacity:
                self._find_capacity()
            elif self._plan.open_loop:
                self._run_open_loop()
            else:
                self._run_closed_loop()
        except StoppedError:
            self._interrupted = True
            self._last = min(self._last, max(int(now()), self._first))

    def _run_closed_loop(self) -> None:
        """Run users, as many as the load shape says at each time."""
        plan = self._plan
        spawn_seconds = plan.users / plan.spawn_rate if plan.shape in ("constant", "soak") else 0.0
        self._set_counted_seconds(max(plan.warmup, spawn_seconds))
        duration = self._last - self._first
        profile = LoadProfile(plan.shape, plan.users, plan.spawn_rate, self._first - now(), duration)
        self._coordinator.start_shape(LocustShape(lambda: profile, ends=False))
        self._wait_until(self._first, "warm-up")
        self._wait_until(self._last, "load")

    def _run_open_loop(self) -> None:
        """Send at the planned rate, varied by the load shape."""
        self._coordinator.start_open_loop()
        self._set_counted_seconds(self._plan.warmup)
        rate = self._plan.rate or 0.0
        for phase, end in (("warm-up", self._first), ("load", self._last)):
            while now() < end:
                share = (now() - self._first) / (self._last - self._first)
                self._set_rate(rate * load_factor(self._plan.shape, share))
                self._wait_until(min(end, now() + POLL_SECONDS), phase)

    def _find_capacity(self) -> None:
        """Search for the highest rate that keeps the SLO."""
        plan = self._plan
        self._coordinator.start_open_loop()
        search = CapacitySearch(plan.slo or Slo(()), START_FRACTION / self._workload.idle_latency)
        self._set_rate(search.start_rate)
        self._wait_until(now() + plan.warmup, "warm-up")
        while (step := search.next_step()) is not None:
            if self._steps and not self._steps[-1].kept:
                self._wait_for_recovery()
            self._steps.append(self._run_step(search, step))
        self._capacity = Capacity(search.rate, search.limited_by)
        self._show_confirmed_step()
        if search.rate is not None and search.limited_by == "generator" and (program := find_wrk(plan)):
            if not self._steps[-1].kept:
                self._wait_for_recovery()
            self._capacity = replace(self._capacity, by_wrk=self._load_by_wrk(program, search))

    def _run_step(self, search: CapacitySearch, step: Step) -> RateStep:
        """Run one rate for some seconds, then wait until no request is in flight."""
        self._phase_begun = now()
        self._set_rate(step.rate)
        self._first = math.ceil(now() + SETTLING_SECONDS)
        self._last = self._first + math.ceil(step.length * self._plan.step_seconds)
        self._wait_until(self._last, f"{step.purpose} {step.rate:,.0f}/s")
        self._rate = 0.0
        starved = self._coordinator.drain()
        ledger = self._coordinator.ledger
        summary = ledger.summary(self._first, self._last)
        late = summary.totals.late.percentile(0.99)
        completed = sum(ledger.completed[second] for second in range(self._first, self._last))
        result = search.record(step, summary, late, completed, starved)
        return RateStep(
            rate=step.rate,
            begin=self._first,
            end=self._last,
            summary=summary,
            late_p99=late,
            starved=starved,
            kept=result.kept,
            generator_limited=result.generator_limited,
        )

    def _load_by_wrk(self, program: str, search: CapacitySearch) -> WrkLoad | None:
        """Send more requests than our own processes can; None if that fails."""
        self._phase_begun = now()
        payloads = self._workload.payloads(self._plan.wire)
        with WrkProcess(program, self._plan, payloads, math.ceil(LONG * self._plan.step_seconds)) as wrk:
            while wrk.running:
                self._wait_until(now() + POLL_SECONDS, "load by wrk")
            summary = wrk.summary()
        return WrkLoad(self._plan.users, summary, search.keeps_slo(summary)) if summary else None

    def _show_confirmed_step(self) -> None:
        """Count the seconds of the step that confirmed the capacity, or else those of the last step."""
        for step in self._steps:
            if step.kept and self._capacity and step.rate == self._capacity.rate:
                self._first, self._last = step.begin, step.end

    def _wait_for_recovery(self) -> None:
        """Wait until the server answers quickly again."""
        end = now() + MAX_RECOVERY_SECONDS
        self._wait_until(now() + MIN_RECOVERY_SECONDS, "recovering")
        limit = RECOVERED_FACTOR * self._workload.idle_latency
        while not self._workload.is_answered_within(limit) and now() < end:
            self._wait_until(now() + POLL_SECONDS, "recovering")

    def _set_counted_seconds(self, warmup: float) -> None:
        """Set the seconds that count: whole seconds, from the first one after the warm-up."""
        self._first = math.ceil(now() + warmup)
        self._last = self._first + max(1, round(self._plan.duration))
        self._expected_seconds = self._last - self._begun

    def _set_rate(self, rate: float) -> None:
        if rate != self._rate:
            self._rate = rate
            self._coordinator.set_rate(rate)

    def _wait_until(self, end: float, phase: str) -> None:
        """Let the load run until a time; reports the state, and checks for signals and failed workers."""
        self._phase = phase
        while (left := end - now()) > 0:
            gevent.sleep(min(left, POLL_SECONDS))
            if self._stop_requested():
                raise StoppedError
            self._coordinator.check_workers()
            self._report_state()

    def _report_state(self) -> None:
        """Call `on_state`, at most once a second."""
        if now() - self._reported_at < 1:
            return
        self._reported_at = now()
        scrapes = self._poller.scrapes
        self._on_state(
            LiveState(
                phase=self._phase,
                elapsed=now() - self._begun,
                figures_from=self._phase_begun,
                duration=self._expected_seconds,
                users=0 if self._plan.open_loop else self._coordinator.user_count,
                rate=self._rate,
                ledger=self._coordinator.ledger,
                scrape=scrapes[-1] if scrapes else None,
                steps=tuple(self._steps),
            )
        )

    def _record(self) -> Record:
        coordinator, first, last = self._coordinator, self._first, self._last
        return make_record(
            self._plan,
            self._workload,
            coordinator.ledger,
            self._poller,
            (first, last),
            [
                [busy for at, busy in samples if first < at - 1 and at <= last + 1]
                for samples in coordinator.busy_samples.values()
            ],
            begun=self._begun,
            wrong_answer=coordinator.first_wrong,
            steps=tuple(self._steps),
            capacity=self._capacity,
            interrupted=self._interrupted,
        )


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True once a signal has arrived; a second signal ends the process at once.

    The handlers are gevent's, because Python's own handlers do not run while gevent's event loop waits.
    """
    stopping = False
    previous = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for handler in handlers:
            handler.cancel()
        for number, action in previous.items():
            signal.signal(number, action)

    def on_signal() -> None:
        nonlocal stopping
        restore()
        stopping = True

    handlers = [gevent.signal_handler(number, on_signal) for number in SIGNALS]
    try:
        yield lambda: stopping
    finally:
        restore()


def run_load_test(plan: LoadPlan, on_state: OnState) -> Record:
    """Run a load test; calls `on_state` about once a second."""
    plan = replace(plan, processes=plan.processes or default_processes(plan))
    workload = Workload(plan)
    workload.payloads(plan.wire)
    with running_workers(plan, workload) as coordinator, interruptible() as stop_requested:
        return LoadTest(plan, workload, coordinator, stop_requested, on_state).run()
