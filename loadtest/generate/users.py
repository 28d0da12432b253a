"""The users that locust runs, one class a wire: each sends, waits for the answer, and sends again.

They are FastHttpUsers that send by connections of ours, for less than half of the time of locust's session: a
request is bytes before the load begins, and nobody follows redirects or keeps cookies.
"""

from __future__ import annotations

from typing import Any, ClassVar

from locust import FastHttpUser, task
from locust.exception import StopTest

from loadtest.errors import LoadTestError
from loadtest.generate.process_load import Station
from loadtest.plan import Wire


class LoadUser(FastHttpUser):
    """Closed loop: one request at a time. In an open loop, a source of requests that waits for none."""

    abstract = True
    wire: ClassVar[Wire]
    # set in each process before there are users
    station: ClassVar[Station]

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        try:
            self._shots = self.station.order(self.wire)
        except LoadTestError as error:
            raise StopTest(str(error)) from None
        self._schedule = self.station.schedule(self._shots) if self.station.plan.open_loop else None

    @task
    def load(self) -> None:
        if self._schedule is not None:
            self._schedule.run()
            return
        sender = self.station.sender
        if not sender.gate.is_set():
            sender.gate.wait()
        sender.send(next(self._shots))


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


class ByWire(LoadUser):
    """The wire that was asked for."""

    @property
    def wire(self) -> Wire:  # type: ignore[override]
        return self.station.plan.wire
