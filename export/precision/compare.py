"""Compares a lower-precision variant with fp32: agreement and error, accuracy, speed and file size."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from turnpike.export.errors import PrecisionError
from turnpike.export.measure.accuracy import judge
from turnpike.export.measure.run_rows import round_figure, run_rows, spread_rows
from turnpike.export.measure.run_times import time_in_turn
from turnpike.export.network import Array, Rows
from turnpike.export.options import AgreementLimits
from turnpike.service.artifact.devices import DevicePrecision
from turnpike.service.artifact.manifest import Gate, Precision, Variant
from turnpike.service.artifact.runtime import Runtime

AnswerKind = Literal["highest", "near", "equal"]

MAX_COMPARED_ROWS = 2000
# two numbers are near if they differ by at most this share of their size
NEAR_TOLERANCE = 0.01
# numbers of rows in a batch for which the speed is measured
TIMED_ROWS = (1, 8, 64)
# seconds of timing for each number of rows, both models together
TIMING_SECONDS = 0.6
# smaller differences in speed count as none
LEAST_FACTOR = 1.05


@dataclass(frozen=True)
class TensorDifference:
    """Difference of one tensor from fp32 over all rows: mean, largest, and root mean square error.

    `relative` is the last, divided by the tensor's own root mean square. It is infinite if one of the two
    has numbers where the other has NaN or infinities.
    """

    name: str
    mean: float
    max: float
    relative: float


@dataclass(frozen=True)
class Speed:
    """CPU milliseconds of one run of a batch of `rows`, and the speed-up over fp32 (`ratio`)."""

    rows: int
    fp32_ms: float
    ms: float
    ratio: float

    @property
    def is_slower(self) -> bool:
        """Whether it is slower by 5 % or more; less is not worth a word."""
        return self.ratio <= 1 / LEAST_FACTOR

    @property
    def factor(self) -> str:
        """The speed in words, as in `2.0 times slower`."""
        if self.is_slower:
            return f"{1 / self.ratio:.1f} times slower"
        return f"{self.ratio:.1f} times faster" if self.ratio >= LEAST_FACTOR else "as fast"

    @property
    def text(self) -> str:
        """The speed and its number of rows, as in `2.0 times slower with 1 row`."""
        return f"{self.factor} with {self.rows} row{'s' if self.rows > 1 else ''}"


@dataclass(frozen=True)
class Comparison:
    """The measurements of a variant.

    Attributes:
        precision: Precision of the variant.
        provider: Provider of onnxruntime that ran it.
        rows: Number of rows compared.
        drawn: Whether the rows were random, because no data was given.
        kind: How answers of the first output are compared. If an answer has several numbers, two agree
            when the same one is "highest". A single number agrees when it is "near" (within 1 % of its own
            size or of the root mean square of all), and integers when they are "equal".
        agreement: Share of answers that agree.
        error: Relative root mean square error of the public output that changes most; None if all outputs
            are integers.
        metric: Accuracy of the variant, if the classes are known, or R2, if the numbers to predict are.
        metric_fp32: The same of fp32.
        outputs: Difference of each public output.
        gates: Difference of each gate.
        speed: Speed for several numbers of rows.
        size: Bytes of the variant's file.
        size_fp32: Bytes of the fp32 file.
    """

    precision: Precision | DevicePrecision
    provider: str
    rows: int
    drawn: bool
    kind: AnswerKind
    agreement: float
    error: float | None
    metric: float | None
    metric_fp32: float | None
    outputs: tuple[TensorDifference, ...]
    gates: tuple[TensorDifference, ...]
    speed: tuple[Speed, ...]
    size: int
    size_fp32: int

    @property
    def metric_name(self) -> str:
        """What `metric` is."""
        return "R2" if self.kind == "near" else "accuracy"

    @property
    def variant(self) -> Variant:
        """The manifest's record, without figures that differ between machines."""
        return Variant(
            agreement=self.agreement,
            error=self.error,
            rows=self.rows,
            metric=self.metric,
            metric_fp32=self.metric_fp32,
        )

    @property
    def summary(self) -> str:
        """Agreement, error and number of rows in a sentence."""
        error = "" if self.error is None else f", relative rms error {self.error:.2%}"
        return f"{self.precision}: agrees with fp32 on {self.agreement:.2%} of {self.rows} rows{error}"

    @property
    def tensor_lines(self) -> tuple[str, ...]:
        """A line for each output and each gate, with its difference from fp32."""
        return tuple(
            f"{tensor.name}: relative rms error {tensor.relative:.2%}, largest difference {tensor.max:.2g}"
            for tensor in (*self.outputs, *self.gates)
        )

    @property
    def speed_text(self) -> str:
        """How much faster or slower than fp32 the variant is, for each number of rows."""
        return f"speed compared with fp32: {', '.join(speed.text for speed in self.speed)}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for a user who wants to serve the variant."""
        slower = [speed.text for speed in self.speed if speed.is_slower]
        warnings = []
        if slower:
            warnings.append(
                f"{self.precision} is slower than fp32 on this machine ({self.provider}): {', '.join(slower)}"
            )
        if self.drawn:
            warnings.append(
                f"{self.precision} was compared with fp32 on {self.rows} random rows, which say little "
                "about real ones: give real rows with --data"
            )
        return tuple(warnings)


