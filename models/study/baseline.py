"""What there is to be had without looking at the rows."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

from models.data.dataset import Dataset


@dataclass(frozen=True)
class MajorityBaseline:
    """What a network reaches that does not look at its rows: it can know the classes' shares, no more."""

    accuracy: float
    loss: float
    rows: int

    def explains(self, accuracy: float | None) -> bool:
        """Whether an accuracy on the test rows is no better, within two standard errors."""
        if accuracy is None:
            return False
        return accuracy <= self.accuracy + 2 * sqrt(self.accuracy * (1 - self.accuracy) / self.rows)


def majority_baseline(data: Dataset) -> MajorityBaseline:
    """Always saying the commonest class, and always giving every class its share."""
    in_test, in_train = data.test.y.bincount(), data.train.y.bincount()
    shares = (in_train[in_train > 0] / in_train.sum()).tolist()
    return MajorityBaseline(
        accuracy=float(in_test.max() / in_test.sum()),
        loss=-sum(share * log(share) for share in shares),
        rows=len(data.test),
    )
