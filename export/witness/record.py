"""A witness: an input, and what the network and the file answer to it."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from turnpike.export.network import Array

# cells of an input that a sentence lists
MAX_SHOWN_CELLS = 4
# a multiple that says no more than the values do
MAX_SHOWN_TIMES = 1e12


@dataclass(frozen=True)
class Witness:
    """An input on which the network and the file differ by more than rounding explains.

    Attributes:
        inputs: An array for each input of the network, by its name.
        rows: Number of rows of the input.
        description: What sort of input it is.
        output: The output that differs most.
        is_hidden: Whether that output is a gate or layer output, which the network itself does not return.
        cell: The place in the output that differs most.
        float64: The network's value in float64.
        native: The network's value in its own precision.
        file: The file's value.
        times: The difference as a multiple of the network's own rounding error; infinite if one of the values
            is, or if nothing is rounded.
        failure: Why the file has no such value, if it fails or gives another shape.
    """

    inputs: dict[str, Array] = field(repr=False)
    rows: int
    description: str
    output: str
    is_hidden: bool
    cell: tuple[int, ...]
    float64: float
    native: float
    file: float
    times: float
    failure: str | None = None

    def __str__(self) -> str:
        place = f"{self.output}[{', '.join(map(str, self.cell))}]" if self.cell else self.output
        kind = " (a hidden output)" if self.is_hidden else ""
        rows = f"For {self.rows} row{'s' if self.rows > 1 else ''} ({self._shown_input()})"
        if self.failure is not None:
            return f"{rows}, the network computes {place}{kind}, and the file does not: {self.failure}."
        network = _number(self.native)
        if self.native != self.float64:
            network += f" ({_number(self.float64)} in float64)"
        size = (
            f" The difference is {self.times:.2g} times the network's own rounding error."
            if self.times < MAX_SHOWN_TIMES
            else ""
        )
        return (
            f"{rows}, {place}{kind} is {network} in the network and {_number(self.file)} in the file.{size}"
        )

    def save(self, path: Path) -> None:
        """Write the input as an .npz file of arrays named like the inputs, which `--data` accepts."""
        # np.savez cannot write an array that is called "file"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, array in self.inputs.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)

    def _shown_input(self) -> str:
        """The description, and all cells if they are few."""
        if sum(array.size for array in self.inputs.values()) > MAX_SHOWN_CELLS:
            return self.description
        values = ", ".join(f"{name} = {array.tolist()}" for name, array in self.inputs.items())
        return f"{self.description}: {values}"


def _number(value: float) -> str:
    return f"{value:.9g}"
