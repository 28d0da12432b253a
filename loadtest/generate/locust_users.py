"""Locust's classes of the load: one user class per wire format, and the shape that sets the number of users.

A user only starts and stops its part of the load, which the callbacks of `ProcessLoad` generate. So a request
takes far less CPU time than with locust's HTTP session, and locust's options, web page and several processes
still work.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, ClassVar

import gevent
from locust import LoadTestShape, User, task
from locust.exception import StopTest

from turnpike.loadtest.errors import LoadTestError
from turnpike.loadtest.generate.load_shape import LoadProfile
from turnpike.loadtest.generate.process_load import ProcessLoad
from turnpike.loadtest.plan import Wire

# seconds between the moments at which a user notices that locust wants it to end
TASK_SECONDS = 0.5


class LoadUser(User):
    """Closed loop: sends one request at a time. Open loop: has requests sent on a schedule."""

    abstract = True
    wire: ClassVar[Wire]
    # set in each process before its users start
    process_load: ClassVar[ProcessLoad]

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        try:
            self._user = self.process_load.new_user(self.wire)
        except LoadTestError as error:
            raise StopTest(str(error)) from None

    def on_start(self) -> None:
        self._user.start()

    @task
    def load(self) -> None:
        gevent.sleep(TASK_SECONDS)

    def on_stop(self) -> None:
        self._user.stop()


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