def compare(
    fp32: Runtime,
    lower: Runtime,
    rows: Rows,
    *,
    precision: Precision | DevicePrecision,
    gates: Sequence[Gate],
    sizes: tuple[int, int],
    drawn: bool = False,
    max_rows: int = MAX_COMPARED_ROWS,
    timing_seconds: float = TIMING_SECONDS,
) -> Comparison:
    """Run both models over the rows, and measure their speed.

    Args:
        fp32: The fp32 model.
        lower: The variant.
        rows: Rows to compare on, with classes if they are known.
        precision: Precision of the variant.
        gates: Gates of the model.
        sizes: Bytes of the two files, fp32 first.
        drawn: Whether the rows are random.
        max_rows: Number of rows to compare at most.
        timing_seconds: Seconds of timing for each number of rows.

    Returns:
        The comparison.
    """
    rows = spread_rows(rows, max_rows)
    hidden = [gate.name for gate in gates]
    # a file without a manifest does not tell its public outputs from the hidden ones
    not_public = {*hidden, *(name for gate in gates for name in (gate.carry_gate, gate.output))}
    outputs = [tensor.name for tensor in fp32.outputs if tensor.name not in not_public]
    differences = {name: DifferenceSum() for name in (*outputs, *hidden)}
    answers_fp32, answers_lower = [], []
    for batch_fp32, batch_lower in zip(
        run_rows(fp32, rows, [*outputs, *hidden]), run_rows(lower, rows, [*outputs, *hidden]), strict=True
    ):
        for name, difference in differences.items():
            difference.add(batch_fp32.arrays[name], batch_lower.arrays[name])
        answers_fp32.append(batch_fp32.first_axis_rows(outputs[0]))
        answers_lower.append(batch_lower.first_axis_rows(outputs[0]))
    expected, actual = np.concatenate(answers_fp32), np.concatenate(answers_lower)
    scores = judge(actual, rows), judge(expected, rows)
    metrics = [None if score is None else round_figure(score.accuracy) for score in scores]
    output_differences = tuple(differences[name].result(name) for name in outputs)
    return Comparison(
        precision=precision,
        provider=lower.provider,
        rows=len(rows),
        drawn=drawn,
        kind=answer_kind(expected),
        agreement=round_figure(agreement(expected, actual)),
        error=max(
            (output.relative for output in output_differences if differences[output.name].is_float),
            default=None,
        ),
        metric=metrics[0],
        metric_fp32=metrics[1],
        outputs=output_differences,
        gates=tuple(differences[name].result(name) for name in hidden),
        speed=tuple(
            _time_alternately(fp32, lower, rows, outputs, count, timing_seconds)
            for count in _timed_rows(fp32)
        ),
        size=sizes[1],
        size_fp32=sizes[0],
    )


