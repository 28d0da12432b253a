"""The verdict on rounding: whether every tensor is about as close to the float64 reference as PyTorch is.

Over all ordinary batches, onnxruntime's root mean square error may be 4 times PyTorch's, and a margin of the
size of one rounding. A fixed tolerance raises false alarms on correct exports and misses real faults, such as
gate weights that were rounded to fp16. A graph that is decided to be the network's function is refused only
if the error is above FAR, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from turnpike.export.network import Array
from turnpike.export.parity.batches import ONE_INF, ONE_NAN
from turnpike.export.parity.error_stats import EPS, ErrorHistogram, TensorErrors, TensorKind, absolute_errors
from turnpike.service.artifact.proof_records import TensorParity

# how many times PyTorch's root mean square error onnxruntime's may be: over all ordinary batches, and in one
# extreme batch, whose few numbers vary more
RMS_FACTOR, EXTREME_FACTOR = 4.0, 8.0
# Error relative to a tensor's size, in float32, that is far from the reference. If PyTorch's own is larger,
# agreement means nothing.
FAR = 1e-4
# the smallest normal float32: some devices flush smaller numbers to zero
SMALLEST_NORMAL = 2.0**-126


@dataclass(frozen=True)
class Failure:
    """A tensor that is beyond its bound, the reason in a sentence, and the errors that show it, if any do."""

    tensor: str
    reason: str
    errors: TensorErrors | None = None


def check_ordinary(errors: Sequence[TensorErrors], noise: float, *, decided: bool) -> Failure | None:
    """Check one tensor over all its ordinary batches.

    Args:
        errors: The errors of the tensor, batch by batch.
        noise: The relative error of the reference; PyTorch's counts as at least that.
        decided: Whether the graph is decided to be the network's function.
    """
    tensor, ordinary = errors[0].tensor, [error for error in errors if error.ordinary]
    for error in ordinary:
        if error.mismatch:
            return _mismatch(error)
    cells = sum(error.cells for error in ordinary)
    if not cells:
        reason = f"{tensor} has no finite number in any batch: parity means nothing here"
        return None if decided else Failure(tensor, reason)
    scale = pooled_rms([(error.cells, error.scale) for error in ordinary])
    rms = pooled_rms([(error.cells, error.rms) for error in ordinary])
    rms_torch = pooled_rms([(error.cells, error.rms_torch) for error in ordinary])
    pooled = replace(
        ordinary[0],
        batch="all ordinary batches",
        cells=cells,
        rms=rms,
        rms_torch=max(rms_torch, noise * scale),
        max=max(error.max for error in ordinary),
        max_torch=max(error.max_torch for error in ordinary),
        scale=scale,
    )
    if not decided and pooled.rms_torch > _far(pooled):
        return Failure(
            tensor,
            f"{tensor} is ill-conditioned, so parity means nothing here: expected the network's own rounding "
            f"errors to be at most {_far(pooled) / scale:.0e} of the tensor's size, "
            f"got {pooled.rms_torch / scale:.1e}",
        )
    place, at_least = f"{tensor} over all ordinary batches", _far(pooled) if decided else 0
    return _check_size(pooled, place, RMS_FACTOR, at_least=at_least)


def check_extreme(errors: Iterable[TensorErrors]) -> Failure | None:
    """Check one tensor in each extreme batch of finite numbers, where an error counts only if it is far."""
    checks = (
        _check_size(error, _place(error), EXTREME_FACTOR, at_least=_far(error))
        for error in errors
        if not error.ordinary and not error.mismatch and error.batch not in (ONE_NAN, ONE_INF)
    )
    return next(filter(None, checks), None)


def _check_size(errors: TensorErrors, place: str, factor: float, *, at_least: float) -> Failure | None:
    limit = max(factor * errors.rms_torch + errors.eps * errors.scale + SMALLEST_NORMAL, at_least)
    if errors.rms <= limit:
        return None
    return Failure(
        errors.tensor,
        f"{place}: expected a root mean square error of at most {limit:.2e} "
        f"(the network's own is {errors.rms_torch:.2e}), got {errors.rms:.2e}",
        errors,
    )


def _mismatch(errors: TensorErrors) -> Failure:
    return Failure(errors.tensor, f"{_place(errors)}: {errors.mismatch}", errors)


def _place(errors: TensorErrors) -> str:
    return f"{errors.tensor} with the batch {errors.batch!r}"


def _far(errors: TensorErrors) -> float:
    """FAR in the precision and of the size of the tensor."""
    return FAR * errors.eps / EPS * errors.scale


def pooled_rms(parts: Sequence[tuple[int, float]]) -> float:
    """The root mean square over several batches, given (cells, root mean square) of each."""
    cells = sum(count for count, _ in parts)
    return float(sum(count * rms**2 for count, rms in parts) / cells) ** 0.5 if cells else 0.0


class ErrorTable:
    """Collects the errors of every tensor and batch for each provider, and decides.

    `kinds` names the tensors in data-flow order.
    """

    def __init__(self, kinds: dict[str, TensorKind], providers: int) -> None:
        self.kinds = kinds
        self.errors: tuple[list[TensorErrors], ...] = tuple([] for _ in range(providers))
        self._histograms = {name: (ErrorHistogram(), ErrorHistogram()) for name in kinds}

    def add(self, provider: int, errors: TensorErrors) -> None:
        """Add the errors of one tensor in one batch."""
        self.errors[provider].append(errors)

    def count(self, name: str, ort: Array, native: Array, float64: Array) -> None:
        """Count the errors of both sides in the tensor's histograms."""
        sides = absolute_errors(ort, native, float64)[:2]
        for histogram, errors in zip(self._histograms[name], sides, strict=True):
            histogram.add(errors)

    def histograms(self) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        """For each tensor, the counts of onnxruntime's errors by magnitude, and of PyTorch's."""
        return {
            name: (tuple(ort.counts.tolist()), tuple(torch.counts.tolist()))
            for name, (ort, torch) in self._histograms.items()
        }

    def failure(self, noise: float, *, decided: bool) -> Failure | None:
        """The first tensor in data-flow order that refuses the graph, with any provider; None if all pass."""
        for errors in self._by_tensor():
            failure = check_ordinary(errors, noise, decided=decided)
            if failure is None and not decided:
                failure = check_extreme(errors)
            if failure is not None:
                return failure
        return None

    def first_beyond(self, noise: float) -> Failure | None:
        """The first tensor in data-flow order that is beyond a bound in any batch, with any provider."""
        for errors in self._by_tensor():
            mismatches = (_mismatch(error) for error in errors if error.mismatch)
            beyond = check_ordinary(errors, noise, decided=False) or check_extreme(errors)
            if (failure := beyond or next(mismatches, None)) is not None:
                return failure
        return None

    def _by_tensor(self) -> list[list[TensorErrors]]:
        """The errors of each tensor with each provider."""
        groups = [
            [error for error in errors if error.tensor == name]
            for name in self.kinds
            for errors in self.errors
        ]
        return [group for group in groups if group]

    def tensors(self) -> tuple[TensorParity, ...]:
        """Each tensor's errors over all ordinary batches, with the worst provider."""
        return tuple(self._tensor(name) for name in self.kinds)

    def _tensor(self, name: str) -> TensorParity:
        providers = [
            [error for error in errors if error.tensor == name and error.ordinary and not error.mismatch]
            for errors in self.errors
        ]
        return TensorParity(
            name=name,
            rms=max(pooled_rms([(error.cells, error.rms) for error in errors]) for errors in providers),
            rms_torch=max(
                pooled_rms([(error.cells, error.rms_torch) for error in errors]) for errors in providers
            ),
            max=max((error.max for errors in providers for error in errors), default=0.0),
            max_torch=max((error.max_torch for errors in providers for error in errors), default=0.0),
        )


def format_table(tensors: Sequence[TensorParity], failure: Failure | None = None) -> str:
    """The errors of each tensor in the file beside those of the network itself, as lines of text.

    The row of the tensor that failed has the figures of the batches in which it failed, and names them.
    """
    width = max(map(len, ("tensor", *(tensor.name for tensor in tensors))))
    lines = [f"{'tensor':{width}}  {'rms file':>8}  {'rms net':>8}  {'max file':>8}  {'max net':>8}"]
    for tensor in tensors:
        figures: TensorParity | TensorErrors = tensor
        mark = ""
        if failure is not None and tensor.name == failure.tensor:
            mark = "  <- failed"
            if failure.errors is not None:
                figures, mark = failure.errors, f"  {failure.errors.batch}{mark}"
        lines.append(
            f"{tensor.name:{width}}  {figures.rms:8.1e}  {figures.rms_torch:8.1e}  {figures.max:8.1e}  "
            f"{figures.max_torch:8.1e}{mark}"
        )
    return "\n".join(lines)
