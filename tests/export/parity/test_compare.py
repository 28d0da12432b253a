"""Trials with sides that are made up: what each of them has to answer for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from export.errors import ParityError, UntraceableError
from export.parity.batches import LARGE_VALUES, ProofBatch
from export.parity.compare import PERTURBATION, REFERENCE_ROWS, BatchComparison
from export.parity.error_stats import EPS
from export.parity.reference import RejectedError, TensorValues
from export.parity.verdict import ErrorTable
from export.source import Array
from service.artifact.runtime import Tensor

GATE, OUTPUT = "layer00.transform_gate", "y"

Spoil = Callable[[TensorValues, int], None]


def formula(x: Array) -> TensorValues:
    """T = 1 / (1 + e^-x) and y = T x."""
    with np.errstate(over="ignore"):
        t = 1 / (1 + np.exp(-x))
    return {GATE: t, OUTPUT: t * x}


@dataclass
class Truth:
    """A network that is a formula."""

    reference: str = "a formula"
    warnings: tuple[str, ...] = ()
    noise: float = 0.0
    forgets: bool = False
    moody: bool = False
    refuses: int = 0

    def __post_init__(self) -> None:
        self.asked: list[tuple[str, int, bool]] = []
        self.shaken: list[Array] = []

    def own(self, batch: ProofBatch) -> TensorValues:
        if batch.rows == self.refuses:
            raise RejectedError("too few")
        self.asked.append((batch.name, batch.rows, batch.small))
        found = formula(batch.arrays["x"].astype(np.float64))
        # rounding as of single precision, without its luck
        error = 1 + EPS * np.cos(np.arange(batch.rows))[:, None] / 4
        found = {name: (value * error).astype(np.float32) for name, value in found.items()}
        if self.moody:
            found[OUTPUT] = found[OUTPUT] + np.float32(len(self.asked))
        return found if batch.small else {OUTPUT: found[OUTPUT]}

    def wide(self, batch: ProofBatch) -> TensorValues:
        x = batch.arrays["x"]
        if x.dtype == np.float64:
            self.shaken.append(x)
        self.asked.append((f"the truth of {batch.name}", batch.rows, batch.small))
        found = formula(x.astype(np.float64))
        return found if batch.small else {OUTPUT: found[OUTPUT]}

    def expect_stateless(self, batch: ProofBatch) -> None:
        self.asked.append(("state", batch.rows, batch.small))


class Served:
    """An open model that is the same formula, spoilt by a test."""

    provider = "Formula"
    inputs = (Tensor("x", "float32", ("batch", 4)),)

    def __init__(self, spoil: Spoil) -> None:
        self.spoil = spoil
        self.runs = 0

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        self.runs += 1
        wide = formula(feeds["x"].astype(np.float64))
        found = {name: value.astype(np.float32) for name, value in wide.items()}
        self.spoil(found, self.runs)
        return [found[name] for name in outputs]


def batch(rows: int, name: str = "", *, factor: float = 1.0, **settings: bool) -> ProofBatch:
    x = np.random.default_rng(0).standard_normal((rows, 4)) * factor
    return ProofBatch(name or f"{rows} rows", rows, {"x": x.astype(np.float32)}, {"x": 0}, **settings)


def trial(
    spoil: Spoil = lambda found, runs: None, *, moody: bool = False, refuses: int = 0
) -> tuple[BatchComparison, ErrorTable, Truth]:
    truth, tally = Truth(moody=moody, refuses=refuses), ErrorTable({GATE: "gate", OUTPUT: "output"}, 1)
    return BatchComparison(truth, [Served(spoil)], ["x"], tally, frozenset()), tally, truth


def run(*batches: ProofBatch, spoil: Spoil = lambda found, runs: None) -> str:
    """What is said of the first tensor that broke, after all batches, or nothing."""
    made, tally, _ = trial(spoil)
    for one in batches:
        made.run(one)
    broken = tally.broken(0.0)
    return "" if broken is None else broken.says


FIRST, LAST = batch(1, shared=True), batch(128, shared=True, small=False)


def only_of(size: int, row: int, *names: str) -> Spoil:
    """Spoil one row of batches of one size."""

    def spoil(found: TensorValues, runs: int) -> None:
        for name in names:
            if len(found[name]) == size:
                found[name][row] += np.float32(1e-3)

    return spoil


def test_a_model_that_is_the_network_holds() -> None:
    """In small batches and large ones."""
    assert run(FIRST, batch(7, shared=True), LAST, batch(3)) == ""


@pytest.mark.parametrize("row", [0, 1, 60, 119, 120, 127])
def test_every_row_of_a_large_batch_counts(row: int) -> None:
    """Also those whose truth nobody works out."""
    assert run(FIRST, LAST, spoil=only_of(128, row, OUTPUT)).startswith("y with the batch ")


def test_a_gate_of_a_large_batch_is_that_of_a_small_one() -> None:
    """Its truth is not worked out there, but the first row is known."""
    says = run(FIRST, LAST, spoil=only_of(128, 0, GATE))
    assert says.startswith("layer00.transform_gate with the batch \"row 0 in '128 rows' and in '1 rows'\"")


def test_where_a_large_batch_breaks_its_layers_are_looked_at() -> None:
    """So that the first of them is named."""
    says = run(FIRST, LAST, spoil=only_of(128, 60, GATE, OUTPUT))
    assert says.startswith("layer00.transform_gate with the batch '128 rows'")


def test_the_truth_of_a_large_batch_is_worked_out_for_its_last_rows() -> None:
    """Which is what makes the proof affordable; of a network that mixes rows all are needed."""
    made, _, truth = trial()
    made.run(FIRST)
    made.run(LAST)
    assert ("the truth of 128 rows", REFERENCE_ROWS, False) in truth.asked
    made.coupled = True
    made.run(LAST)
    assert ("the truth of 128 rows", 128, False) in truth.asked


def test_both_sides_are_asked_twice() -> None:
    """One that answers otherwise the second time is found, and whose fault it is."""

    def fickle(found: TensorValues, runs: int) -> None:
        found[OUTPUT] += np.float32(runs)

    with pytest.raises(ParityError, match="^y: onnxruntime answers otherwise when it is asked again"):
        trial(fickle)[0].run(FIRST)
    with pytest.raises(UntraceableError, match="^y: the network answers otherwise when it is asked again"):
        trial(moody=True)[0].run(FIRST)
    made, _, truth = trial()
    made.run(FIRST)
    assert ("state", 1, True) in truth.asked


def test_a_batch_that_the_network_does_not_take_is_left_out() -> None:
    """With a warning where it is one of the sizes that a service sends, and not recorded."""
    made, tally, _ = trial(refuses=2)
    made.run(batch(2, "two", shared=True))
    made.run(batch(2, "time=2"))
    made.run(batch(3, "three"))
    assert made.warnings == ["the network takes no batch of two (too few)"]
    assert [record.name for record in made.records] == ["three"]
    assert tally.broken(0.0) is None


def test_a_batch_that_onnxruntime_does_not_take_is_a_fault() -> None:
    """If the network does."""

    def refuse(found: TensorValues, runs: int) -> None:
        raise RuntimeError("bad\nluck")

    with pytest.raises(ParityError, match="cannot run the batch '1 rows', which the network takes: bad luck"):
        trial(refuse)[0].run(FIRST)


def test_great_numbers_are_shaken() -> None:
    """Only there is it asked how far the truth sways."""
    made, tally, truth = trial()
    made.run(FIRST)
    assert truth.shaken == []
    large = batch(3, LARGE_VALUES, factor=1e4, ordinary=False)
    made.run(large)
    moved = np.abs(truth.shaken[0] / large.arrays["x"] - 1)
    assert 0 < moved.max() <= PERTURBATION
    assert [one.sway is not None for one in tally.figures[0]] == [False, False, True, True]
