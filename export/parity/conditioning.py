"""Decides, before a file is refused, whether the network itself is ill-conditioned.

A gate that is about to switch may do so in one row of a hundred, so a few perturbed runs can miss it. More of
them are run only before a refusal: a proof that passes costs nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from turnpike.export.errors import ParityError
from turnpike.export.parity.batches import ProofBatch
from turnpike.export.parity.error_stats import EPS, rms
from turnpike.export.parity.reference import PERTURBATION, Reference, RejectedError
from turnpike.export.parity.verdict import ILL_CONDITIONED, FirstFailure, pooled_rms

# perturbed runs of each ordinary batch
REFUSAL_PERTURBATIONS = 16


def expect_well_conditioned(
    reference: Reference, batches: Sequence[ProofBatch], failure: FirstFailure
) -> None:
    """Raise if slight changes of ordinary inputs move the tensor that failed too far.

    A failure outside of ordinary batches, or one that is no matter of size (a shape, a NaN), says nothing
    about that.
    """
    stress = {name for batch in batches if not batch.ordinary for name in (batch.name, *batch.row_names)}
    errors = failure.errors
    if errors is None or errors.mismatch or errors.batch in stress:
        return
    movements: list[tuple[int, float]] = []
    sizes: list[tuple[int, float]] = []
    for batch in batches:
        if batch.ordinary:
            measured = replace(batch, compare_layers=True)
            try:
                still = reference.native(measured)[errors.tensor]
            except RejectedError:
                continue
            sizes.append((still.size, rms(still[np.isfinite(still)])))
            for seed in range(REFUSAL_PERTURBATIONS):
                moved = reference.moved(measured, seed)[errors.tensor]
                difference = np.abs(moved.astype(np.float64) - still)
                difference = difference[np.isfinite(difference)]
                movements.append((difference.size, rms(difference)))
    size = 1.0 if errors.kind == "gate" else pooled_rms(sizes)
    movement, limit = pooled_rms(movements), ILL_CONDITIONED * errors.eps / EPS
    if movement > limit * size:
        raise ParityError(
            f"{errors.tensor} is ill-conditioned, so parity means nothing here: expected it to move by at "
            f"most {limit:.0e} of its size when the input moves by {PERTURBATION / EPS:.0f} units in the "
            f"last place, got {movement / size:.1e}"
        )
