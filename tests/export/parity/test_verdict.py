"""The verdict on errors, by cases worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from export.parity.error_stats import EPS, TensorErrors
from export.parity.verdict import ErrorBound, check_tensor, error_bound, find_unjudged

# an output of size 1 in which PyTorch errs by 1e-7, 3e-7 at most, and so does onnxruntime
GOOD = TensorErrors(
    "y", "output", "rows", True, 10**6, 7000, rms=1e-7, rms_torch=1e-7, max=3e-7, max_torch=3e-7, scale=1.0
)


@pytest.mark.parametrize(
    ("rms", "largest", "passes"),
    [
        (1e-7, 3e-7, True),
        (4e-7 + 0.9 * EPS, 3e-7, True),  # 4 x 1e-7 + eps x 1
        (4e-7 + 1.1 * EPS, 3e-7, False),
        (1e-7, 24e-7 + 7.9 * EPS, True),  # 8 x 3e-7 + 8 x eps x 1
        (1e-7, 24e-7 + 8.1 * EPS, False),
        (float("nan"), 3e-7, False),
    ],
)
def test_the_bounds_are_four_and_eight_times_pytorchs_error(rms: float, largest: float, passes: bool) -> None:
    """One and eight eps of the tensor's scale are added."""
    assert (check_tensor([replace(GOOD, rms=rms, max=largest)]) is None) == passes


def test_bounds_grow_with_the_tensor() -> None:
    assert check_tensor([replace(GOOD, rms=90 * EPS, max=700 * EPS, scale=100.0)]) is None
    assert check_tensor([replace(GOOD, rms=90 * EPS, max=700 * EPS, scale=1.0)]) is not None


def test_a_batch_with_a_lucky_exact_result_has_the_usual_bound() -> None:
    """In one row PyTorch may be exact by chance. onnxruntime need not be, within a margin for few rows."""
    lucky = replace(GOOD, batch="1 row", rows=1, cells=10, rms=1.5e-6, rms_torch=0.0, max=2e-6, max_torch=0.0)
    assert check_tensor([lucky]) is not None
    assert check_tensor([lucky, GOOD]) is None  # 4 x (1 + 3) x 1e-7 and an eps
    assert check_tensor([replace(lucky, rms=1.8e-6), GOOD]) is not None
    assert check_tensor([replace(lucky, rows=9), GOOD]) is not None  # 4 x (1 + 1) x 1e-7 and an eps


def test_the_bound_over_all_batches_has_no_margin() -> None:
    """The margin for few rows applies to each batch, but not to all of them together."""
    lucky = [replace(GOOD, batch=f"{number}", rows=1, rms=6e-7) for number in range(3)]
    assert check_tensor([GOOD, lucky[0]]) is None
    reason = check_tensor(lucky)
    assert reason is not None
    assert reason.startswith(
        "y over all ordinary batches: expected a root mean square error of at most 5.19e-07"
    )


def test_small_results_have_the_bound_of_their_usual_size() -> None:
    """A result near zero has the rounding errors of its usual size. A batch of zeros has none."""
    small = replace(GOOD, batch="1 row", rows=1, cells=1, scale=1e-6, rms_torch=0.0, max_torch=0.0)
    assert check_tensor([GOOD, small]) is None
    assert check_tensor([GOOD, replace(small, ordinary=False)]) is not None


def test_the_bound_weights_ordinary_batches_by_cells() -> None:
    """Errors and scales are weighted by cells; stress batches do not count."""
    other = replace(GOOD, cells=210, rms_torch=2e-6, max_torch=4e-6, scale=3.0)
    stress = replace(GOOD, ordinary=False, rms_torch=1.0, max_torch=1.0)
    bound = error_bound([GOOD, other, stress])
    scale = ((7000 * 1 + 210 * 9) / 7210) ** 0.5
    assert bound.scale == pytest.approx(scale)
    assert bound.rms == pytest.approx(((7000 * 1e-14 + 210 * 4e-12) / 7210) ** 0.5 / scale)
    assert bound.max == pytest.approx(4e-6 / scale)
    assert error_bound([stress]) == ErrorBound(0.0, 0.0, 0.0)
    assert error_bound([GOOD], noise=1e-5) == ErrorBound(1e-5, 1e-5, 1.0)


@pytest.mark.parametrize(
    ("error", "eps", "ill"), [(0.9e-4, EPS, False), (1.1e-4, EPS, True), (1.1e-4, 2**-10, False)]
)
def test_an_ill_conditioned_tensor_fails(error: float, eps: float, ill: bool) -> None:
    """If PyTorch itself errs by 1e-4 of the scale in float32, agreement means nothing."""
    reason = check_tensor([replace(GOOD, rms_torch=error, max_torch=error, eps=eps)])
    assert (reason is not None) == ill
    if ill:
        assert reason == (
            "y is ill-conditioned, so parity means nothing here: expected PyTorch's own rounding errors to "
            "be at most 1e-04 of the tensor's size, got 1.1e-04"
        )


def test_a_failure_names_its_batch() -> None:
    assert check_tensor([GOOD, replace(GOOD, batch="one NaN", mismatch="expected shape [1], got [2]")]) == (
        "y with the batch 'one NaN': expected shape [1], got [2]"
    )


def test_a_tensor_without_finite_numbers_fails() -> None:
    """NaN everywhere equals NaN everywhere, and proves nothing."""
    nothing = TensorErrors("y", "output", "7 rows", True)
    assert check_tensor([nothing]) == "y has no finite number in any batch: parity means nothing here"
    assert check_tensor([replace(nothing, ordinary=False), GOOD]) is None


def test_tensors_after_a_chaotic_one_are_not_judged() -> None:
    """If rounding decides a tensor in a stress batch, only the tensors before it are judged there."""
    large = replace(GOOD, batch="large", ordinary=False)
    before = replace(large, tensor="a")
    lost = replace(large, tensor="b", sensitivity=2e-4)
    after = replace(large, tensor="c", rms=1.0, max=1.0)
    other = replace(after, batch="zeros")
    unjudged = find_unjudged([before, lost, after, other])
    assert unjudged == {("b", "large"), ("c", "large")}
    data = replace(GOOD, tensor="c")
    assert check_tensor([data, after], unjudged=unjudged) is None
    assert check_tensor([data, other], unjudged=unjudged) is not None
    assert find_unjudged([replace(lost, ordinary=True)]) == frozenset()
    assert find_unjudged([replace(large, rms_torch=2e-4)]) == {("y", "large")}


def test_small_errors_of_sensitive_tensors_are_accepted() -> None:
    """The error may come from one cell where a gate is about to switch; a wrong bias causes more."""
    sensitive = replace(GOOD, ordinary=False, rms=2e-5, max=2e-4, rms_torch=1e-8, max_torch=1e-8)
    assert check_tensor([GOOD, sensitive]) is not None
    assert check_tensor([GOOD, replace(sensitive, sensitivity=1e-6)]) is None
    assert check_tensor([GOOD, replace(sensitive, sensitivity=1e-6, rms=6e-4, max=6e-4)]) is not None
