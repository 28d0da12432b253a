"""Forms as locust knows them: how many users there are at each time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from locust import LoadTestShape

from loadtest.generate.forms import level
from loadtest.plan import Form


@dataclass(frozen=True, slots=True)
class Course:
    """So many users at most, by a form; times in seconds."""

    form: Form
    users: int
    spawn_rate: float
    warmup: float
    duration: float


class FormShape(LoadTestShape):
    """Has as many users as a course says; ends the test after it, where that is wanted."""

    use_common_options = True

    def __init__(self, course: Callable[[], Course], *, ends: bool) -> None:
        """`course` is asked again and again, since it may be set on a web page after this was made."""
        self._course, self._ends = course, ends
        self.reset_time()

    def reset_time(self) -> None:
        self.start_time = perf_counter()

    def tick(self) -> tuple[int, float] | None:
        course = self._course()
        share = (perf_counter() - self.start_time - course.warmup) / course.duration
        if self._ends and share >= 1:
            return None
        users = max(1, math.ceil(course.users * level(course.form, share)))
        # a form says itself how fast users come and go
        return users, course.spawn_rate if course.form in ("constant", "soak") else course.users
