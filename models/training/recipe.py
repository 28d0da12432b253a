"""How a network is trained: the settings of one run, apart from the network and the data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from models.checks import expect, expect_choice

Schedule = Literal["constant", "cosine", "onecycle"]
Precision = Literal["fp32", "bf16"]

# of a one-cycle schedule, the share of the steps that the rate rises for
ONE_CYCLE_RISE_SHARE = 0.25


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Adam (decoupled weight decay), a schedule of its rate, and how long.

    `test_fraction` splits all the rows anew at random; None keeps the data's own split. `shift` moves
    each training image by up to so many pixels either way, `clip` bounds the gradient's norm (0: no bound).
    `threads` is how many compute (0: one a core). It is part of a recipe because sums done by more threads
    round otherwise, and because small networks are many times slower when threads wait for each other.
    """

    epochs: int = 20
    batch: int = 128
    lr: float = 1e-3
    schedule: Schedule = "constant"
    weight_decay: float = 0.0
    clip: float = 0.0
    shift: int = 0
    precision: Precision = "fp32"
    threads: int = 1
    test_fraction: float | None = None

    def __post_init__(self) -> None:
        expect(self.epochs > 0, f"epochs: expected 1 or more, got {self.epochs}")
        expect(self.batch > 0, f"batch: expected 1 or more, got {self.batch}")
        expect(0 < self.lr < math.inf, f"lr: expected a positive number, got {self.lr}")
        expect(self.weight_decay >= 0, f"weight decay: expected 0 or more, got {self.weight_decay}")
        expect(self.clip >= 0, f"clip: expected 0 or more, got {self.clip}")
        expect(self.shift >= 0, f"shift: expected 0 or more pixels, got {self.shift}")
        expect(self.threads >= 0, f"threads: expected 1 or more, or 0 for one a core, got {self.threads}")
        expect_choice("schedule", self.schedule, get_args(Schedule))
        expect_choice("precision", self.precision, get_args(Precision))
        expect(
            self.test_fraction is None or 0 < self.test_fraction < 1,
            f"test fraction: expected a number between 0 and 1, got {self.test_fraction}",
        )

    def lr_at(self, step: int, steps: int) -> float:
        """The rate of one step out of `steps`: a function of these alone, so that a resumed run agrees."""
        if self.schedule == "constant":
            return self.lr
        if self.schedule == "cosine":
            return self.lr * 0.5 * (1 + math.cos(math.pi * step / steps))
        rise = max(1, round(ONE_CYCLE_RISE_SHARE * steps))
        if step < rise:
            return self.lr * (0.04 + 0.96 * 0.5 * (1 - math.cos(math.pi * step / rise)))
        return self.lr * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as they are kept in a checkpoint."""
        return asdict(self)
