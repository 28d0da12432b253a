"""What `turnpike verify` prints about its decision."""

from __future__ import annotations

import numpy as np

from turnpike.export.cli.verify import identity_lines, identity_summary
from turnpike.export.identity.decision import Decision, LeverDecision, RowDecision, RowVerdict, Verdict
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


def test_levers_and_rows_are_decided_too() -> None:
    undecided = tuple(f"gate{n}: clipped" for n in range(5))
    levers = LeverDecision(Verdict.NOT_DECIDED, ("a", "b"), ("a",), undecided=undecided)
    rows = RowDecision(RowVerdict.COUPLED, "output")
    decision = Decision(Verdict.IDENTICAL, ("output",), error_bound=3e-30, levers=levers, rows=rows)
    assert list(identity_lines(decision, 12))[1:] == [
        "gates that their levers move alone: 2; layers that carry their input when closed: 1",
        "  not decided: gate0: clipped",
        "  not decided: gate1: clipped",
        "  not decided: gate2: clipped",
        "  and 2 more: --json lists all",
        "coupled: output",
    ]
    summary = identity_summary(decision)
    assert summary["levers"] == {"moved": ("a", "b"), "carried": ("a",), "undecided": undecided}
    assert summary["rows"] == "coupled"


def test_without_a_decision_the_batches_count() -> None:
    decision = Decision(Verdict.NOT_DECIDED, reason="top = TopK: an operator that is not known here")
    assert list(identity_lines(decision, 12)) == [
        "not decided for every input: top = TopK: an operator that is not known here",
        "it agrees on 12 batches",
    ]
