"""The verdict on rounding: whether every tensor is as close to the float64 reference as PyTorch is.

For a graph that is decided to be the network's function, it refuses only what is also far from the reference.

Allowed for onnxruntime: 4 times PyTorch's root mean square error, 8 times its largest error, and a margin
of the size of one rounding (see `ErrorBound`). A fixed tolerance raises false alarms on correct exports and
misses real faults, such as gate weights that were rounded to fp16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from turnpike.export.network import Array
from turnpike.export.parity.error_stats import EPS, ErrorHistogram, TensorErrors, TensorKind, absolute_errors
from turnpike.service.artifact.proof_records import TensorParity, UnjudgedTensors

# how many times PyTorch's error onnxruntime's may be: root mean square, and largest
RMS_FACTOR, MAX_FACTOR = 4.0, 8.0
# by how many standard deviations the error of a batch may exceed the usual error; 1 in 1000 batches does
FEW_ROWS_MARGIN = 3.0
# PyTorch's own error relative to a tensor's scale, in float32, above which parity means nothing
ILL_CONDITIONED = 1e-4
# the smallest normal float32: some devices flush smaller numbers to zero
SMALLEST_NORMAL = 2.0**-126

# (tensor, batch) pairs that are not judged
Unjudged = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class FirstFailure:
    """The first tensor, in data-flow order, that fails, and the reason in a sentence.

    `errors` are those of the batch that failed; None if parity means nothing for the tensor.
    """

    tensor: str
    reason: str
    errors: TensorErrors | None = None


@dataclass(frozen=True)
class ErrorBound:
    """PyTorch's own error in one tensor over all ordinary batches, relative to the tensor's `scale`.

    In a batch of few rows PyTorch's error may be almost zero by chance. So the bound for a batch also uses
    the usual error, with a margin that grows as the number of rows shrinks.
    """

    rms: float
    max: float
    scale: float

    def bounds(self, errors: TensorErrors) -> tuple[float, float]:
        """How large onnxruntime's error may be in one batch: root mean square, and largest."""
        # if data rows happen to give small values, those are still sums of numbers of the usual size
        scale = max(errors.scale, self.scale) if errors.ordinary else errors.scale
        margin = 1 + FEW_ROWS_MARGIN / errors.rows**0.5
        usual_rms = max(errors.rms_torch, self.rms * scale * margin)
        usual_max = max(errors.max_torch, self.max * scale * margin)
        rounding = errors.eps * scale
        return (
            RMS_FACTOR * usual_rms + rounding + SMALLEST_NORMAL,
            MAX_FACTOR * (usual_max + rounding) + SMALLEST_NORMAL,
        )


def error_bound(errors: Sequence[TensorErrors], noise: float = 0.0) -> ErrorBound:
    """The bound of one tensor from PyTorch's error in its ordinary batches.

    `noise` is the relative error of the reference itself; the bound is never smaller.
    """
    ordinary = _ordinary(errors)
    scale = pooled_rms([(batch.cells, batch.scale) for batch in ordinary])
    if not scale:
        return ErrorBound(noise, noise, scale)
    rms = pooled_rms([(batch.cells, batch.rms_torch) for batch in ordinary])
    largest = max(noise, *(batch.max_torch / scale for batch in ordinary))
    return ErrorBound(max(noise, rms / scale), largest, scale)


def find_unjudged(errors: Sequence[TensorErrors]) -> Unjudged:
    """Find tensors of stress batches whose values depend on rounding, and everything computed after them.

    Values far from the data bring gates close to where they switch; from there on, rounding decides.

    Args:
        errors: The errors of all tensors with one provider, in data-flow order.
    """
    chaotic_batches: set[str] = set()
    unjudged = set()
    for error in errors:
        torch_error = max(error.rms_torch, error.sensitivity or 0.0)
        if not error.ordinary and torch_error > _ill_conditioned(error) * error.scale:
            chaotic_batches.add(error.batch)
        if error.batch in chaotic_batches:
            unjudged.add((error.tensor, error.batch))
    return frozenset(unjudged)


