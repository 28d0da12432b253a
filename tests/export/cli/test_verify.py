"""What `turnpike verify` prints about its decision."""

from __future__ import annotations

import numpy as np

from turnpike.export.cli.verify import identity_lines
from turnpike.export.identity.decision import Decision, Verdict
from turnpike.export.identity.folded_constants import FoldedConstant


def test_the_same_function() -> None:
    decision = Decision(Verdict.IDENTICAL, ("output", "gate"), runs=3, error_bound=3e-30)
    assert list(identity_lines(decision, 12)) == [
        "the same function of every input, in exact arithmetic, in 2 outputs, "
        "at 3 sets of sizes (chance of error: 3e-30)"
    ]


def test_folded_constants_are_listed() -> None:
    folded = (FoldedConstant("sin", np.zeros(1), 1.0), FoldedConstant("cos", np.zeros(1), 0.5))
    decision = Decision(Verdict.IDENTICAL, ("output",), folded=folded, error_bound=3e-30)
    assert list(identity_lines(decision, 12))[1:] == [
        "up to constants that torch.onnx computed, within 2 units in the last place: sin, cos"
    ]


def test_without_a_decision_the_batches_count() -> None:
    decision = Decision(Verdict.NOT_DECIDED, reason="top = TopK: an operator that is not known here")
    assert list(identity_lines(decision, 12)) == [
        "not decided for every input: top = TopK: an operator that is not known here",
        "it agrees on 12 batches",
    ]
