"""Reads the mean and the standard deviation of a network's rows from an .npz file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from turnpike.export.errors import SourceError, UsageError, one_line
from turnpike.export.input_spec import InputSpec
from turnpike.export.network import Messages, Network
from turnpike.export.sources.preprocess.layers import Preprocessed, Scale, floats

# names of the array that rows are divided by
SCALE_NAMES = ("std", "scale")


def with_scale(network: Network, path: str | Path) -> Network:
    """The network behind (x - mean) / std, with the arrays of an .npz file.

    Raises:
        UsageError: The network is no module with one input of floating-point numbers.
        SourceError: The file has other arrays, or some that do not fit.
    """
    spec = network.inputs[0]
    if network.module is None or len(network.inputs) != 1 or not spec.dtype.startswith("float"):
        shapes = ", ".join(map(str, network.inputs))
        raise UsageError(
            f"expected a PyTorch module with one input of floating-point numbers, got {network.kind} with "
            f"{shapes}"
        )
    mean, std = _read(Path(path))
    for name, array in (("mean", mean), ("std", std)):
        _expect_fit(array, spec, f"{path}: {name}")
    layer = Scale(floats(mean), floats(std)).to(dtype=getattr(torch, spec.dtype))
    note = f"rows are standardized in the file, by {Path(path).name}"
    return replace(network, module=Preprocessed(layer, network.module).eval()).with_messages(
        Messages(notes=(note,))
    )


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.array(file[name]) for name in file.files}
    except Exception as error:  # NumPy has many errors for other files
        raise SourceError(
            f"{path}: expected an .npz file of numbers, cannot read it ({one_line(error)})"
        ) from error
    chosen = [name for name in SCALE_NAMES if name in arrays]
    if len(chosen) != 1 or set(arrays) != {"mean", *chosen}:
        names = ", ".join(sorted(arrays)) or "none"
        raise SourceError(f"{path}: expected the arrays mean and std, got {names}")
    mean, std = arrays["mean"], arrays[chosen[0]]
    for name, array in (("mean", mean), (chosen[0], std)):
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise SourceError(f"{path}: {name}: expected finite numbers, got others or {array.dtype}")
    if (std <= 0).any():
        raise SourceError(
            f"{path}: {chosen[0]}: expected numbers above 0, got {std.min():g} (1 leaves a column as it is)"
        )
    return mean, std


def _expect_fit(array: np.ndarray, spec: InputSpec, where: str) -> None:
    """Raise a SourceError unless an array has a number for each value of a row, or one for all."""
    row = spec.dims[1:]
    sizes = row[len(row) - array.ndim :] if array.ndim else ()
    if array.ndim > len(row) or any(
        size not in (1, dim) for size, dim in zip(array.shape, sizes, strict=True)
    ):
        shape = ", ".join(map(str, array.shape))
        raise SourceError(
            f"{where}: expected a number for each value of a row of {spec}, got shape ({shape})"
        )
