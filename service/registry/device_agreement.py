"""Compares a model on a device with the same model on the CPU provider, before it is served."""

from __future__ import annotations

import numpy as np

from turnpike.service.artifact.devices import DevicePrecision
from turnpike.service.artifact.manifest import Manifest, Precision
from turnpike.service.artifact.runtime import Runtime
from turnpike.service.errors import ModelFileError
from turnpike.service.inference_types import Array
from turnpike.service.registry.probe import find_rows

# rows on which a device is compared with the CPU
AGREEMENT_ROWS = 64
# The parity proof allows this many times the sum of PyTorch's own error and one rounding of a number as large
# as the tensor's.
PARITY_FACTOR = 8
# the relative error of one rounding; int8 rounds to 8 bits of the largest number in a row
ROUNDING_ERRORS: dict[DevicePrecision | Precision, float] = {
    "fp32": 2.0**-23,
    "fp16": 2.0**-11,
    "bf16": 2.0**-8,
    "int8": 2.0**-8,
}


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
        difference = max_difference(actual, expected)
        allowed = allowed_difference(cpu.manifest, name, expected, device.precision)
        if difference > allowed:
            raise ModelFileError(
                f"{where}: {name}: expected {device.provider} within {allowed:.2g} of the CPU, "
                f"got {difference:.2g}",
                "its device does not compute what the CPU computes",
            )


def max_difference(actual: Array, expected: Array) -> float:
    """The largest difference; infinite if shapes differ or only one side is NaN."""
    if actual.shape != expected.shape:
        return float("inf")
    unequal = ~((actual == expected) | (np.isnan(actual) & np.isnan(expected)))
    difference = np.abs(actual[unequal].astype(np.float64) - expected[unequal].astype(np.float64))
    return float(np.nan_to_num(difference, nan=np.inf, posinf=np.inf).max(initial=0.0))


def allowed_difference(
    manifest: Manifest | None, name: str, expected: Array, device_precision: DevicePrecision = "fp32"
) -> float:
    """Twice the bound of parity: device and CPU may each differ that much from the exact result.

    Args:
        manifest: The file's manifest.
        name: The tensor that is compared.
        expected: Its values on the CPU.
        device_precision: The precision of the device's arithmetic.
    """
    finite = expected[np.isfinite(expected)].astype(np.float64)
    size = max(1.0, float(np.sqrt(np.mean(finite**2)))) if finite.size else 1.0
    torch_errors = {tensor.name: tensor.max_torch for tensor in manifest.parity.tensors} if manifest else {}
    step = float(np.finfo(expected.dtype).eps) if expected.dtype.kind == "f" else 0.0
    # a file of fp16 or int8 returns numbers of fp32, but with the errors of its own precision
    file_precision = manifest.precision if manifest else "fp32"
    rounding_error = max(step, ROUNDING_ERRORS[device_precision], ROUNDING_ERRORS[file_precision])
    return 2 * PARITY_FACTOR * (torch_errors.get(name, 0.0) + rounding_error * size)