def check_tensor(
    errors: Sequence[TensorErrors],
    *,
    unjudged: Unjudged = frozenset(),
    noise: float = 0.0,
    unexplained: Sequence[TensorErrors] = (),
) -> FirstFailure | None:
    """Check one tensor in all batches; returns the first failure, or None.

    Args:
        errors: The errors of the tensor, batch by batch.
        unjudged: The pairs of tensor and batch that are not judged.
        noise: The relative error of the reference.
        unexplained: The errors in some of these batches as far as slight changes of the input do not explain
            them. If all of these pass, those batches do.
    """
    bound, tensor = error_bound(errors, noise), errors[0].tensor
    limit = _ill_conditioned(errors[0])
    if bound.rms > limit:
        return FirstFailure(
            tensor,
            f"{tensor} is ill-conditioned, so parity means nothing here: expected the network's own rounding "
            f"errors to be at most {limit:.0e} of the tensor's size, got {bound.rms:.1e}",
        )
    failure = _check_batches(errors, bound, unjudged) or _check_over_all(tensor, _ordinary(errors), bound)
    if failure is None or not unexplained:
        return failure
    strict = error_bound(unexplained, noise)
    if _check_batches(unexplained, strict, unjudged) or _check_over_all(
        tensor, _ordinary(unexplained), strict
    ):
        return failure
    names = {error.batch for error in unexplained}
    return _check_batches([error for error in errors if error.batch not in names], bound, unjudged)


def check_decided(errors: Sequence[TensorErrors], noise: float = 0.0) -> FirstFailure | None:
    """Check the rounding of one tensor of a graph that is decided to be the network's function.

    It fails if its error over all ordinary batches is both larger than PyTorch's allows and above
    ILL_CONDITIONED of its size. In other batches, rounding may decide everything.
    """
    ordinary = [error for error in errors if error.ordinary]
    for error in ordinary:
        if error.mismatch:
            return FirstFailure(
                error.tensor, f"{error.tensor} with the batch {error.batch!r}: {error.mismatch}", error
            )
    bound, judged = error_bound(errors, noise), _ordinary(errors)
    failure = (
        _check_over_all(errors[0].tensor, judged, bound) if any(error.cells for error in judged) else None
    )
    rms = pooled_rms([(error.cells, error.rms) for error in judged])
    return None if rms <= _ill_conditioned(errors[0]) * bound.scale else failure


def _check_batches(
    errors: Sequence[TensorErrors], bound: ErrorBound, unjudged: Unjudged
) -> FirstFailure | None:
    """The first batch in which the errors of a tensor are too large."""
    for error in errors:
        tensor = error.tensor
        where = f"{tensor} with the batch {error.batch!r}"
        if error.mismatch:
            return FirstFailure(tensor, f"{where}: {error.mismatch}", error)
        if (error.tensor, error.batch) in unjudged:
            continue
        rms_limit, max_limit = bound.bounds(error)
        if not error.rms <= rms_limit:
            return FirstFailure(
                tensor,
                f"{where}: expected a root mean square error of at most {rms_limit:.2e} "
                f"(the network's own is {error.rms_torch:.2e}), got {error.rms:.2e}",
                error,
            )
        if not error.max <= max_limit:
            return FirstFailure(
                tensor,
                f"{where}: expected errors of at most {max_limit:.2e} "
                f"(the network's own are at most {error.max_torch:.2e}), got {error.max:.2e}",
                error,
            )
    return None


def pooled_rms(parts: Sequence[tuple[int, float]]) -> float:
    """The root mean square over several batches, given (cells, root mean square) of each."""
    cells = sum(count for count, _ in parts)
    return float(sum(count * rms**2 for count, rms in parts) / cells) ** 0.5 if cells else 0.0


