"""Compares a model on a device with the same model on the CPU provider, before it is served."""

from __future__ import annotations

import numpy as np

from service.artifact.devices import DevicePrecision
from service.artifact.manifest import Manifest
from service.artifact.runtime import Runtime
from service.errors import ModelFileError
from service.inference_types import Array
from service.registry.probe import find_rows

# rows on which a device is compared with the CPU
AGREEMENT_ROWS = 64
# The parity proof allows this many times the sum of PyTorch's own error and one rounding of a number as large
# as the tensor's.
PARITY_FACTOR = 8
# the relative error of one rounding
ROUNDING_ERRORS: dict[DevicePrecision, float] = {"fp32": 2.0**-23, "bf16": 2.0**-8}


def check_device_agreement(device: Runtime, cpu: Runtime, batch: str | None, where: str) -> None:
    """Raise ModelFileError if a device differs from the CPU provider by more than parity allows."""
    rows = next(find_rows(cpu, batch, AGREEMENT_ROWS), None)
    if rows is None:
        raise ModelFileError(
            f"{where}: expected rows on which to compare {device.provider} with the CPU, "
            "and the model accepts none of those that were tried",
            "its device could not be compared with the CPU",
        )
    names = [tensor.name for tensor in (*cpu.outputs, *cpu.hidden)]
    for name, actual, expected in zip(names, device.run(rows, names), cpu.run(rows, names), strict=True):
        difference = _max_difference(actual, expected)
        allowed = _allowed_difference(cpu.manifest, name, expected, ROUNDING_ERRORS[device.precision])
        if difference > allowed:
            raise ModelFileError(
                f"{where}: {name}: expected {device.provider} within {allowed:.2g} of the CPU, "
                f"got {difference:.2g}",
                "its device does not compute what the CPU computes",
            )


def _max_difference(actual: Array, expected: Array) -> float:
    """The largest difference; infinite if shapes differ or only one side is NaN."""
    if actual.shape != expected.shape:
        return float("inf")
    unequal = ~((actual == expected) | (np.isnan(actual) & np.isnan(expected)))
    difference = np.abs(actual[unequal].astype(np.float64) - expected[unequal].astype(np.float64))
    return float(np.nan_to_num(difference, nan=np.inf, posinf=np.inf).max(initial=0.0))


def _allowed_difference(
    manifest: Manifest | None, name: str, expected: Array, rounding_error: float
) -> float:
    """Twice the bound of parity: device and CPU may each differ that much from the exact result."""
    finite = expected[np.isfinite(expected)].astype(np.float64)
    size = max(1.0, float(np.sqrt(np.mean(finite**2)))) if finite.size else 1.0
    torch_errors = {tensor.name: tensor.max_torch for tensor in manifest.parity.tensors} if manifest else {}
    step = float(np.finfo(expected.dtype).eps) if expected.dtype.kind == "f" else 0.0
    return 2 * PARITY_FACTOR * (torch_errors.get(name, 0.0) + max(step, rounding_error) * size)
