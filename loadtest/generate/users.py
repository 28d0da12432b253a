"""Locust's classes of the load: one user class per wire format, and the shape that sets the number of users.

The users send through our own connections, which takes less than half the time of locust's HTTP session:
requests are prepared as bytes before the load begins, and there are no redirects or cookies to handle.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, ClassVar

from locust import FastHttpUser, LoadTestShape, task
from locust.exception import StopTest

from loadtest.errors import LoadTestError
from loadtest.generate.load_shape import LoadProfile
from loadtest.generate.process_load import ProcessLoad
from loadtest.plan import Wire


class LoadUser(FastHttpUser):
    """Closed loop: sends one request at a time. Open loop: runs a schedule that does not wait for answers."""

    abstract = True
    wire: ClassVar[Wire]
    # set in each process before its users start
    process_load: ClassVar[ProcessLoad]

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        try:
            self._requests = self.process_load.request_cycle(self.wire)
        except LoadTestError as error:
            raise StopTest(str(error)) from None
        open_loop = self.process_load.plan.open_loop
        self._schedule = self.process_load.new_schedule(self._requests) if open_loop else None

    @task
    def load(self) -> None:
        if self._schedule is not None:
            self._schedule.run()
            return
        sender = self.process_load.sender
        if not sender.may_send.is_set():
            sender.may_send.wait()
        sender.send(next(self._requests))


class PredictJson(LoadUser):
    wire = "json"


class PredictBinary(LoadUser):
    wire = "binary"


class PredictV1(LoadUser):
    wire = "v1"


class Gates(LoadUser):
    wire = "gates"


class Lesion(LoadUser):
    wire = "lesion"


class Mixed(LoadUser):
    wire = "mixed"


class WireUser(LoadUser):
    """A user of the wire format that `--wire` names."""

    @property
    def wire(self) -> Wire:  # type: ignore[override]
        return self.process_load.plan.wire


class LocustShape(LoadTestShape):
    """Tells locust how many users there are at each time, by a load profile."""

    use_common_options = True

    def __init__(self, profile: Callable[[], LoadProfile], *, ends: bool) -> None:
        """Take a profile.

        Args:
            profile: Called at every tick, because the options may change on locust's web page after this.
            ends: Whether the test ends with the profile.
        """
        self._profile, self._ends = profile, ends
        self.reset_time()

    def reset_time(self) -> None:
        self.start_time = perf_counter()

    def tick(self) -> tuple[int, float] | None:
        profile, elapsed = self._profile(), perf_counter() - self.start_time
        if self._ends and profile.progress(elapsed) >= 1:
            return None
        return profile.users_at(elapsed)
