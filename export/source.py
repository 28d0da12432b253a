"""What is to be exported, wherever it came from: a network or a graph, its inputs, and what goes with it."""

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
    """Rows of data, an array for each input by its name, and their classes where these are known."""

    inputs: dict[str, Array]
    classes: Array | None = None

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def label(self, number: int, labels: Sequence[str]) -> str:
        """What a row's class is called, empty where it is not known."""
        if self.classes is None or self.classes.ndim != 1:
            return ""
        place = int(self.classes[number])
        return labels[place] if 0 <= place < len(labels) else str(place)


@dataclass(frozen=True)
class Source:
    """One of three: a `module` (in eval mode), a `program` of torch.export, or the `graph` of an .onnx file.

    `kind` says which sort of source it was, for the manifest, without any path. `inputs` are those of
    `forward`, in its order; the first dynamic dimension of the first is the batch. `public` rows are of a
    data set that goes by its name, which anyone may have.
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
