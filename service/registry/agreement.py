"""Whether a device answers as the CPU does, on which parity was proved."""

from __future__ import annotations

import numpy as np

from service.artifact.manifest import Manifest
from service.artifact.runtime import Runtime
from service.errors import ModelFileError
from service.inference_types import Array
from service.registry.probe import row_sets

ROWS = 64
# as at export: a multiple of what PyTorch itself was off the truth by, and of the last bit
FACTOR, LAST_BIT = 8, 2.0**-23


def expect_agreement(device: Runtime, cpu: Runtime, batch: str | None, where: str) -> None:
    """Stop with a ModelFileError where a device is further from the CPU than parity allows."""
    rows = next(row_sets(cpu, batch, ROWS), None)
    if rows is None:
        raise ModelFileError(
            f"{where}: expected rows to compare {device.provider} with the CPU on, and the model takes none "
            "of those that were tried",
            "its device could not be compared with the CPU",
        )
    names = [tensor.name for tensor in (*cpu.outputs, *cpu.hidden)]
    for name, got, expected in zip(names, device.run(rows, names), cpu.run(rows, names), strict=True):
        apart, allowed = _apart(got, expected), _allowed(cpu.manifest, name, expected)
        if apart > allowed:
            raise ModelFileError(
                f"{where}: {name}: expected {device.provider} within {allowed:.2g} of the CPU, "
                f"got {apart:.2g}",
                "its device does not answer as the CPU does",
            )


def _apart(got: Array, expected: Array) -> float:
    """The largest difference, infinite where shapes differ or only one side is NaN."""
    if got.shape != expected.shape:
        return float("inf")
    other = ~((got == expected) | (np.isnan(got) & np.isnan(expected)))
    apart = np.abs(got[other].astype(np.float64) - expected[other].astype(np.float64))
    return float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max(initial=0.0))


def _allowed(manifest: Manifest | None, name: str, expected: Array) -> float:
    """The bound of both together: each may be off the truth by as much as parity allows."""
    finite = expected[np.isfinite(expected)].astype(np.float64)
    size = max(1.0, float(np.sqrt(np.mean(finite**2)))) if finite.size else 1.0
    known = {tensor.name: tensor.max_torch for tensor in manifest.parity.tensors} if manifest else {}
    step = float(np.finfo(expected.dtype).eps) if expected.dtype.kind == "f" else 0.0
    return 2 * FACTOR * (known.get(name, 0.0) + max(step, LAST_BIT) * size)
