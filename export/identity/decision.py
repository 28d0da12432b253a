"""The result of a decision, and what it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from turnpike.export.identity.folded_constants import FoldedConstant

# the largest probability of calling different functions identical
MAX_ERROR_BOUND = 1e-18


class Verdict(StrEnum):
    """The results of a decision."""

    IDENTICAL = "identical"
    DIFFERENT = "different"
    NOT_DECIDED = "not decided"


@dataclass(frozen=True)
class InputShape:
    """The dtype and the sizes of an input."""

    dtype: np.dtype[np.generic]
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class HiddenOutput:
    """What an output stands for that the network itself does not return.

    It is scale * value + offset, of a value of the reference.

    Attributes:
        value: The name of the node of the program, or of the value of the other graph. None for a value
            inside a loop: it is compared with that of the trusted graph, and so is one of another name.
        row_axis: The axis of the value that is axis 0 of the output.
        scale: 1 for the value itself, -1 for one minus it.
        offset: A number to add.
    """

    value: str | None
    row_axis: int = 0
    scale: float = 1.0
    offset: float = 0.0

    @property
    def is_moved(self) -> bool:
        """Whether the output is another array than the value."""
        return (self.row_axis, self.scale, self.offset) != (0, 1.0, 0.0)


@dataclass(frozen=True)
class LeverDecision:
    """Whether the levers of a graph do what is said of them.

    Identical: each lever moves the logit of its own gate and nothing else, and a layer whose gates are closed
    returns its input.

    Attributes:
        verdict: The verdict about all of them.
        moved: The gates that their levers move.
        carried: The gates of the layers that return their input when they are closed.
        different: The gates whose levers or layers are not as they should be.
        reason: What is wrong with the first of these, or why nothing was decided.
        undecided: A sentence for each gate of which a part is not decided.
        error_bound: The probability that a fault is called identical.
    """

    verdict: Verdict
    moved: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    different: tuple[str, ...] = ()
    reason: str | None = None
    undecided: tuple[str, ...] = ()
    error_bound: float = 1.0

    def __str__(self) -> str:
        if self.verdict is Verdict.IDENTICAL:
            return (
                f"{len(self.moved)} gates move by their levers alone, {len(self.carried)} layers carry their "
                f"input when closed; chance of error {self.error_bound:.0e}"
            )
        return f"{self.verdict}: {self.reason or '; '.join(self.undecided)}"


class RowVerdict(StrEnum):
    """The results of a decision about rows."""

    INDEPENDENT = "independent"
    COUPLED = "coupled"
    NOT_DECIDED = "not decided"


@dataclass(frozen=True)
class RowDecision:
    """Whether rows depend on each other.

    Attributes:
        verdict: The result.
        output: The first output that depends on other rows.
        reason: Why nothing was decided.
        error_bound: The probability that coupled rows are called independent.
    """

    verdict: RowVerdict
    output: str | None = None
    reason: str | None = None
    error_bound: float = 1.0

    def __str__(self) -> str:
        if self.verdict is RowVerdict.INDEPENDENT:
            return f"each row is answered alone; chance of error {self.error_bound:.0e}"
        return f"{self.verdict}: {self.output or self.reason}"


@dataclass(frozen=True)
class Decision:
    """The result, with what led to it.

    Attributes:
        verdict: Whether graph and reference are the same function.
        compared: The outputs that were compared.
        different: Those that differ. Nothing was compared if the interfaces do.
        first_difference: The first node of the graph that differs from the reference's value of its name.
        reason: Why nothing was decided.
        folded: Constants that the exporter computed, which were taken from the graph.
        runs: The number of sets of sizes that were run.
        error_bound: The probability that different functions are called identical.
        levers: The decision about the levers; None if the graph has none, or if it is another function.
        rows: The decision about the rows of a batch; None if the graph may be another function.
    """

    verdict: Verdict
    compared: tuple[str, ...] = ()
    different: tuple[str, ...] = ()
    first_difference: str | None = None
    reason: str | None = None
    folded: tuple[FoldedConstant, ...] = ()
    runs: int = 1
    error_bound: float = 1.0
    levers: LeverDecision | None = None
    rows: RowDecision | None = None

    @property
    def coupled(self) -> str | None:
        """An output whose rows depend on each other."""
        return None if self.rows is None else self.rows.output

    def __str__(self) -> str:
        if self.verdict is Verdict.NOT_DECIDED:
            return f"not decided: {self.reason}"
        if self.verdict is Verdict.DIFFERENT and not self.compared:
            return f"different: {', '.join(self.different)}"
        if self.verdict is Verdict.DIFFERENT:
            where = self.first_difference or "a value without a name"
            names = ", ".join(self.different[:3])
            return f"different: {names} ({len(self.different)} outputs), first at {where}"
        rounded = sum(constant.ulp > 0 for constant in self.folded)
        folded = f", up to {rounded} folded constants" if rounded else ""
        return f"identical in {len(self.compared)} outputs{folded}; chance of error {self.error_bound:.0e}"
