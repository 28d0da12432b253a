"""The network to export, from any source: a module, program or graph, its inputs, labels and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from torch import nn
from torch.export import ExportedProgram

from turnpike.export.input_spec import InputSpec
from turnpike.models.training.checkpoint import TrainingRecord
from turnpike.service.artifact.manifest import Feature, Interval, Task
from turnpike.service.artifact.text_records import TextScheme, Vocabulary

Array = np.ndarray[Any, np.dtype[Any]]
# what a user may give: an object, or the path of a file or folder
AnySource = str | Path | nn.Module | ExportedProgram


@dataclass(frozen=True)
class Rows:
    """Rows of data: an array for each input, by its name.

    `classes` are the rows' classes, `numbers` the numbers to predict from them, and `texts` what their ids
    were made from, if they are known. `white` is the number of a white pixel, if they are pictures and it is
    known; that of black is 0. `table` has all rows of the table that they were taken from.
    """

    inputs: dict[str, Array]
    classes: Array | None = None
    texts: tuple[str, ...] = ()
    numbers: Array | None = None
    table: Array | None = None
    white: float | None = None

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def all_known(self, name: str) -> Array:
        """The rows of an input, also those of its table that were not taken."""
        return self.inputs[name] if self.table is None else self.table

    def take(self, indices: slice | Array) -> Rows:
        """Some of the rows, by a slice or by their numbers."""
        classes, numbers = (
            None if values is None else values[indices] for values in (self.classes, self.numbers)
        )
        inputs = {name: array[indices] for name, array in self.inputs.items()}
        texts = tuple(self.texts[row] for row in np.arange(len(self.texts))[indices]) if self.texts else ()
        return Rows(inputs, classes, texts, numbers)

    def label(self, row: int, labels: Sequence[str]) -> str:
        """The label of a row's class; empty if the class is not known."""
        if self.classes is None or self.classes.ndim != 1:
            return ""
        number = int(self.classes[row])
        return labels[number] if 0 <= number < len(labels) else str(number)


@dataclass(frozen=True)
class TextForm:
    """The input that takes texts, and how they become its ids; with a vocabulary if the user gave one."""

    input: str
    scheme: TextScheme
    vocabulary: Vocabulary | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether the training run recorded the alphabet, so that its code can be compared."""
        return self.scheme == "alphabet" and self.vocabulary is None


@dataclass(frozen=True)
class Messages:
    """Sentences for the user about what was loaded.

    Attributes:
        warnings: What a user should know, although it does not stop the export.
        notes: What was done with the source, which is usually what the user wants.
    """

    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __add__(self, later: Messages) -> Messages:
        return Messages((*self.warnings, *later.warnings), (*self.notes, *later.notes))


@dataclass(frozen=True)
class Network:
    """The network to export. Exactly one of `module`, `program` and `graph` is set.

    Attributes:
        name: Name of the model in the repository.
        kind: Sort of source, recorded in the manifest; it contains no path.
        inputs: Inputs in the order of `forward`'s arguments; `input_spec.batch_dimension` is their batch.
        module: A PyTorch module in eval mode.
        program: A program from `torch.export`.
        graph: The graph of an .onnx file.
        graph_name: What the graph is, for the record of a proof against it.
        labels: Names of the classes.
        alphabet: The characters that the network's ids stand for, if its training recorded them.
        text: How texts become ids, if the network reads text.
        features: The columns of the input if its rows are those of a table.
        unused: Columns of such a table that it does not take, though it was fitted to them.
        task: Whether it answers with classes or with a number.
        target: The name of the column that is predicted, if it is known.
        interval: The intervals of a predicted number, if the training computed them.
        rows: Real data, to prove parity and to measure gates on.
        ranges: The lowest and highest value of each input that has a range; parity is proved inside it only.
        input_axes: The axis on which the user's module had the batch of each input, if it was moved.
        output_axes: The same of each output.
        pixels: The numbers of a black and of a white pixel, if the rows are pictures and they are known.
        random_weights: Whether the module's weights were drawn at random, and none were loaded.
        public: Whether `rows` come from a public data set, so that samples may go into the file.
        training: The record of the training run, if the source is its checkpoint.
        messages: What the user should know about the source.
    """

    name: str
    kind: str
    inputs: tuple[InputSpec, ...]
    module: nn.Module | None = None
    program: ExportedProgram | None = None
    graph: onnx.ModelProto | None = None
    graph_name: str = "the graph as it came"
    labels: tuple[str, ...] = ()
    alphabet: str = ""
    text: TextForm | None = None
    features: tuple[Feature, ...] = ()
    unused: tuple[str, ...] = ()
    task: Task = "classes"
    target: str = ""
    interval: Interval | None = None
    rows: Rows | None = None
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    input_axes: tuple[int, ...] = ()
    output_axes: tuple[int, ...] = ()
    pixels: tuple[float, float] | None = None
    random_weights: bool = False
    public: bool = False
    training: TrainingRecord | None = None
    messages: Messages = Messages()

    def with_messages(self, messages: Messages) -> Network:
        """The same network, with further messages."""
        return replace(self, messages=self.messages + messages)

    def batch_axes(self, outputs: Sequence[str]) -> dict[str, int]:
        """The axis on which the user's module had the batch, by input or output, where it was moved."""
        names = (*(spec.name for spec in self.inputs), *outputs)
        inputs = self.input_axes or (0,) * len(self.inputs)
        return {name: axis for name, axis in zip(names, (*inputs, *self.output_axes), strict=False) if axis}
