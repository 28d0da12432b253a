"""Simulates a day of traffic against the autoscaler of Ray Serve, with several values of --replica-requests.

    PYTHON -m benchmarks.scaling.autoscaler_simulation [--capacity N] [--peak N] [--picture FILE]

PYTHON is the interpreter of an environment with turnpike and Ray. Ray's own policy decides. It is called
once a simulated second, with the options that `service.ray.application` gives to Ray.
"""

from __future__ import annotations

import argparse
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from ray.serve import autoscaling_policy
from ray.serve.config import AutoscalingConfig, AutoscalingContext

from turnpike.service.config.settings import Settings
from turnpike.service.ray.application import BURST, deployment_options

DAY_SECONDS = 24 * 3600
# a replica answers its first request so long after Ray has decided to start it
START_SECONDS = 4
# at 15:00, the traffic doubles within ten seconds, for half an hour
JUMP_AT, JUMP_SECONDS, JUMP_RISE_SECONDS, JUMP_FACTOR = 15 * 3600, 1800, 10, 2.0
# at 10:00, a node with an eighth of the replicas is lost
LOSS_AT, LOST_SHARE = 10 * 3600, 1 / 8
# requests that wait longer count as late
LATE_SECONDS = 0.1
# a replica that answers this share of its capacity counts as full
FULL = 0.99
TARGETS = (2, 4, 8, 16, 32)


@dataclass
class Day:
    """What happened on a day."""

    requests: float = 0
    refused: float = 0
    late: float = 0
    worst_wait: float = 0
    replica_seconds: float = 0
    useful_seconds: float = 0
    # requests per second and replicas, once a minute
    moments: list[tuple[float, int]] = field(default_factory=list)


class Autoscaler:
    """Ray's policy with our options, and the average of the last seconds that Ray gives to it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._config = AutoscalingConfig(**options)
        self._seen: deque[float] = deque(maxlen=round(self._config.look_back_period_s))
        self._state: dict[str, Any] = {}

    def decide(self, now: float, running: int, wanted: int, ongoing: float) -> int:
        """The number of replicas that Ray wants from now on."""
        self._seen.append(ongoing)
        context = AutoscalingContext(
            deployment_id=None,
            deployment_name="turnpike",
            app_name="turnpike",
            current_num_replicas=running,
            target_num_replicas=wanted,
            running_replicas=[],
            total_num_requests=sum(self._seen) / len(self._seen),
            total_queued_requests=0,
            aggregated_metrics=None,
            raw_metrics=None,
            capacity_adjusted_min_replicas=self._config.min_replicas,
            capacity_adjusted_max_replicas=self._config.max_replicas,
            policy_state=self._state,
            last_scale_up_time=None,
            last_scale_down_time=None,
            current_time=now,
            config=self._config,
        )
        with mock.patch.object(autoscaling_policy.time, "time", return_value=now):
            desired, self._state = self._config.policy.get_policy()(context)
        return max(self._config.min_replicas, min(self._config.max_replicas, round(desired)))


def traffic(peak: float) -> Iterator[float]:
    """Requests per second, for every second of a day: low at 03:00, high at 15:00, with a jump."""
    for second in range(DAY_SECONDS):
        wave = 0.6 - 0.4 * math.cos(2 * math.pi * (second - 3 * 3600) / DAY_SECONDS)
        into = second - JUMP_AT
        jump = min(1.0, into / JUMP_RISE_SECONDS) if 0 <= into < JUMP_SECONDS else 0.0
        yield peak * wave * (1 + (JUMP_FACTOR - 1) * jump)


def simulate(target: int, capacity: float, half: float, peak: float) -> Day:
    """A day with replicas of which each answers capacity * n / (half + n) requests/s of n clients."""
    largest = math.ceil(2 * JUMP_FACTOR * peak / capacity)
    settings = Settings(engine="ray", replica_requests=target, max_replicas=largest)
    options = deployment_options(settings)
    autoscaler = Autoscaler(options["autoscaling_config"])
    # start with enough of them, as at midnight of any day
    running = wanted = math.ceil(next(traffic(peak)) / capacity / 0.8)
    starting: deque[tuple[int, int]] = deque()
    waiting = 0.0
    day = Day()
    for second, rate in enumerate(traffic(peak)):
        while starting and starting[0][0] <= second:
            running += starting.popleft()[1]
        if second == LOSS_AT:
            lost = math.ceil(running * LOST_SHARE)
            running -= lost
            starting.append((second + START_SECONDS, lost))
        # answer
        limit = running * capacity
        answered = min(waiting + rate, limit)
        waiting += rate - answered
        kept = running * BURST * target + settings.queue
        refused = max(0.0, waiting - kept)
        waiting -= refused
        busy = min(FULL, answered / limit)
        # by the curve of `--half`, but no more than Ray sends to a replica
        ongoing = running * min(half * busy / (1 - busy), BURST * target) + waiting
        wait = ongoing / limit
        # count
        day.requests += rate
        day.refused += refused
        day.late += answered if wait > LATE_SECONDS else 0
        day.worst_wait = max(day.worst_wait, wait)
        day.replica_seconds += running
        day.useful_seconds += answered / capacity
        if second % 60 == 0:
            day.moments.append((rate, running))
        # scale
        desired = autoscaler.decide(second, running, wanted, ongoing)
        if desired > wanted:
            starting.append((second + START_SECONDS, desired - wanted))
        elif desired < wanted:
            running -= min(running - 1, wanted - desired)
        wanted = desired
    return day


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--capacity", type=float, default=3900, help="requests/s of a replica, at most (default: %(default)s)"
    )
    parser.add_argument(
        "--half",
        type=float,
        default=3.0,
        help="requests at once with which a replica answers half as many (default: %(default)s)",
    )
    parser.add_argument(
        "--peak", type=float, default=300_000, help="requests/s in the afternoon (default: %(default)s)"
    )
    parser.add_argument("--picture", type=Path, help="write a picture of the days to this file")
    arguments = parser.parse_args()
    print("| --replica-requests | replica hours | busy | late | refused | longest wait |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    days = {}
    for target in TARGETS:
        day = days[target] = simulate(target, arguments.capacity, arguments.half, arguments.peak)
        cells = [
            f"{day.replica_seconds / 3600:,.0f}",
            f"{day.useful_seconds / day.replica_seconds:.0%}",
            f"{day.late / day.requests:.2%}",
            f"{day.refused / day.requests:.3%}",
            f"{day.worst_wait * 1000:,.0f} ms",
        ]
        print(f"| {target} | {' | '.join(cells)} |", flush=True)
    if arguments.picture is not None:
        draw(days, arguments.capacity, arguments.picture)


def draw(days: dict[int, Day], capacity: float, path: Path) -> None:
    """A panel for each day: its replicas, and those that would have been just enough."""
    from matplotlib import pyplot

    hours = [minute / 60 for minute in range(DAY_SECONDS // 60)]
    figure, panels = pyplot.subplots(1, len(days), figsize=(12, 3), sharey=True, layout="constrained")
    for axes, (target, day) in zip(panels, days.items(), strict=True):
        axes.fill_between(
            hours, [rate / capacity for rate, _ in day.moments], color="0.8", label="just enough"
        )
        axes.plot(hours, [running for _, running in day.moments], linewidth=0.8, label="running")
        axes.set(title=f"--replica-requests {target}", xlabel="hour", xlim=(0, 24), ylim=(0, None))
    panels[0].set_ylabel("replicas")
    panels[0].legend(loc="upper left")
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
