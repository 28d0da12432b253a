"""Compares the answers of a cut graph with those of the whole one, on rows of data."""

from __future__ import annotations

from dataclasses import dataclass

from export.measure.accuracy import are_probabilities, is_classification, score
from export.measure.run_rows import output_for_rows
from export.source import Array, Rows
from service.artifact.runtime import Runtime


@dataclass(frozen=True)
class Agreement:
    """The share of answers with the same highest class as before, and the accuracy.

    Each is None if it is not known: the first if the output has no classes, the second if the rows have none.
    """

    same: float | None
    accuracy: float | None


class AnswerComparison:
    """The answers of the whole graph on some rows, to compare others with.

    Attributes:
        accuracy: The share of right answers of the whole graph; None if the classes are not known.
    """

    def __init__(self, whole: Runtime, output: str, rows: Rows) -> None:
        self._output, self._rows = output, rows
        self._answers = output_for_rows(whole, rows, output)
        self.accuracy = self._accuracy(self._answers)

    @property
    def has_classes(self) -> bool:
        """Whether the output has a number for each class, so that there is a highest one."""
        return self._answers.ndim >= 2 and self._answers.shape[-1] >= 2 and self._answers.dtype.kind == "f"

    def of(self, cut: Runtime) -> Agreement:
        """Compare another graph."""
        answers = output_for_rows(cut, self._rows, self._output)
        same = float((answers.argmax(-1) == self._answers.argmax(-1)).mean()) if self.has_classes else None
        return Agreement(same, self._accuracy(answers))

    def _accuracy(self, answers: Array) -> float | None:
        classes = self._rows.classes
        if classes is None or not is_classification(answers, classes):
            return None
        return score(answers, classes, probabilities=are_probabilities(answers)).accuracy


def points_lost(before: AnswerComparison, after: Agreement) -> float:
    """Points of accuracy that were lost, in percent; points of agreement if the classes are not known."""
    if before.accuracy is not None and after.accuracy is not None:
        return 100 * (before.accuracy - after.accuracy)
    if after.same is None:
        raise ValueError("expected an output with a number for each class")
    return 100 * (1 - after.same)
