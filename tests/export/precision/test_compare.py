"""Comparison of a lower precision with fp32: what is measured, and when it is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.tiny_highway import Gated, highway
from turnpike.export.errors import PrecisionError
from turnpike.export.network import Rows
from turnpike.export.options import AgreementLimits
from turnpike.export.precision.compare import (
    MAX_COMPARED_ROWS,
    AnswerKind,
    Comparison,
    DifferenceSum,
    Speed,
    agreement,
    compare,
    require_agreement,
)
from turnpike.export.precision.lower import LowPrecision, lower
from turnpike.service.artifact.runtime import open_model


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


def comparison_with_speed(
    *ratios: float, agreement: float = 1.0, error: float | None = 0.01, kind: AnswerKind = "highest"
) -> Comparison:
    speed = tuple(Speed(rows, 1.0, 1.0, ratio) for rows, ratio in zip((1, 8, 64), ratios, strict=True))
    return Comparison(
        precision="int8",
        provider="CPUExecutionProvider",
        rows=100,
        drawn=False,
        kind=kind,
        agreement=agreement,
        error=error,
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
    warning = comparison_with_speed(0.333, 0.9, 1.2).warnings
    assert len(warning) == 1
    assert warning[0] == (
        "int8 is slower than fp32 on this machine (CPUExecutionProvider): "
        "3.0 times slower with 1 row, 1.1 times slower with 8 rows"
    )
    assert comparison_with_speed(0.97, 2.0, 3.0).warnings == ()


def test_too_little_agreement_is_refused() -> None:
    """Exactly the required agreement is accepted."""
    with pytest.raises(PrecisionError) as error:
        require_agreement(comparison_with_speed(0.25, 0.97, 4.0, agreement=0.98), AgreementLimits())
    assert str(error.value) == (
        "--precision int8: expected the answers of fp32 in a share of 0.99 or more (--min-agreement), "
        "got 0.98, on your rows; accuracy 0.875, in fp32 0.9; speed compared with fp32: 4.0 times slower "
        "with 1 row, as fast with 8 rows, 4.0 times faster with 64 rows"
    )
    require_agreement(comparison_with_speed(2.0, 3.0, 4.0, agreement=0.99), AgreementLimits())
    require_agreement(
        comparison_with_speed(2.0, 3.0, 4.0, agreement=0.98), AgreementLimits(min_agreement=0.95)
    )


def test_too_large_an_error_is_refused() -> None:
    """All answers may agree while the numbers differ. The message names the limits that failed."""
    too_large = r"expected a relative rms error of 0\.03 or less \(--max-error\), got 0\.031"
    with pytest.raises(PrecisionError, match=rf"^--precision int8: {too_large}, on your rows; "):
        require_agreement(comparison_with_speed(2.0, 3.0, 4.0, error=0.031), AgreementLimits())
    with pytest.raises(PrecisionError, match=rf"\(--min-agreement\), got 0\.98, and {too_large}, on your"):
        require_agreement(
            comparison_with_speed(2.0, 3.0, 4.0, error=0.031, agreement=0.98), AgreementLimits()
        )
    random_rows = replace(comparison_with_speed(2.0, 3.0, 4.0, error=0.031), drawn=True)
    with pytest.raises(PrecisionError, match=r"on 100 random rows \(give real ones with --data\); "):
        require_agreement(random_rows, AgreementLimits())
    require_agreement(comparison_with_speed(2.0, 3.0, 4.0, error=0.03), AgreementLimits())
    require_agreement(comparison_with_speed(2.0, 3.0, 4.0, error=0.031), AgreementLimits(max_error=0.04))
    require_agreement(comparison_with_speed(2.0, 3.0, 4.0, error=None, kind="equal"), AgreementLimits())


def test_a_single_number_is_judged_by_its_error_alone() -> None:
    """It has no classes that could agree."""
    require_agreement(comparison_with_speed(2.0, 3.0, 4.0, agreement=0.6, kind="near"), AgreementLimits())
    message = r"^--precision int8: expected a relative rms error of 0\.03 .*, got 0\.031, on"
    with pytest.raises(PrecisionError, match=message):
        require_agreement(comparison_with_speed(2.0, 3.0, 4.0, error=0.031, kind="near"), AgreementLimits())


def test_the_error_is_relative_to_the_output(net: Gated) -> None:
    rows = rows_of(50)
    comparison = compare_with_fp32(net, "int8", rows)
    variant = open_model(lower(net.model, "int8"))
    expected = net.logits(rows.inputs["x"]).astype(np.float64)
    actual = np.concatenate([variant.run({"x": x[None]}, ["logits"])[0] for x in rows.inputs["x"]])
    relative = np.sqrt(((actual - expected) ** 2).mean() / (expected**2).mean())
    assert comparison.error == pytest.approx(relative, rel=1e-3)
    assert comparison.variant.error == comparison.error
    assert f"relative rms error {comparison.error:.2%}" in comparison.summary


def test_numbers_lost_to_infinity_are_refused() -> None:
    """65,504 is the largest number in fp16."""
    difference = DifferenceSum()
    difference.add(np.float32([1, 1e5]), np.float32([1, np.inf]))
    error = difference.result("y").relative
    with pytest.raises(PrecisionError, match=r"\(--max-error\), got inf, on"):
        require_agreement(
            comparison_with_speed(2.0, 3.0, 4.0, error=error, kind="near"), AgreementLimits(max_error=1e9)
        )


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
