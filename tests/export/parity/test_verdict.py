"""The verdict on errors, by cases worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnpike.export.parity.error_stats import EPS, TensorErrors
from turnpike.export.parity.verdict import ErrorTable, check_extreme, check_ordinary, format_table
from turnpike.service.artifact.proof_records import TensorParity

# an output of size 1 in which PyTorch errs by 1e-7, 3e-7 at most, and so does onnxruntime
GOOD = TensorErrors(
    "y", "output", "rows", True, 7000, rms=1e-7, rms_torch=1e-7, max=3e-7, max_torch=3e-7, scale=1.0
)
EXTREME = replace(GOOD, batch="large x10", ordinary=False)
NAN = float("nan")


def reason(*errors: TensorErrors, noise: float = 0.0, decided: bool = False) -> str:
    failure = check_ordinary(errors, noise, decided=decided)
    return "" if failure is None else failure.reason


@pytest.mark.parametrize(
    ("rms", "scale", "passes"),
    [
        (1e-7, 1.0, True),
        (4e-7 + 0.9 * EPS, 1.0, True),  # 4 x 1e-7 + eps x 1
        (4e-7 + 1.1 * EPS, 1.0, False),
        (90 * EPS, 100.0, True),
        (110 * EPS, 100.0, False),
        (NAN, 1.0, False),
    ],
)
def test_the_bound_is_four_times_pytorchs_error_and_one_rounding(
    rms: float, scale: float, passes: bool
) -> None:
    assert (reason(replace(GOOD, rms=rms, scale=scale)) == "") == passes


def test_ordinary_batches_are_weighted_by_cells() -> None:
    """In one row PyTorch may be exact by chance. Extreme batches do not count."""
    lucky = replace(GOOD, batch="1 row", cells=10, rms=1e-6, rms_torch=0.0)
    assert reason(lucky).startswith(
        "y over all ordinary batches: expected a root mean square error of at most 1.19e-07 "
    )
    assert reason(lucky, GOOD) == ""
    assert reason(GOOD, replace(EXTREME, rms=1.0)) == ""
    assert reason(replace(GOOD, rms=6e-7), replace(EXTREME, rms_torch=1e-6)) != ""


def test_a_decided_graph_is_refused_only_if_it_is_far_from_the_reference_too() -> None:
    """4 times PyTorch's error alone is no reason, and 1e-4 of the size alone is none."""
    worse, large = replace(GOOD, rms=1e-5), replace(GOOD, rms=2e-4)
    assert reason(worse) != ""
    assert reason(worse, decided=True) == ""
    assert reason(large, decided=True) != ""
    assert reason(replace(large, rms_torch=1e-4), decided=True) == ""
    assert reason(replace(large, scale=3.0), decided=True) == ""
    assert reason(replace(GOOD, rms=NAN), decided=True) != ""
    assert reason(replace(GOOD, mismatch="expected shape [1]"), decided=True) != ""


@pytest.mark.parametrize(
    ("error", "eps", "noise", "ill"),
    [
        (0.9e-4, EPS, 0.0, False),
        (1.1e-4, EPS, 0.0, True),
        (1.1e-4, 2**-10, 0.0, False),
        (1e-7, EPS, 1.1e-4, True),
    ],
)
def test_an_ill_conditioned_tensor_is_refused_if_nothing_is_decided(
    error: float, eps: float, noise: float, ill: bool
) -> None:
    """If PyTorch itself errs by 1e-4 of the size in float32, agreement means nothing."""
    errors = replace(GOOD, rms_torch=error, max_torch=error, eps=eps)
    expected = (
        "y is ill-conditioned, so parity means nothing here: expected the network's own rounding errors "
        "to be at most 1e-04 of the tensor's size, got 1.1e-04"
    )
    assert reason(errors, noise=noise) == (expected if ill else "")
    assert reason(errors, noise=noise, decided=True) == ""


