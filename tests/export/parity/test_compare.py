"""Batch comparisons with made-up sides, and the faults that each side is blamed for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from turnpike.export.errors import ParityError, UntraceableError
from turnpike.export.network import Array
from turnpike.export.parity.batches import ONE_NAN, ProofBatch
from turnpike.export.parity.compare import REFERENCE_ROWS, BatchComparison
from turnpike.export.parity.error_stats import EPS
from turnpike.export.parity.reference import RejectedError, TensorValues
from turnpike.export.parity.verdict import ErrorTable
from turnpike.service.artifact.tensor import Tensor

GATE, OUTPUT = "layer00.transform_gate", "y"

Change = Callable[[TensorValues, int], None]


def formula(x: Array) -> TensorValues:
    """T = 1 / (1 + e^-x) and y = T x."""
    with np.errstate(over="ignore"):
        t = 1 / (1 + np.exp(-x))
    return {GATE: t, OUTPUT: t * x}


@dataclass
class FormulaReference:
    """A network that computes a formula, and records its batches."""

    description: str = "a formula"
    warnings: tuple[str, ...] = ()
    noise: float = 0.0
    may_drop_nan: bool = False
    changing: bool = False
    rejected_rows: int = 0

    def __post_init__(self) -> None:
        self.calls: list[tuple[str, int, bool]] = []
        self.inputs: list[Array] = []

    def native(self, batch: ProofBatch) -> TensorValues:
        if batch.rows == self.rejected_rows:
            raise RejectedError("too few")
        self.calls.append((batch.name, batch.rows, batch.compare_layers))
        self.inputs.append(batch.arrays["x"])
        values = formula(batch.arrays["x"].astype(np.float64))
        # about the rounding of float32, but never zero by chance
        error = 1 + EPS * np.cos(np.arange(batch.rows))[:, None] / 4
        values = {name: (value * error).astype(np.float32) for name, value in values.items()}
        if self.changing:
            values[OUTPUT] = values[OUTPUT] + np.float32(len(self.calls))
        return values if batch.compare_layers else {OUTPUT: values[OUTPUT]}

    def float64(self, batch: ProofBatch) -> TensorValues:
        x = batch.arrays["x"]
        self.calls.append((f"float64 of {batch.name}", batch.rows, batch.compare_layers))
        values = formula(x.astype(np.float64))
        return values if batch.compare_layers else {OUTPUT: values[OUTPUT]}

    def expect_stateless(self, batch: ProofBatch) -> None:
        self.calls.append(("state", batch.rows, batch.compare_layers))


class FormulaModel:
    """An open model that computes the same formula, changed by a test."""

    provider = "Formula"
    inputs = (Tensor("x", "float32", ("batch", 4)),)

    def __init__(self, change: Change) -> None:
        self.change = change
        self.runs = 0

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        self.runs += 1
        float64 = formula(feeds["x"].astype(np.float64))
        values = {name: value.astype(np.float32) for name, value in float64.items()}
        self.change(values, self.runs)
        return [values[name] for name in outputs]


def batch(rows: int, name: str = "", *, factor: float = 1.0, **settings: bool) -> ProofBatch:
    x = np.random.default_rng(0).standard_normal((rows, 4)) * factor
    return ProofBatch(name or f"{rows} rows", rows, {"x": x.astype(np.float32)}, {"x": 0}, **settings)


def comparison(
    change: Change = lambda values, runs: None,
    *,
    changing: bool = False,
    rejected_rows: int = 0,
    decided: bool = False,
) -> tuple[BatchComparison, ErrorTable, FormulaReference]:
    reference = FormulaReference(changing=changing, rejected_rows=rejected_rows)
    table = ErrorTable({GATE: "gate", OUTPUT: "output"}, 1)
    model = FormulaModel(change)
    return BatchComparison(reference, [model], ["x"], table, frozenset(), decided=decided), table, reference


def run(*batches: ProofBatch, change: Change = lambda values, runs: None) -> str:
    """The first failure after all batches, or an empty string."""
    compared, table, _ = comparison(change)
    for proof_batch in batches:
        compared.run(proof_batch)
    failure = table.failure(0.0, decided=False)
    return "" if failure is None else failure.reason


FIRST, LAST = batch(1, shared=True), batch(128, shared=True, compare_layers=False)


def change_row(size: int, row: int, *names: str) -> Change:
    """Change one row of the batches of one size."""

    def change(values: TensorValues, runs: int) -> None:
        for name in names:
            if len(values[name]) == size:
                values[name][row] += np.float32(1e-3)

    return change


def test_a_correct_model_passes() -> None:
    assert run(FIRST, batch(7, shared=True), LAST, batch(3)) == ""


@pytest.mark.parametrize("row", [0, 1, 60, 119, 120, 127])
def test_every_row_of_a_large_batch_is_compared(row: int) -> None:
    """Unless the graph is decided, which holds for every row."""
    assert run(FIRST, LAST, change=change_row(128, row, OUTPUT)).startswith("y over all ordinary batches")


@pytest.mark.parametrize(("decided", "rows"), [(False, 128), (True, REFERENCE_ROWS)])
def test_the_reference_of_a_decided_graph_is_computed_for_the_last_rows(decided: bool, rows: int) -> None:
    """This makes the measurement affordable. A network that mixes rows needs all of them."""
    compared, _, reference = comparison(decided=decided)
    compared.run(FIRST)
    compared.run(LAST)
    assert reference.calls[-1] == ("float64 of 128 rows", rows, False)
    compared.batch_coupled = True
    compared.run(LAST)
    assert reference.calls[-1] == ("float64 of 128 rows", 128, False)


def test_results_that_change_between_runs_are_found() -> None:
    """The message names the side whose second result differs from its first."""

    def fickle(values: TensorValues, runs: int) -> None:
        values[OUTPUT] += np.float32(runs)

    with pytest.raises(ParityError, match="^y: onnxruntime gives another answer when it is run again"):
        comparison(fickle)[0].run(FIRST)
    with pytest.raises(UntraceableError, match="^y: the network gives another answer when it is run again"):
        comparison(changing=True)[0].run(FIRST)
    compared, _, reference = comparison()
    compared.run(FIRST)
    assert ("state", 1, True) in reference.calls


def test_a_batch_that_the_network_rejects_is_left_out() -> None:
    """It is not recorded; a number of rows that the service may send gives a warning of its own."""
    compared, table, _ = comparison(rejected_rows=2)
    compared.run(batch(2, "two", shared=True))
    compared.run(batch(2, "time=2"))
    compared.run(batch(3, "three"))
    assert compared.warnings == ["the network does not accept the batch 'two' (too few)"]
    assert compared.skipped == {"time=2": "too few"}
    assert [record.name for record in compared.records] == ["three"]
    assert table.failure(0.0, decided=False) is None


def test_a_batch_that_is_not_compared_shows_whether_rows_are_mixed() -> None:
    """Its values may differ, and it is not recorded."""

    def spoil(values: TensorValues, runs: int) -> None:
        if runs > 2:  # the first batch is run twice
            values[OUTPUT][0] = np.nan

    compared, table, _ = comparison(spoil)
    compared.run(FIRST)
    compared.run(batch(3, ONE_NAN, ordinary=False, compared=False))
    reason = "a NaN in one row reaches another row of y"
    assert compared.warnings == [f"the network mixes the rows of a batch: {reason}"]
    assert [record.name for record in compared.records] == [FIRST.name]
    assert table.failure(0.0, decided=False) is None


def test_a_batch_that_only_onnxruntime_rejects_is_an_error() -> None:
    def refuse(values: TensorValues, runs: int) -> None:
        raise RuntimeError("bad\nluck")

    with pytest.raises(
        ParityError, match="cannot run the batch '1 rows', which the network accepts: bad luck"
    ):
        comparison(refuse)[0].run(FIRST)


def test_a_fault_in_one_large_row_is_found() -> None:
    """Each of these rows is judged alone."""

    def change(values: TensorValues, runs: int) -> None:
        if len(values[GATE]) == 3:
            values[GATE][1] = np.clip(values[GATE][1], 1e-3, 1 - 1e-3)

    large = replace(
        batch(3, "large", factor=100), ordinary=False, row_names=("large x1", "large x2", "large x3")
    )
    assert run(FIRST, batch(7), large) == ""
    reason = run(FIRST, batch(7), large, change=change)
    assert reason.startswith("layer00.transform_gate with the batch 'large x2'")


def test_rows_of_a_network_that_mixes_them_are_judged_together() -> None:
    compared, table, _ = comparison()
    compared.batch_coupled = True
    compared.run(replace(batch(2, "large"), ordinary=False, row_names=("large x3", "large x10")))
    assert {errors.batch for errors in table.errors[0]} == {"large"}
