"""Compares the answers of a cut graph with those of the whole one, on rows of data."""

from __future__ import annotations

from dataclasses import dataclass

from turnpike.export.measure.accuracy import judge
from turnpike.export.measure.run_rows import output_for_rows
from turnpike.export.network import Array, Rows
from turnpike.service.artifact.runtime import Runtime


@dataclass(frozen=True)
class AnswerQuality:
    """How good the answers of a graph are.

    Attributes:
        agreement: The share of answers whose highest class is that of the whole graph; None if the output has
            no classes.
        accuracy: The share of right answers, or R2 of numbers; None if the true answers are not known.
    """

    agreement: float | None
    accuracy: float | None


class AnswerComparison:
    """The answers of the whole graph on some rows, to compare those of other graphs with.

    Attributes:
        accuracy_whole: The same of the whole graph.
    """

    def __init__(self, whole_runtime: Runtime, output: str, rows: Rows) -> None:
        self._output, self._rows = output, rows
        self._answers = output_for_rows(whole_runtime, rows, output)
        self.accuracy_whole = self._accuracy(self._answers)

    @property
    def is_judged(self) -> bool:
        """Whether answers can be told better or worse."""
        return self.has_classes or self.accuracy_whole is not None

    @property
    def has_classes(self) -> bool:
        """Whether the output has a number for each class, so that there is a highest one."""
        return self._answers.ndim >= 2 and self._answers.shape[-1] >= 2 and self._answers.dtype.kind == "f"

    def quality_of(self, runtime: Runtime) -> AnswerQuality:
        """Run another graph on the rows, and compare its answers."""
        answers = output_for_rows(runtime, self._rows, self._output)
        is_same = answers.argmax(-1) == self._answers.argmax(-1) if self.has_classes else None
        agreement = None if is_same is None else float(is_same.mean())
        return AnswerQuality(agreement, self._accuracy(answers))

    def _accuracy(self, answers: Array) -> float | None:
        score = judge(answers, self._rows)
        return None if score is None else score.accuracy


def points_lost(comparison: AnswerComparison, quality: AnswerQuality) -> float:
    """Points of accuracy or R2 that were lost, in percent; of agreement if the classes are not known."""
    if comparison.accuracy_whole is not None and quality.accuracy is not None:
        return 100 * (comparison.accuracy_whole - quality.accuracy)
    if quality.agreement is None:
        raise ValueError("expected an output with a number for each class, or rows with numbers to predict")
    return 100 * (1 - quality.agreement)
