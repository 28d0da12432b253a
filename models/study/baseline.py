"""The baseline of a network that does not look at its rows and always predicts the most frequent class."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

from turnpike.models.data.dataset import Dataset


@dataclass(frozen=True)
class MajorityBaseline:
    """The accuracy and loss that need no more knowledge than the class frequencies.

    Attributes:
        accuracy: Accuracy on the test rows of always predicting the most frequent class.
        loss: Cross-entropy of always predicting the class frequencies of the training rows.
        rows: Number of test rows.
    """

    accuracy: float
    loss: float
    rows: int

    def accounts_for(self, accuracy: float | None) -> bool:
        """Whether a test accuracy is no better than the baseline, within two standard errors."""
        if accuracy is None:
            return False
        return accuracy <= self.accuracy + 2 * sqrt(self.accuracy * (1 - self.accuracy) / self.rows)


def majority_baseline(data: Dataset) -> MajorityBaseline:
    """Compute the baseline of a data set."""
    test_counts, train_counts = data.test.y.bincount(), data.train.y.bincount()
    frequencies = (train_counts[train_counts > 0] / train_counts.sum()).tolist()
    return MajorityBaseline(
        accuracy=float(test_counts.max() / test_counts.sum()),
        loss=-sum(frequency * log(frequency) for frequency in frequencies),
        rows=len(data.test),
    )
