"""Chooses the optimizers of onnxruntime with which a file is served: those that keep its function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from turnpike.export.identity.decision import Verdict
from turnpike.export.measure.run_times import time_in_turn
from turnpike.export.optimized.decide_optimized import decide_optimized, fitting_sizes
from turnpike.export.optimized.wrong_optimizers import find_wrong_optimizer
from turnpike.service.artifact.runtime import open_model

# rows of the runs that are timed
TIMED_ROWS = 1


@dataclass(frozen=True)
class ServedGraph:
    """How a file is served.

    Attributes:
        disabled_optimizers: The optimizers that its manifest tells the service to leave out.
        warnings: What the user should know about them.
    """

    disabled_optimizers: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


ALL_OPTIMIZERS = ServedGraph()


def choose_optimizers(data: bytes) -> ServedGraph:
    """Leave out the optimizer that makes another function of a file, if there is one.

    A file about which nothing is decided is served with all optimizers.

    Args:
        data: The content of the file.
    """
    graph = decide_optimized(data)
    if graph.decision.verdict is not Verdict.DIFFERENT:
        return ALL_OPTIMIZERS
    wrong = find_wrong_optimizer(data)
    problem = f"onnxruntime's optimizer makes {graph.verdict_text}"
    if wrong is None:
        return ServedGraph(
            warnings=(f"{problem}. Leaving out one of its optimizers does not help: compare answers on rows",)
        )
    ratio, noise = _cost(data, wrong.name)
    return ServedGraph(
        (wrong.name,),
        (
            f"{problem}. The file is served without its optimizer {wrong.name}: a run of one row takes "
            f"{ratio:.2f} times as long (± {noise:.2f})",
        ),
    )


def _cost(data: bytes, optimizer: str) -> tuple[float, float]:
    """The time of a run without an optimizer as a multiple of that with it, and its uncertainty."""
    times = time_in_turn([_run(data, ()), _run(data, (optimizer,))])
    ratio = times.seconds[1] / times.seconds[0]
    return ratio, ratio * times.noise


def _run(data: bytes, disabled_optimizers: tuple[str, ...]) -> Callable[[], object]:
    runtime = open_model(data, disabled_optimizers=disabled_optimizers)
    sizes = fitting_sizes(runtime)
    dims = sizes.with_rows(TIMED_ROWS)
    return partial(
        runtime.run, {spec.name: np.zeros(spec.shape(**dims), spec.dtype) for spec in sizes.inputs}
    )
