"""The verdict on errors, by cases worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnpike.export.parity.error_stats import EPS, TensorErrors
from turnpike.export.parity.verdict import (
    ErrorBound,
    ErrorTable,
    FirstFailure,
    check_tensor,
    error_bound,
    find_unjudged,
    format_table,
)
from turnpike.service.artifact.proof_records import TensorParity, UnjudgedTensors

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
    failure = check_tensor(lucky)
    assert failure is not None
    assert failure.reason.startswith(
        "y over all ordinary batches: expected a root mean square error of at most 5.19e-07"
    )


def test_small_results_have_the_bound_of_their_usual_size() -> None:
    """A result near zero has the rounding errors of its usual size. A batch of zeros has none."""
    small = replace(GOOD, batch="1 row", rows=1, cells=1, scale=1e-6, rms_torch=0.0, max_torch=0.0)
    assert check_tensor([GOOD, small]) is None
    assert check_tensor([GOOD, replace(small, ordinary=False)]) is not None


def test_a_sensitive_tensor_has_the_usual_bounds() -> None:
    """What its sensitivity explains was left out of its errors cell by cell."""
    sensitive = replace(GOOD, batch="large", ordinary=False, sensitivity=1e-5)
    assert check_tensor([GOOD, sensitive]) is None
    assert check_tensor([GOOD, replace(sensitive, rms=1e-5)]) is not None


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
    failure = check_tensor([replace(GOOD, rms_torch=error, max_torch=error, eps=eps)])
    assert (failure is not None) == ill
    if ill:
        assert failure.reason == (
            "y is ill-conditioned, so parity means nothing here: expected the network's own rounding errors "
            "to be at most 1e-04 of the tensor's size, got 1.1e-04"
        )


def test_a_failure_names_its_batch() -> None:
    failed = replace(GOOD, batch="one NaN", mismatch="expected shape [1], got [2]")
    reason = "y with the batch 'one NaN': expected shape [1], got [2]"
    assert check_tensor([GOOD, failed]) == FirstFailure("y", reason, failed)


def test_a_tensor_without_finite_numbers_fails() -> None:
    """NaN everywhere equals NaN everywhere, and proves nothing."""
    nothing = TensorErrors("y", "output", "7 rows", True)
    reason = "y has no finite number in any batch: parity means nothing here"
    assert check_tensor([nothing]) == FirstFailure("y", reason)
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


def test_explained_errors_are_accepted() -> None:
    """A batch passes if the errors that remain are small in all batches that were explained."""
    failing = replace(GOOD, batch="few", rms=2e-5, max=2e-4)
    rest = [replace(GOOD, sensitivity=1e-5), replace(failing, rms=1e-7, max=3e-7, sensitivity=1e-5)]
    assert check_tensor([GOOD, failing]) is not None
    assert check_tensor([GOOD, failing], unexplained=rest) is None
    assert check_tensor([GOOD, failing], unexplained=[rest[0], replace(rest[1], rms=2e-6)]) is not None
    assert check_tensor([GOOD, failing], unexplained=[replace(rest[0], mismatch="NaN"), rest[1]]) is not None


def test_batches_that_were_not_explained_stay_judged() -> None:
    strained = replace(GOOD, batch="zeros", ordinary=False, rms=1e-5)
    failure = check_tensor([GOOD, strained], unexplained=[GOOD])
    assert failure is not None
    assert failure.reason.startswith("y with the batch 'zeros'")


def test_the_errors_over_all_batches_may_be_explained() -> None:
    lucky = [replace(GOOD, batch=f"{number}", rows=1, rms=6e-7) for number in range(3)]
    assert check_tensor(lucky) is not None
    assert check_tensor(lucky, unexplained=[replace(error, rms=1e-7) for error in lucky]) is None
    assert check_tensor(lucky, unexplained=lucky) is not None


def test_unjudged_tensors_are_listed_by_batch() -> None:
    """The first of them and their number name them all, since those after it follow."""
    table = ErrorTable({"a": "layer", "b": "gate", "c": "output"}, 2)
    for provider in range(2):
        for batch in ("rows", "large x10", "large x100"):
            for tensor in "abc":
                chaotic = (tensor == "b" and batch == "large x100") or (tensor, batch, provider) == (
                    "c",
                    "large x10",
                    1,
                )
                table.add(
                    provider,
                    replace(
                        GOOD,
                        tensor=tensor,
                        batch=batch,
                        ordinary=batch == "rows",
                        sensitivity=1e-3 if chaotic else 1e-8,
                    ),
                )
    assert table.unjudged() == (
        UnjudgedTensors(batch="large x10", first="c", tensors=1),
        UnjudgedTensors(batch="large x100", first="b", tensors=2),
    )
    assert table.first_failure(0.0) is None


def test_the_row_of_a_failure_has_the_figures_of_its_batch() -> None:
    """The figures over all batches may look good although one batch failed."""
    tensors = [TensorParity(name=name, rms=1e-7, rms_torch=1e-7, max=3e-7, max_torch=3e-7) for name in "xy"]
    failed = replace(GOOD, batch="large x10", ordinary=False, rms=5e-3, max=7e-2)
    failure = check_tensor([GOOD, failed])
    _, good, bad = format_table(tensors, failure).splitlines()
    assert bad.split() == ["y", "5.0e-03", "1.0e-07", "7.0e-02", "3.0e-07", "large", "x10", "<-", "failed"]
    assert good == format_table(tensors).splitlines()[1]
    over_all = check_tensor([replace(GOOD, batch=str(n), rows=1, rms=6e-7) for n in range(3)])
    assert "6.0e-07" in format_table(tensors, over_all).splitlines()[2]