def test_a_mismatch_is_named_with_its_batch() -> None:
    failed = replace(GOOD, batch="7 rows", mismatch="expected shape [1], got [2]")
    assert reason(GOOD, failed) == "y with the batch '7 rows': expected shape [1], got [2]"


def test_a_tensor_without_finite_numbers_shows_nothing() -> None:
    """NaN everywhere equals NaN everywhere."""
    nothing = TensorErrors("y", "output", "7 rows", True)
    assert reason(nothing) == "y has no finite number in any batch: parity means nothing here"
    assert reason(nothing, decided=True) == ""
    assert reason(replace(nothing, ordinary=False), GOOD) == ""


def test_in_an_extreme_batch_only_an_error_that_is_far_counts() -> None:
    """Where PyTorch's own error is large, rounding decides the values."""
    far = replace(EXTREME, rms=1.1e-4)
    failure = check_extreme([GOOD, far])
    assert failure is not None
    assert failure.reason.startswith("y with the batch 'large x10': expected a root mean square error")
    for fine in (
        replace(far, rms=0.9e-4),
        replace(far, rms_torch=1e-4),
        replace(far, scale=2.0),
        replace(far, ordinary=True),
        replace(far, batch="one NaN"),
        replace(far, batch="one Inf"),
    ):
        assert check_extreme([fine]) is None, fine


def table(*errors: TensorErrors) -> ErrorTable:
    """A table of a first provider that is fine, and of a second one with these errors."""
    result = ErrorTable({"x": "layer", "y": "output"}, 2)
    for tensor in "xy":
        result.add(0, replace(GOOD, tensor=tensor))
    for error in errors:
        result.add(1, error)
    return result


def test_the_first_tensor_in_data_flow_order_is_named_with_any_provider() -> None:
    good = replace(GOOD, tensor="x")
    for decided in (False, True):
        assert table(good, GOOD).failure(0.0, decided=decided) is None
        failure = table(replace(GOOD, rms=1e-2), good).failure(0.0, decided=decided)
        assert failure is not None
        assert failure.tensor == "y"
        failure = table(replace(GOOD, rms=1e-2), replace(good, rms=1e-2)).failure(0.0, decided=decided)
        assert failure is not None
        assert failure.tensor == "x"


def test_what_does_not_refuse_a_graph_is_named() -> None:
    """Extreme batches never refuse a decided graph, and places of NaN in them no graph."""
    assert table(GOOD).first_beyond(0.0) is None
    places = replace(EXTREME, batch="one Inf", mismatch="expected NaN in the 2 cells")
    for errors, refused in (
        (replace(GOOD, rms=1e-5), True),
        (replace(EXTREME, rms=1e-2), True),
        (places, False),
        (replace(EXTREME, mismatch="expected NaN in the 2 cells"), False),
    ):
        errors_of_all = table(GOOD, errors)
        beyond = errors_of_all.first_beyond(0.0)
        assert beyond is not None
        assert beyond.tensor == "y"
        assert errors_of_all.failure(0.0, decided=True) is None
        assert (errors_of_all.failure(0.0, decided=False) is not None) == refused


def test_the_row_of_a_failure_has_the_figures_that_failed() -> None:
    """The figures over all batches may look good although one batch failed."""
    tensors = [TensorParity(name=name, rms=1e-7, rms_torch=1e-7, max=3e-7, max_torch=3e-7) for name in "xy"]
    failure = check_extreme([GOOD, replace(EXTREME, rms=5e-3, max=7e-2)])
    _, good, bad = format_table(tensors, failure).splitlines()
    assert bad.split() == ["y", "5.0e-03", "1.0e-07", "7.0e-02", "3.0e-07", "large", "x10", "<-", "failed"]
    assert good == format_table(tensors).splitlines()[1]
    over_all = check_ordinary([replace(GOOD, rms=6e-7)] * 3, 0.0, decided=False)
    assert "6.0e-07" in format_table(tensors, over_all).splitlines()[2]
