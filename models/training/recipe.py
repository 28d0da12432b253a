"""The settings of a training run that do not depend on network or data: optimizer, schedule, epochs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from turnpike.models.checks import expect, expect_choice

Schedule = Literal["constant", "cosine", "onecycle"]
Precision = Literal["fp32", "bf16"]

# share of the steps during which a one-cycle schedule raises the learning rate
ONE_CYCLE_RISE_SHARE = 0.25


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """AdamW, a schedule of its learning rate, and the number of epochs.

    Attributes:
        epochs: Passes over the training rows.
        batch: Rows per step.
        lr: Learning rate; the highest one if the schedule changes it.
        schedule: "constant", "cosine" or "onecycle".
        weight_decay: Decoupled weight decay of matrices; vectors such as biases have none.
        clip: Upper bound of the gradient's norm; 0 for none.
        gate_budget: What open gates cost: this many times the sum over the gated layers of their mean T is
            added to the loss; 0 for no penalty.
        shift: Move each training image by up to this many pixels in both directions.
        distort: Rotate, shear, widen and heighten each training image at random, by up to this share of its
            size.
        thickness: Make the lines of each training image thicker or thinner at random: its values, divided
            by the highest, are raised to a power between e^-thickness and e^thickness.
        precision: "fp32", or "bf16" for mixed precision.
        threads: Threads that compute; 0 for one per core. Part of the recipe because the number of threads
            changes the rounding of sums, and because small networks are many times slower when threads
            wait for each other.
        class_weights: Weight the loss of each row so that all classes count the same, however rare they
            are, and choose the best network by balanced accuracy.
        test_fraction: Split all rows at random, with this share as test rows; None keeps the data set's
            own split.
    """

    epochs: int = 20
    batch: int = 128
    lr: float = 1e-3
    schedule: Schedule = "constant"
    weight_decay: float = 0.0
    clip: float = 0.0
    gate_budget: float = 0.0
    shift: int = 0
    distort: float = 0.0
    thickness: float = 0.0
    precision: Precision = "fp32"
    threads: int = 1
    class_weights: bool = False
    test_fraction: float | None = None

    def __post_init__(self) -> None:
        expect(self.epochs > 0, f"epochs: expected 1 or more, got {self.epochs}")
        expect(self.batch > 0, f"batch: expected 1 or more, got {self.batch}")
        expect(0 < self.lr < math.inf, f"lr: expected a positive number, got {self.lr}")
        expect(self.weight_decay >= 0, f"weight decay: expected 0 or more, got {self.weight_decay}")
        expect(self.clip >= 0, f"clip: expected 0 or more, got {self.clip}")
        expect(0 <= self.gate_budget < math.inf, f"gate budget: expected 0 or more, got {self.gate_budget}")
        expect(self.shift >= 0, f"shift: expected 0 or more pixels, got {self.shift}")
        expect(0 <= self.distort < 1, f"distort: expected 0 or more, below 1, got {self.distort}")
        expect(0 <= self.thickness < math.inf, f"thickness: expected 0 or more, got {self.thickness}")
        expect(self.threads >= 0, f"threads: expected 1 or more, or 0 for one per core, got {self.threads}")
        expect_choice("schedule", self.schedule, get_args(Schedule))
        expect_choice("precision", self.precision, get_args(Precision))
        expect(
            self.test_fraction is None or 0 < self.test_fraction < 1,
            f"test fraction: expected a number between 0 and 1, got {self.test_fraction}",
        )

    @property
    def changes_images(self) -> bool:
        """Whether training images are moved, distorted or thickened at random."""
        return bool(self.shift or self.distort or self.thickness)

    def lr_at(self, step: int, steps: int) -> float:
        """Return the learning rate of one of `steps` steps.

        It depends on nothing else, so a resumed run uses the same rates.
        """
        if self.schedule == "constant":
            return self.lr
        if self.schedule == "cosine":
            return self.lr * 0.5 * (1 + math.cos(math.pi * step / steps))
        rise_steps = max(1, round(ONE_CYCLE_RISE_SHARE * steps))
        if step < rise_steps:
            return self.lr * (0.04 + 0.96 * 0.5 * (1 - math.cos(math.pi * step / rise_steps)))
        return self.lr * 0.5 * (1 + math.cos(math.pi * (step - rise_steps) / max(1, steps - rise_steps)))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values, as they are saved in a checkpoint."""
        return asdict(self)


# for tables with few rows, on which a preset's own settings take few steps and learn the rows by heart
SMALL_TABLE_BATCH = 16
SMALL_TABLE_WEIGHT_DECAY = 1.0
# for other tables. AdamW decays the weights at each step, so their decay per epoch is this many times the
# learning rate, as in a small table with 800 training rows. The limit is for tables with few steps per epoch.
TABLE_WEIGHT_DECAY_PER_EPOCH = 50.0
MAX_TABLE_WEIGHT_DECAY = 3.0
# epochs whose mean validation score chooses the best network of a table: a single score of a few hundred rows
# is often high by chance, mostly in an early epoch
TABLE_SCORED_EPOCHS = 3

# of the networks in Figure 1 of "Training Very Deep Networks"
FIGURE_1_RECIPE = Recipe(epochs=10, batch=100, lr=1e-3, clip=1.0)
