"""A whole load test: find, prepare, warm up, load or search, and put down what was found."""

from __future__ import annotations

import math
from collections.abc import Callable

from gevent.event import Event

from loadtest.generate.coordinator import Crew, hired
from loadtest.generate.forms import level
from loadtest.generate.sender import now
from loadtest.generate.shapes import Course, FormShape
from loadtest.interrupt import interruptible
from loadtest.measure.capacity import Search
from loadtest.measure.observer import Observer
from loadtest.measure.record import Capacity, Record, Step
from loadtest.measure.result import result
from loadtest.measure.state import State
from loadtest.plan import Plan
from loadtest.slo import Slo
from loadtest.workload.workload import Load

TICK = 0.25
# of a rate's time that figures leave out, since what came before is still felt
TRANSIENT = 1.0
# a rate that is to be confirmed is kept for so many times the time of the others
LONGER = 3
# of what one connection could do at the most, where the search for the capacity begins
BEGIN = 0.5

Watch = Callable[[State], None]


class StoppedError(Exception):
    """Somebody wants the test to end now."""


class Test:
    """One load test under way."""

    def __init__(self, plan: Plan, load: Load, crew: Crew, stop: Event, watch: Watch) -> None:
        self._plan, self._load, self._crew, self._stop, self._watch = plan, load, crew, stop, watch
        self._phase, self._rate = "start", 0.0 if plan.open_loop else None
        self._begun, self._told = now(), 0.0
        # the whole seconds that count
        self._first = self._last = int(self._begun)
        self._expected: float | None = None
        self._steps: list[Step] = []
        self._capacity: Capacity | None = None
        self._interrupted = False
        self._observer = Observer(plan, load)

    def run(self) -> Record:
        """All of it; stopped early, what there is until then."""
        try:
            self._go()
            self._phase = "waiting for answers"
            self._tell()
            self._crew.settle()
        finally:
            self._observer.stop()
        return self._record()

    def _go(self) -> None:
        try:
            if self._plan.find_capacity:
                self._search()
            elif self._plan.open_loop:
                self._keep_rate()
            else:
                self._keep_users()
        except StoppedError:
            self._interrupted = True
            self._last = min(self._last, max(int(now()), self._first))

    def _keep_users(self) -> None:
        """Closed loop: so many users, by the form."""
        plan = self._plan
        arriving = plan.users / plan.spawn_rate if plan.shape in ("constant", "soak") else 0.0
        self._window(max(plan.warmup, arriving))
        duration = self._last - self._first
        course = Course(plan.shape, plan.users, plan.spawn_rate, self._first - now(), duration)
        self._crew.shape(FormShape(lambda: course, ends=False))
        self._until(self._first, "warm-up")
        self._until(self._last, "load")

    def _keep_rate(self) -> None:
        """Open loop: so many requests a second, by the form."""
        self._crew.sources()
        self._window(self._plan.warmup)
        wanted = self._plan.rate or 0.0
        for phase, end in (("warm-up", self._first), ("load", self._last)):
            while now() < end:
                share = (now() - self._first) / (self._last - self._first)
                self._have(wanted * level(self._plan.shape, share))
                self._until(min(end, now() + TICK), phase)

    def _search(self) -> None:
        """The highest rate that keeps the limits, each tried for some seconds."""
        plan = self._plan
        self._crew.sources()
        search = Search(plan.slo or Slo(()), BEGIN / self._load.unloaded)
        self._have(search.start)
        self._until(now() + plan.warmup, "warm-up")
        while (rate := search.next()) is not None:
            word, times = ("confirming", LONGER) if search.confirming else ("trying", 1)
            self._steps.append(self._try(search, rate, times * plan.step_seconds, word))
        self._capacity = Capacity(search.rate, search.limited_by)

    def _try(self, search: Search, rate: float, seconds: float, word: str) -> Step:
        """One rate; afterwards nothing is in flight."""
        self._have(rate)
        self._first = math.ceil(now() + TRANSIENT)
        self._last = self._first + math.ceil(seconds)
        self._until(self._last, f"{word} {rate:,.0f}/s")
        self._rate = 0.0
        self._crew.settle()
        summary = self._crew.ledger.summary(self._first, self._last)
        late = summary.cell.late.percentile(0.99)
        completed = sum(self._crew.ledger.completed[second] for second in range(self._first, self._last))
        tried = search.tell(rate, summary, late, completed)
        return Step(rate, self._first, self._last, summary, late, tried.held, tried.limited)

    def _window(self, warmup: float) -> None:
        """Set the seconds that count: the first whole ones after the warm-up."""
        self._first = math.ceil(now() + warmup)
        self._last = self._first + max(1, round(self._plan.duration))
        self._expected = self._last - self._begun

    def _have(self, rate: float) -> None:
        """So many requests a second from now on."""
        if rate != self._rate:
            self._rate = rate
            self._crew.rate(rate)

    def _until(self, end: float, phase: str) -> None:
        """Go on until a time, telling who watches."""
        self._phase = phase
        while (left := end - now()) > 0:
            if self._stop.wait(min(left, TICK)):
                raise StoppedError
            self._crew.check()
            self._tell()

    def _tell(self) -> None:
        """Say how it stands, once a second."""
        if now() - self._told < 1:
            return
        self._told = now()
        self._watch(
            State(
                phase=self._phase,
                elapsed=now() - self._begun,
                duration=self._expected,
                users=0 if self._plan.open_loop else self._crew.users,
                rate=self._rate,
                ledger=self._crew.ledger,
                scrape=self._observer.scrapes[-1] if self._observer.scrapes else None,
                steps=tuple(self._steps),
            )
        )

    def _record(self) -> Record:
        crew, first, last = self._crew, self._first, self._last
        return result(
            self._plan,
            self._load,
            crew.ledger,
            self._observer,
            (first, last),
            [busy for at, busy in crew.busy if first < at - 1 and at <= last + 1],
            begun=self._begun,
            wrong=crew.wrong,
            steps=tuple(self._steps),
            capacity=self._capacity,
            interrupted=self._interrupted,
        )


def run(plan: Plan, watch: Watch) -> Record:
    """Do what the plan says, telling `watch` how it stands about once a second."""
    load = Load(plan)
    load.of(plan.wire)
    with hired(plan, load) as crew, interruptible() as stop:
        return Test(plan, load, crew, stop, watch).run()
