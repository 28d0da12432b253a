"""The decision on figures, by cases worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from export.parity.error_stats import EPS, TensorErrors
from export.parity.verdict import ErrorBound, check_tensor, error_bound, find_unjudged

# an output of size 1 in which PyTorch errs by 1e-7, 3e-7 at worst, and onnxruntime by as much
GOOD = TensorErrors(
    "y", "output", "rows", True, 10**6, 7000, rms=1e-7, rms_torch=1e-7, max=3e-7, max_torch=3e-7, scale=1.0
)


@pytest.mark.parametrize(
    ("rms", "worst", "holds"),
    [
        (1e-7, 3e-7, True),
        (4e-7 + 0.9 * EPS, 3e-7, True),  # 4 x 1e-7 + eps x 1
        (4e-7 + 1.1 * EPS, 3e-7, False),
        (1e-7, 24e-7 + 7.9 * EPS, True),  # 8 x 3e-7 + 8 x eps x 1
        (1e-7, 24e-7 + 8.1 * EPS, False),
        (float("nan"), 3e-7, False),
    ],
)
def test_the_bounds_are_four_and_eight_times_pytorchs_error(rms: float, worst: float, holds: bool) -> None:
    """And an eps, or eight, for each unit of the tensor's size."""
    assert (check_tensor([replace(GOOD, rms=rms, max=worst)]) is None) == holds


def test_bounds_grow_with_the_tensor() -> None:
    """At a size of 100 an eps is a hundred times as much."""
    assert check_tensor([replace(GOOD, rms=90 * EPS, max=700 * EPS, scale=100.0)]) is None
    assert check_tensor([replace(GOOD, rms=90 * EPS, max=700 * EPS, scale=1.0)]) is not None


def test_a_lucky_batch_is_judged_by_what_pytorch_usually_does() -> None:
    """In one row PyTorch may be right to the bit; onnxruntime need not be, but not by chance alone."""
    lucky = replace(GOOD, batch="1 row", rows=1, cells=10, rms=1.5e-6, rms_torch=0.0, max=2e-6, max_torch=0.0)
    assert check_tensor([lucky]) is not None
    assert check_tensor([lucky, GOOD]) is None  # 4 x (1 + 3) x 1e-7 and an eps
    assert check_tensor([replace(lucky, rms=1.8e-6), GOOD]) is not None
    assert check_tensor([replace(lucky, rows=9), GOOD]) is not None  # 4 x (1 + 1) x 1e-7 and an eps


def test_over_all_batches_nothing_is_left_to_chance() -> None:
    """Each batch may have its excuse; together they have none."""
    excused = [replace(GOOD, batch=f"{at}", rows=1, rms=6e-7) for at in range(3)]
    assert check_tensor([GOOD, excused[0]]) is None
    says = check_tensor(excused)
    assert says is not None
    assert says.startswith(
        "y over all ordinary batches: expected a root mean square error of at most 5.19e-07"
    )


def test_rows_that_come_out_small_are_made_of_large_numbers() -> None:
    """An answer that happens to lie next to zero has the same errors as others; zeros have those of zeros."""
    small = replace(GOOD, batch="1 row", rows=1, cells=1, scale=1e-6, rms_torch=0.0, max_torch=0.0)
    assert check_tensor([GOOD, small]) is None
    assert check_tensor([GOOD, replace(small, ordinary=False)]) is not None


def test_the_yardstick_is_of_ordinary_batches_by_cells() -> None:
    """Errors and sizes are those over all cells; strained batches do not count."""
    other = replace(GOOD, cells=210, rms_torch=2e-6, max_torch=4e-6, scale=3.0)
    strained = replace(GOOD, ordinary=False, rms_torch=1.0, max_torch=1.0)
    found = error_bound([GOOD, other, strained])
    scale = ((7000 * 1 + 210 * 9) / 7210) ** 0.5
    assert found.scale == pytest.approx(scale)
    assert found.rms == pytest.approx(((7000 * 1e-14 + 210 * 4e-12) / 7210) ** 0.5 / scale)
    assert found.max == pytest.approx(4e-6 / scale)
    assert error_bound([strained]) == ErrorBound(0.0, 0.0, 0.0)
    assert error_bound([GOOD], noise=1e-5) == ErrorBound(1e-5, 1e-5, 1.0)


@pytest.mark.parametrize(
    ("error", "eps", "ill"), [(0.9e-4, EPS, False), (1.1e-4, EPS, True), (1.1e-4, 2**-10, False)]
)
def test_an_ill_conditioned_tensor_is_no_pass(error: float, eps: float, ill: bool) -> None:
    """Where PyTorch itself errs by 1e-4 of the size, in fp32, agreement would mean nothing."""
    says = check_tensor([replace(GOOD, rms_torch=error, max_torch=error, eps=eps)])
    assert (says is not None) == ill
    if ill:
        assert says == (
            "y is ill-conditioned: parity means nothing here, since PyTorch's own rounding errors are "
            "1.1e-04 of its size, and at most 1e-04 was expected"
        )


def test_a_fault_is_said_with_its_batch() -> None:
    """What no number can show needs no bound."""
    assert check_tensor([GOOD, replace(GOOD, batch="one NaN", fault="expected shape [1], got [2]")]) == (
        "y with the batch 'one NaN': expected shape [1], got [2]"
    )


def test_a_tensor_without_numbers_is_no_pass() -> None:
    """NaN everywhere agrees with NaN everywhere, and proves nothing."""
    nothing = TensorErrors("y", "output", "7 rows", True)
    assert check_tensor([nothing]) == "y has no finite number in any batch: parity means nothing here"
    assert check_tensor([replace(nothing, ordinary=False), GOOD]) is None


def test_haze_hides_what_follows_in_the_same_batch() -> None:
    """Once rounding decides in a strained batch, tensors after it are not judged there, those before are."""
    large = replace(GOOD, batch="large", ordinary=False)
    before = replace(large, tensor="a")
    lost = replace(large, tensor="b", sway=2e-4)
    after = replace(large, tensor="c", rms=1.0, max=1.0)
    other = replace(after, batch="zeros")
    over = find_unjudged([before, lost, after, other])
    assert over == {("b", "large"), ("c", "large")}
    data = replace(GOOD, tensor="c")
    assert check_tensor([data, after], over=over) is None
    assert check_tensor([data, other], over=over) is not None
    assert find_unjudged([replace(lost, ordinary=True)]) == frozenset()
    assert find_unjudged([replace(large, rms_torch=2e-4)]) == {("y", "large")}


def test_where_the_truth_sways_small_errors_are_let_be() -> None:
    """One cell next to where a gate switches may make all the difference, on either side; a bias is more."""
    swaying = replace(GOOD, ordinary=False, rms=2e-5, max=2e-4, rms_torch=1e-8, max_torch=1e-8)
    assert check_tensor([GOOD, swaying]) is not None
    assert check_tensor([GOOD, replace(swaying, sway=1e-6)]) is None
    assert check_tensor([GOOD, replace(swaying, sway=1e-6, rms=6e-4, max=6e-4)]) is not None
