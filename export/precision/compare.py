"""A variant of lower precision beside fp32: how often the two agree, what that costs, and what it saves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from export.errors import PrecisionError
from export.measure.accuracy import are_probabilities, is_classification, score
from export.measure.run_rows import first_rows, round_figure, run_rows
from export.source import Rows
from service.artifact.manifest import Gate, Precision, Variant
from service.artifact.runtime import Runtime

Array = np.ndarray[Any, np.dtype[Any]]

AnswerKind = Literal["highest", "near", "equal"]

MIN_AGREEMENT = 0.99
MAX_COMPARED_ROWS = 2000
NEAR_TOLERANCE = 0.01
TIMED_ROWS = (1, 8, 64)
TIMING_SECONDS = 0.6  # for each of the batches, both models together
MAX_RUNS, MIN_RUNS = 200, 3


@dataclass(frozen=True)
class TensorDifference:
    """How far one tensor is from fp32's, over all rows: the mean and the largest difference."""

    name: str
    mean: float
    max: float


@dataclass(frozen=True)
class Speed:
    """Milliseconds of one run of so many rows, and the median of what fp32 took over what this one took."""

    rows: int
    fp32_ms: float
    ms: float
    ratio: float


@dataclass(frozen=True)
class Comparison:
    """What was measured of a variant. `drawn` rows are random ones, for want of data.

    `agreement` is the share of answers of the first output that agree. Where it holds several numbers
    for an answer, two agree when the same one is `highest`; a lone number agrees when it is `near` (within
    1 % of its own size or of the usual one), and whole numbers when they are `equal`. `metric` is
    accuracy, where classes are known.
    """

    precision: Precision
    provider: str
    rows: int
    drawn: bool
    kind: AnswerKind
    agreement: float
    metric: float | None
    metric_fp32: float | None
    outputs: tuple[TensorDifference, ...]
    gates: tuple[TensorDifference, ...]
    speed: tuple[Speed, ...]
    size: int
    size_fp32: int

    @property
    def variant(self) -> Variant:
        """What the manifest keeps: nothing that another machine would measure otherwise."""
        return Variant(
            agreement=self.agreement, rows=self.rows, metric=self.metric, metric_fp32=self.metric_fp32
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should know before serving it."""
        slower = [speed for speed in self.speed if speed.ratio < 1]
        found = []
        if slower:
            figures = ", ".join(f"{speed.ratio:.2f}x at {speed.rows}" for speed in slower)
            found.append(
                f"{self.precision} is slower than fp32 on this machine ({self.provider}; speed by rows "
                f"in a batch: {figures})"
            )
        if self.drawn:
            found.append(
                f"{self.precision} was compared with fp32 on {self.rows} random rows, which say little of "
                "real ones: give some with --data"
            )
        return tuple(found)


def compare(
    fp32: Runtime,
    lower: Runtime,
    rows: Rows,
    *,
    precision: Precision,
    gates: Sequence[Gate],
    sizes: tuple[int, int],
    drawn: bool = False,
) -> Comparison:
    """Run both models over the rows. `sizes` are the files' bytes, fp32's first."""
    rows = first_rows(rows, MAX_COMPARED_ROWS)
    hidden = [gate.name for gate in gates]
    # a file that has no manifest yet does not tell its public outputs from the others
    others = {*hidden, *(name for gate in gates for name in (gate.carry_gate, gate.output))}
    outputs = [tensor.name for tensor in fp32.outputs if tensor.name not in others]
    distances = {name: _DifferenceSum() for name in (*outputs, *hidden)}
    high, low = [], []
    for ours, theirs in zip(
        run_rows(fp32, rows, [*outputs, *hidden]), run_rows(lower, rows, [*outputs, *hidden]), strict=True
    ):
        for name, distance in distances.items():
            distance.add(ours.arrays[name], theirs.arrays[name])
        high.append(ours.first_axis_rows(outputs[0]))
        low.append(theirs.first_axis_rows(outputs[0]))
    wanted, got = np.concatenate(high), np.concatenate(low)
    metrics: tuple[float | None, float | None] = (None, None)
    if rows.classes is not None and is_classification(wanted, rows.classes):
        metrics = _accuracy(got, rows.classes), _accuracy(wanted, rows.classes)
    return Comparison(
        precision=precision,
        provider=lower.provider,
        rows=len(rows),
        drawn=drawn,
        kind=answer_kind(wanted),
        agreement=round_figure(agreement(wanted, got)),
        metric=metrics[0],
        metric_fp32=metrics[1],
        outputs=tuple(distances[name].figures(name) for name in outputs),
        gates=tuple(distances[name].figures(name) for name in hidden),
        speed=tuple(_time_alternately(fp32, lower, rows, outputs, count) for count in _timed_rows(fp32)),
        size=sizes[1],
        size_fp32=sizes[0],
    )


def require_agreement(comparison: Comparison, least: float = MIN_AGREEMENT) -> None:
    """Stop with a PrecisionError where the two agree too rarely."""
    if comparison.agreement >= least:
        return
    metric = ""
    if comparison.metric is not None and comparison.metric_fp32 is not None:
        metric = f", accuracy {comparison.metric:.4f} against {comparison.metric_fp32:.4f}"
    speed = ", ".join(f"{speed.ratio:.2f}x at {speed.rows}" for speed in comparison.speed)
    raise PrecisionError(
        f"--precision {comparison.precision}: expected agreement with fp32 of {least:g} or more "
        f"(--min-agreement), got {comparison.agreement:.4f} on {comparison.rows} "
        f"{'random' if comparison.drawn else 'given'} rows{metric}; speed against fp32 {speed}"
    )


def answer_kind(output: Array) -> AnswerKind:
    """What two answers are compared by, which the output's type and shape decide."""
    if output.dtype.kind != "f":
        return "equal"
    return "highest" if output.ndim >= 2 and output.shape[-1] >= 2 else "near"


def agreement(wanted: Array, got: Array) -> float:
    """The share of answers that agree, as `Comparison` defines it; NaN agrees with NaN alone."""
    kind = answer_kind(wanted)
    if kind == "equal":
        return float((wanted == got).mean())
    nan, nan_too = np.isnan(wanted), np.isnan(got)
    if kind == "highest":
        same = (wanted.argmax(-1) == got.argmax(-1)) & (nan.any(-1) == nan_too.any(-1))
        return float(same.mean())
    rms = float(np.sqrt((wanted[~nan].astype(np.float64) ** 2).mean())) if not nan.all() else 0.0
    near = np.abs(got.astype(np.float64) - wanted) <= NEAR_TOLERANCE * np.maximum(np.abs(wanted), rms)
    return float((near | (nan & nan_too)).mean())


def _accuracy(output: Array, classes: Array) -> float:
    return round_figure(score(output, classes, probabilities=are_probabilities(output)).accuracy)


def _timed_rows(runtime: Runtime) -> tuple[int, ...]:
    fixed = runtime.inputs[0].dims[0]
    return (fixed,) if isinstance(fixed, int) else TIMED_ROWS


def _time_alternately(fp32: Runtime, lower: Runtime, rows: Rows, outputs: Sequence[str], count: int) -> Speed:
    """Run the two in turns, so that what else the machine does slows both; too few rows are repeated."""
    at = np.arange(count) % len(rows)
    feeds = {name: array[at] for name, array in rows.inputs.items()}
    times: list[tuple[float, float]] = []
    for runtime in (fp32, lower):
        runtime.run(feeds, outputs)
    until = time.perf_counter() + TIMING_SECONDS
    while len(times) < MIN_RUNS or (len(times) < MAX_RUNS and time.perf_counter() < until):
        start = time.perf_counter()
        fp32.run(feeds, outputs)
        half = time.perf_counter()
        lower.run(feeds, outputs)
        times.append((half - start, time.perf_counter() - half))
    both = np.array(times) * 1000
    fp32_ms, ms = np.median(both, axis=0).tolist()
    return Speed(
        count,
        round_figure(fp32_ms),
        round_figure(ms),
        round_figure(float(np.median(both[:, 0] / both[:, 1]))),
    )


class _DifferenceSum:
    """The difference of one tensor so far."""

    def __init__(self) -> None:
        self.total = self.most = 0.0
        self.count = 0

    def add(self, wanted: Array, got: Array) -> None:
        apart = np.abs(got.astype(np.float64) - wanted)
        apart = apart[np.isfinite(apart)]
        self.total += float(apart.sum())
        self.count += apart.size
        self.most = max(self.most, float(apart.max(initial=0.0)))

    def figures(self, name: str) -> TensorDifference:
        return TensorDifference(name, round_figure(self.total / max(1, self.count)), round_figure(self.most))