def _check_over_all(tensor: str, ordinary: Sequence[TensorErrors], bound: ErrorBound) -> FirstFailure | None:
    """The strict bound, without the margin for few rows, over all ordinary batches together."""
    if not any(error.cells for error in ordinary):
        return FirstFailure(tensor, f"{tensor} has no finite number in any batch: parity means nothing here")
    limit = RMS_FACTOR * bound.rms * bound.scale + ordinary[0].eps * bound.scale + SMALLEST_NORMAL
    rms = pooled_rms([(error.cells, error.rms) for error in ordinary])
    if rms <= limit:
        return None
    rms_torch, largest = bound.rms * bound.scale, max(error.max for error in ordinary)
    return FirstFailure(
        tensor,
        f"{tensor} over all ordinary batches: expected a root mean square error of at most {limit:.2e} "
        f"(the network's own is {rms_torch:.2e}), got {rms:.2e}",
        replace(
            ordinary[0],
            batch="all ordinary batches",
            rms=rms,
            rms_torch=rms_torch,
            max=largest,
            max_torch=bound.max * bound.scale,
        ),
    )


def _ordinary(errors: Sequence[TensorErrors]) -> list[TensorErrors]:
    return [error for error in errors if error.ordinary and not error.mismatch]


def _ill_conditioned(errors: TensorErrors) -> float:
    """ILL_CONDITIONED in the precision of the tensor."""
    return ILL_CONDITIONED * errors.eps / EPS


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

    def first_failure_of_decided(self, noise: float) -> FirstFailure | None:
        """The first tensor whose rounding fails with any provider, in a graph that is decided."""
        providers = [self._by_tensor(provider) for provider in range(len(self.errors))]
        failures = (
            check_decided(errors[name], noise) for name in self.kinds for errors in providers if errors[name]
        )
        return next(filter(None, failures), None)

    def first_failure(self, noise: float, unexplained: ErrorTable | None = None) -> FirstFailure | None:
        """The first tensor in data-flow order that fails with any provider; None if all pass.

        `unexplained` holds errors of the same batches as far as nothing explains them.
        """
        providers = [
            (
                self._by_tensor(provider),
                self._unjudged(provider),
                {} if unexplained is None else unexplained._by_tensor(provider),
            )
            for provider in range(len(self.errors))
        ]
        for name in self.kinds:
            for errors, unjudged, rest in providers:
                if errors[name] and (
                    failure := check_tensor(
                        errors[name], unjudged=unjudged, noise=noise, unexplained=rest.get(name, ())
                    )
                ):
                    return failure
        return None

    def unjudged(self) -> tuple[UnjudgedTensors, ...]:
        """Which tensors were not judged in which batch, with any provider."""
        pairs = {pair for provider in range(len(self.errors)) for pair in self._unjudged(provider)}
        batches = dict.fromkeys(error.batch for errors in self.errors for error in errors)
        names = {batch: [name for name in self.kinds if (name, batch) in pairs] for batch in batches}
        return tuple(
            UnjudgedTensors(batch=batch, first=tensors[0], tensors=len(tensors))
            for batch, tensors in names.items()
            if tensors
        )

    def _by_tensor(self, provider: int) -> dict[str, list[TensorErrors]]:
        by_tensor: dict[str, list[TensorErrors]] = {name: [] for name in self.kinds}
        for error in self.errors[provider]:
            by_tensor[error.tensor].append(error)
        return by_tensor

    def _unjudged(self, provider: int) -> Unjudged:
        return find_unjudged([error for errors in self._by_tensor(provider).values() for error in errors])

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


def format_table(tensors: Sequence[TensorParity], failure: FirstFailure | None = None) -> str:
    """The errors of each tensor in the file beside those of the network itself, as lines of text.

    The row of the tensor that failed has the figures of the batch in which it failed, and names it.
    """
    width = max(map(len, ("tensor", *(tensor.name for tensor in tensors))))
    lines = [f"{'tensor':{width}}  {'rms':>8}  {'network':>8}  {'max':>8}  {'network':>8}"]
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
