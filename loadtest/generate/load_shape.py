"""Load shapes: how the number of users, or the rate, changes over a test.

Imports neither locust nor gevent, because importing locust replaces parts of the standard library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from turnpike.loadtest.plan import Shape

# load before and after a spike, as a share of the load in the spike
SPIKE_BASE = 0.25
# begin and end of the spike, as shares of the duration
SPIKE_SPAN = 0.45, 0.55
STEP_COUNT = 5


def load_factor(shape: Shape, time: float) -> float:
    """Share (0 to 1) of the full load at a time, which is 0 at the start of the test and 1 at its end."""
    time = min(max(time, 0.0), 1.0)
    match shape:
        case "ramp":
            return time
        case "spike":
            return 1.0 if SPIKE_SPAN[0] <= time < SPIKE_SPAN[1] else SPIKE_BASE
        case "step":
            return min(int(time * STEP_COUNT) + 1, STEP_COUNT) / STEP_COUNT
    return 1.0


@dataclass(frozen=True, slots=True)
class LoadProfile:
    """How many users there are at each time of a closed loop; times are in seconds."""

    shape: Shape
    users: int  # at full load
    spawn_rate: float  # users started or stopped per second
    warmup: float
    duration: float  # after the warm-up

    def progress(self, elapsed: float) -> float:
        """Time since the warm-up as a share of the duration: negative in the warm-up, 1 at the end."""
        return (elapsed - self.warmup) / self.duration

    def users_at(self, elapsed: float) -> tuple[int, float]:
        """Number of users, and how many may start or stop per second."""
        users = max(1, math.ceil(self.users * load_factor(self.shape, self.progress(elapsed))))
        # the other shapes say themselves how fast users start and stop
        return users, self.spawn_rate if self.shape in ("constant", "soak") else self.users
