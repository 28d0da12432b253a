"""Checks whether a model may run on OpenVINO: it must accept all values of its inputs.

Where the CPU provider raises an error, OpenVINO returns a wrong answer: it reads zeros for an id outside of a
table, keeps 32 bits of an id of 64 bits, and returns an empty output if an input is too short.
"""

from __future__ import annotations

import numpy as np

from turnpike.service.artifact.runtime import Runtime
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.errors import ModelFileError, RunError
from turnpike.service.registry.probe import find_rows

# OpenVINO computes with 32 bits
WIDE_DTYPES = frozenset({"int64", "uint64", "float64"})
# a number that is no id of any table; some graphs turn floating-point numbers into ids
MAX_FLOAT = 1e9


def check_openvino_inputs(cpu: Runtime, batch: str | None, where: str) -> None:
    """Raise ModelFileError if there may be inputs that the CPU provider refuses and OpenVINO does not.

    Args:
        cpu: The model on the CPU provider.
        batch: The name of the batch dimension.
        where: Name of the model in error messages.
    """
    for tensor in cpu.inputs:
        if tensor.dtype in WIDE_DTYPES:
            raise _unfit_error(where, f"{tensor.name}: expected numbers of 32 bits or less, got {tensor}")
        if any(isinstance(dim, str) and dim != batch for dim in tensor.dims):
            raise _unfit_error(where, f"{tensor.name}: expected fixed sizes behind the batch, got {tensor}")

    rows = next(find_rows(cpu, batch, 1), None)
    if rows is None:
        raise _unfit_error(where, "inputs: expected some random row to be accepted, got none")
    for tensor in cpu.inputs:
        for value in _extremes(tensor):
            try:
                cpu.run(rows | {tensor.name: np.full_like(rows[tensor.name], value)})
            except RunError as error:
                problem = f"expected an input that takes all numbers, got one that refuses {value:.10g}"
                raise _unfit_error(where, f"{tensor.name}: {problem}") from error


def _extremes(tensor: Tensor) -> tuple[float, ...]:
    dtype = np.dtype(tensor.dtype)
    if dtype.kind == "f":
        largest = min(MAX_FLOAT, float(np.finfo(dtype).max))
        return -largest, largest
    return () if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)


def _unfit_error(where: str, problem: str) -> ModelFileError:
    return ModelFileError(
        f"{where}: {problem}; OpenVINO does not refuse inputs that do not fit: serve it with --device cpu",
        "its device would not refuse inputs that do not fit",
    )
