"""How a load goes up and down over a test: the share of its users, or of its rate, at each time."""

from __future__ import annotations

from loadtest.plan import Form

# of a spike: what goes before and after it, and where it begins and ends
BASE = 0.25
SPIKE = 0.45, 0.55
STEPS = 5


def level(form: Form, time: float) -> float:
    """The share (0 to 1) of the load at a share of the time: 0 at the beginning, 1 at the end."""
    time = min(max(time, 0.0), 1.0)
    match form:
        case "ramp":
            return time
        case "spike":
            return 1.0 if SPIKE[0] <= time < SPIKE[1] else BASE
        case "step":
            return min(int(time * STEPS) + 1, STEPS) / STEPS
    return 1.0