def require_agreement(comparison: Comparison, limits: AgreementLimits) -> None:
    """Raise a PrecisionError if the answers agree too rarely, or if the outputs differ too much.

    A network with a single number as its answer has no classes: it is judged by the error alone.
    """
    failures = []
    if comparison.kind != "near" and comparison.agreement < limits.min_agreement:
        failures.append(
            f"expected the answers of fp32 in a share of {limits.min_agreement:g} or more (--min-agreement), "
            f"got {comparison.agreement:g}"
        )
    if comparison.error is not None and comparison.error > limits.max_error:
        failures.append(
            f"expected a relative rms error of {limits.max_error:g} or less (--max-error), "
            f"got {comparison.error:g}"
        )
    if not failures:
        return
    metric = ""
    if comparison.metric is not None and comparison.metric_fp32 is not None:
        metric = f"; {comparison.metric_name} {comparison.metric:g}, in fp32 {comparison.metric_fp32:g}"
    rows = f"{comparison.rows} random rows (give real ones with --data)" if comparison.drawn else "your rows"
    raise PrecisionError(
        f"--precision {comparison.precision}: {', and '.join(failures)}, on {rows}{metric}; "
        f"{comparison.speed_text}"
    )


def answer_kind(output: Array) -> AnswerKind:
    """How answers are compared, from the dtype and shape of the output."""
    if output.dtype.kind != "f":
        return "equal"
    return "highest" if output.ndim >= 2 and output.shape[-1] >= 2 else "near"


def agreement(expected: Array, actual: Array) -> float:
    """The share of answers that agree, as `Comparison` defines it; NaN agrees only with NaN."""
    kind = answer_kind(expected)
    if kind == "equal":
        return float((expected == actual).mean())
    nan_expected, nan_actual = np.isnan(expected), np.isnan(actual)
    if kind == "highest":
        same = (expected.argmax(-1) == actual.argmax(-1)) & (nan_expected.any(-1) == nan_actual.any(-1))
        return float(same.mean())
    numbers = expected[~nan_expected].astype(np.float64)
    rms = float(np.sqrt((numbers**2).mean())) if numbers.size else 0.0
    near = np.abs(actual.astype(np.float64) - expected) <= NEAR_TOLERANCE * np.maximum(np.abs(expected), rms)
    return float((near | (nan_expected & nan_actual)).mean())


def _timed_rows(runtime: Runtime) -> tuple[int, ...]:
    fixed = runtime.inputs[0].dims[0]
    return (fixed,) if isinstance(fixed, int) else TIMED_ROWS


def _time_alternately(
    fp32: Runtime, lower: Runtime, rows: Rows, outputs: Sequence[str], count: int, seconds: float
) -> Speed:
    """Time both models alternately. Rows are repeated to fill a batch."""
    indices = np.arange(count) % len(rows)
    feeds = {name: array[indices] for name, array in rows.inputs.items()}
    runs = [partial(runtime.run, feeds, outputs) for runtime in (fp32, lower)]
    # another device runs a graph outside of this thread
    clock = time.thread_time if fp32.device == lower.device == "cpu" else time.perf_counter
    times = time_in_turn(runs, seconds=seconds / 2, max_seconds=seconds, clock=clock)
    fp32_seconds, lower_seconds = times.seconds
    return Speed(
        count,
        round_figure(fp32_seconds * 1000),
        round_figure(lower_seconds * 1000),
        round_figure(fp32_seconds / lower_seconds),
    )


class DifferenceSum:
    """Accumulates the difference of one tensor over batches; cells that are not finite do not count."""

    def __init__(self) -> None:
        self.total = self.largest = self.squares = self.squares_fp32 = 0.0
        self.count = 0
        self.is_float = self.same_finite = True

    def add(self, expected: Array, actual: Array) -> None:
        self.is_float = expected.dtype.kind == "f"
        finite = np.isfinite(expected)
        self.same_finite &= np.array_equal(finite, np.isfinite(actual))
        finite &= np.isfinite(actual)
        numbers = expected[finite].astype(np.float64)
        differences = np.abs(actual[finite] - numbers)
        self.total += float(differences.sum())
        self.squares += float((differences**2).sum())
        self.squares_fp32 += float((numbers**2).sum())
        self.count += differences.size
        self.largest = max(self.largest, float(differences.max(initial=0.0)))

    def result(self, name: str) -> TensorDifference:
        relative = (self.squares / self.squares_fp32) ** 0.5 if self.squares_fp32 else float(self.squares > 0)
        return TensorDifference(
            name,
            mean=round_figure(self.total / max(1, self.count)),
            max=round_figure(self.largest),
            relative=round_figure(relative) if self.same_finite else math.inf,
        )
