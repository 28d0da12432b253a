"""What is exported, whatever it came from: a network or a graph, its inputs, labels and rows of data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from torch import nn
from torch.export import ExportedProgram

from export.input_spec import InputSpec

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Rows:
    """Rows of data: an array for each input, by its name, and the rows' classes if they are known."""

    inputs: dict[str, Array]
    classes: Array | None = None

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def label(self, row: int, labels: Sequence[str]) -> str:
        """The label of a row's class; empty if the class is not known."""
        if self.classes is None or self.classes.ndim != 1:
            return ""
        number = int(self.classes[row])
        return labels[number] if 0 <= number < len(labels) else str(number)


@dataclass(frozen=True)
class Source:
    """The network to export. Exactly one of `module`, `program` and `graph` is set.

    Attributes:
        name: Name of the model in the repository.
        kind: Sort of source, recorded in the manifest; it contains no path.
        inputs: Inputs in the order of `forward`'s arguments. The first dynamic dimension of the first
            input is the batch.
        module: A PyTorch module in eval mode.
        program: A program from `torch.export`.
        graph: The graph of an .onnx file.
        labels: Names of the classes.
        alphabet: The characters that the network's ids stand for, if it reads text.
        rows: Real data, to prove parity and to measure gates on.
        public: Whether `rows` come from a public data set, so that samples may go into the file.
    """

    name: str
    kind: str
    inputs: tuple[InputSpec, ...]
    module: nn.Module | None = None
    program: ExportedProgram | None = None
    graph: onnx.ModelProto | None = None
    labels: tuple[str, ...] = ()
    alphabet: str = ""
    rows: Rows | None = None
    public: bool = False
