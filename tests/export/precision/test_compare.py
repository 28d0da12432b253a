"""Comparison of a lower precision with fp32: what is measured, and when it is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from export.errors import PrecisionError
from export.precision.compare import (
    MAX_COMPARED_ROWS,
    Comparison,
    Speed,
    agreement,
    compare,
    require_agreement,
)
from export.precision.lower import LowPrecision, lower
from export.source import Rows
from service.artifact.runtime import open_model
from tests.support.tiny_highway import Gated, highway


@pytest.fixture(scope="module")
def net() -> Gated:
    return highway(layers=4, units=32, inputs=16)


def rows_of(count: int) -> Rows:
    return Rows({"x": np.random.default_rng(1).normal(size=(count, 16)).astype(np.float32)})


def compare_with_fp32(
    net: Gated,
    precision: LowPrecision,
    rows: Rows,
    *,
    drawn: bool = False,
    max_rows: int = MAX_COMPARED_ROWS,
) -> Comparison:
    model = lower(net.model, precision)
    sizes = (len(net.model), len(model))
    return compare(
        net.open(),
        open_model(model),
        rows,
        precision=precision,
        gates=net.gates,
        sizes=sizes,
        drawn=drawn,
        max_rows=max_rows,
        timing_seconds=0.0,
    )


def test_a_comparison_has_agreement_accuracy_and_speed(net: Gated) -> None:
    """Agreement, accuracy, differences of every gate, sizes, and speed for three batch sizes."""
    rows = rows_of(300)
    classes = net.logits(rows.inputs["x"]).argmax(1)
    classes[:30] = (classes[:30] + 1) % 3
    comparison = compare_with_fp32(net, "int8", replace(rows, classes=classes))
    variant = open_model(lower(net.model, "int8"))
    answers = np.concatenate(
        [variant.run({"x": rows.inputs["x"][row : row + 1]}, ["logits"])[0] for row in range(300)]
    )
    assert comparison.kind == "highest"
    assert comparison.agreement == pytest.approx(
        (answers.argmax(1) == net.logits(rows.inputs["x"]).argmax(1)).mean()
    )
    assert comparison.metric_fp32 == pytest.approx(0.9)
    assert comparison.metric == pytest.approx((answers.argmax(1) == classes).mean(), abs=1e-5)
    assert [gate.name for gate in comparison.gates] == [gate.name for gate in net.gates]
    assert all(0 < gate.mean < gate.max < 0.05 for gate in comparison.gates)
    assert [output.name for output in comparison.outputs] == ["logits"]
    assert [speed.rows for speed in comparison.speed] == [1, 8, 64]
    assert all(speed.ms > 0 and speed.fp32_ms > 0 and speed.ratio > 0 for speed in comparison.speed)
    assert comparison.size < comparison.size_fp32
    assert not comparison.drawn
    repeated = compare_with_fp32(net, "int8", replace(rows, classes=classes))
    assert comparison.variant == repeated.variant
    assert comparison.variant.metric == comparison.metric


def test_random_rows_give_a_warning(net: Gated) -> None:
    comparison = compare_with_fp32(net, "fp16", rows_of(5), drawn=True)
    assert comparison.metric is None
    assert any("compared with fp32 on 5 random rows" in warning for warning in comparison.warnings)
    assert not any("random" in warning for warning in compare_with_fp32(net, "fp16", rows_of(5)).warnings)


def test_the_number_of_rows_is_limited(net: Gated) -> None:
    assert compare_with_fp32(net, "fp16", rows_of(50), max_rows=10).rows == 10


def comparison_with_speed(*ratios: float, agreement: float = 1.0) -> Comparison:
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


def test_a_variant_slower_than_fp32_gives_a_warning() -> None:
    """Only batch sizes at which the variant is slower are named."""
    warning = comparison_with_speed(0.7, 0.9, 1.2).warnings
    assert len(warning) == 1
    assert "int8 is slower than fp32 on this machine" in warning[0]
    assert "0.70x at 1, 0.90x at 8)" in warning[0]
    assert comparison_with_speed(1.0, 2.0, 3.0).warnings == ()


def test_too_little_agreement_is_refused() -> None:
    """Exactly the required agreement is accepted."""
    message = (
        r"0.99 or more .* got 0.9800 on 100 given rows, accuracy 0.8750 against 0.9000; .* 2.00x at 1, 3.00x"
    )
    with pytest.raises(PrecisionError, match=message):
        require_agreement(comparison_with_speed(2.0, 3.0, 4.0, agreement=0.98))
    require_agreement(comparison_with_speed(2.0, 3.0, 4.0, agreement=0.99))
    require_agreement(comparison_with_speed(2.0, 3.0, 4.0, agreement=0.98), min_agreement=0.95)


@pytest.mark.parametrize(
    ("expected", "actual", "share"),
    [
        ([[1.0, 2.0], [2.0, 1.0]], [[1.0, 9.0], [1.0, 2.0]], 0.5),
        ([[[1.0, 2.0], [2.0, 1.0]]], [[[1.0, 9.0], [1.0, 2.0]]], 0.5),
        ([[np.nan, 2.0], [2.0, 1.0]], [[np.nan, 2.0], [np.nan, 1.0]], 0.5),
        ([[1.0], [2.0], [0.0]], [[1.005], [2.1], [0.001]], 2 / 3),
        ([1.0, np.nan, 3.0], [1.0, np.nan, np.nan], 2 / 3),
        ([1, 2, 3, 4], [1, 2, 3, 5], 0.75),
    ],
)
def test_agreement_of_classes_numbers_and_nan(
    expected: list[object], actual: list[object], share: float
) -> None:
    """The same highest score; a single number within 1 %; equal integers; NaN only with NaN."""
    assert agreement(np.array(expected), np.array(actual)) == pytest.approx(share)
