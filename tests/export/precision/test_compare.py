"""Comparisons: what is measured of a variant, and how it is judged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from export.errors import PrecisionError
from export.precision import compare as module
from export.precision.compare import Comparison, Speed, agreement, compare, require_agreement
from export.precision.lower import LowPrecision, lower
from export.source import Rows
from service.artifact.runtime import open_model
from tests.support.tiny_highway import Gated, highway


@pytest.fixture(autouse=True)
def short_races(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMING_SECONDS", 0.0)


@pytest.fixture(scope="module")
def net() -> Gated:
    return highway(layers=4, units=32, inputs=16)


def rows_of(count: int) -> Rows:
    return Rows({"x": np.random.default_rng(1).normal(size=(count, 16)).astype(np.float32)})


def compared(net: Gated, precision: LowPrecision, rows: Rows, *, drawn: bool = False) -> Comparison:
    made = lower(net.model, precision)
    sizes = (len(net.model), len(made))
    return compare(
        net.open(),
        open_model(made),
        rows,
        precision=precision,
        gates=net.gates,
        sizes=sizes,
        drawn=drawn,
    )


def test_a_comparison_says_what_was_measured(net: Gated) -> None:
    """Agreement, accuracy, distances of every gate, sizes and three batches' speed."""
    rows = rows_of(300)
    classes = net.logits(rows.inputs["x"]).argmax(1)
    classes[:30] = (classes[:30] + 1) % 3
    found = compared(net, "int8", replace(rows, classes=classes))
    made = open_model(lower(net.model, "int8"))
    answers = np.concatenate(
        [made.run({"x": rows.inputs["x"][n : n + 1]}, ["logits"])[0] for n in range(300)]
    )
    assert found.kind == "highest"
    assert found.agreement == pytest.approx(
        (answers.argmax(1) == net.logits(rows.inputs["x"]).argmax(1)).mean()
    )
    assert found.metric_fp32 == pytest.approx(0.9)
    assert found.metric == pytest.approx((answers.argmax(1) == classes).mean(), abs=1e-5)
    assert [gate.name for gate in found.gates] == [gate.name for gate in net.gates]
    assert all(0 < gate.mean < gate.max < 0.05 for gate in found.gates)
    assert [output.name for output in found.outputs] == ["logits"]
    assert [speed.rows for speed in found.speed] == [1, 8, 64]
    assert all(speed.ms > 0 and speed.fp32_ms > 0 and speed.ratio > 0 for speed in found.speed)
    assert found.size < found.size_fp32
    assert not found.drawn
    again = compared(net, "int8", replace(rows, classes=classes))
    assert found.variant == again.variant
    assert found.variant.metric == found.metric


def test_random_rows_are_said_to_be_so(net: Gated) -> None:
    """Where no rows were given the warning says what the figures are of."""
    found = compared(net, "fp16", rows_of(5), drawn=True)
    assert found.metric is None
    assert any("compared with fp32 on 5 random rows" in warning for warning in found.warnings)
    assert not any("random" in warning for warning in compared(net, "fp16", rows_of(5)).warnings)


def test_enough_rows_are_enough(net: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variant is compared on a bounded number of rows, and says how many."""
    monkeypatch.setattr(module, "MAX_COMPARED_ROWS", 10)
    assert compared(net, "fp16", rows_of(50)).rows == 10


def figures(*ratios: float, agreement: float = 1.0) -> Comparison:
    speed = tuple(Speed(rows, 1.0, 1.0, ratio) for rows, ratio in zip((1, 8, 64), ratios, strict=True))
    return Comparison(
        precision="int8",
        provider="CPUExecutionProvider",
        rows=100,
        drawn=False,
        kind="highest",
        agreement=agreement,
        metric=0.875,
        metric_fp32=0.9,
        outputs=(),
        gates=(),
        speed=speed,
        size=1,
        size_fp32=2,
    )


def test_slower_than_fp32_is_a_warning_with_the_figures() -> None:
    """Only the batches at which the variant is slower are named."""
    warning = figures(0.7, 0.9, 1.2).warnings
    assert len(warning) == 1
    assert "int8 is slower than fp32 on this machine" in warning[0]
    assert "0.70x at 1, 0.90x at 8)" in warning[0]
    assert figures(1.0, 2.0, 3.0).warnings == ()


def test_too_little_agreement_is_refused_with_the_figures() -> None:
    """The PrecisionError holds agreement, rows, accuracy and speed; at the bound all is well."""
    says = (
        r"0.99 or more .* got 0.9800 on 100 given rows, accuracy 0.8750 against 0.9000; .* 2.00x at 1, 3.00x"
    )
    with pytest.raises(PrecisionError, match=says):
        require_agreement(figures(2.0, 3.0, 4.0, agreement=0.98))
    require_agreement(figures(2.0, 3.0, 4.0, agreement=0.99))
    require_agreement(figures(2.0, 3.0, 4.0, agreement=0.98), least=0.95)


@pytest.mark.parametrize(
    ("wanted", "got", "share"),
    [
        ([[1.0, 2.0], [2.0, 1.0]], [[1.0, 9.0], [1.0, 2.0]], 0.5),
        ([[[1.0, 2.0], [2.0, 1.0]]], [[[1.0, 9.0], [1.0, 2.0]]], 0.5),
        ([[np.nan, 2.0], [2.0, 1.0]], [[np.nan, 2.0], [np.nan, 1.0]], 0.5),
        ([[1.0], [2.0], [0.0]], [[1.005], [2.1], [0.001]], 2 / 3),
        ([1.0, np.nan, 3.0], [1.0, np.nan, np.nan], 2 / 3),
        ([1, 2, 3, 4], [1, 2, 3, 5], 0.75),
    ],
)
def test_what_agreeing_means(wanted: list[object], got: list[object], share: float) -> None:
    """The same highest score; a lone number within 1 %; equal whole numbers; NaN with NaN alone."""
    assert agreement(np.array(wanted), np.array(got)) == pytest.approx(share)
