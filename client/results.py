"""What a client returns: predictions as columns or a table, the gates of a run, and a lesion."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np

from turnpike.client.inputs import Array
from turnpike.common.datatypes import DTYPE_BY_DATATYPE

# gates that are printed in a terminal
MAX_PRINTED = 40
# colors of T and C, which can be told apart, and seen on white and on black
COLORS = {"mean": "#2f81c6", "carried": "#c2711a"}
CELL = 'style="text-align:left;padding-right:1em"'
BAR = (
    f'<td {CELL}><svg width="160" height="10" aria-hidden="true">'
    '<rect width="160" height="10" fill="currentColor" opacity="0.15"/>'
    '<rect width="{:.0f}" height="10" fill="{}"/></svg> {}</td>'
)


class TensorMetadata(TypedDict):
    """An input or output of a model; -1 in the shape is any length."""

    name: str
    datatype: str
    shape: list[int]
    parameters: NotRequired[dict[str, Any]]


class ModelMetadata(TypedDict):
    """A model as the Open Inference Protocol describes it."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ClassScore(NamedTuple):
    """A class of an answer: its place among the values, its label, which may be empty, and its value."""

    place: int
    label: str
    value: float


class Sample(NamedTuple):
    """A row to try a model with: its class, the text it was made from, and its inputs as a batch of one."""

    label: str
    text: str
    inputs: dict[str, Array]


def to_class_scores(texts: Array) -> list[list[ClassScore]]:
    """The classes of each row, from the texts `value:index:label`."""
    scores = []
    for row in texts.reshape(len(texts), -1) if len(texts) else ():
        parts = [str(text).split(":", 2) for text in row]
        scores.append([ClassScore(int(place), "".join(rest), float(value)) for value, place, *rest in parts])
    return scores


def to_samples(answer: Mapping[str, Any]) -> list[Sample]:
    """The samples of an answer, in which a blank is null."""
    samples = []
    for sample in answer["samples"]:
        inputs = {tensor["name"]: _sample_input(tensor) for tensor in sample["inputs"]}
        samples.append(Sample(sample["label"], sample["text"], inputs))
    return samples


def _sample_input(tensor: Mapping[str, Any]) -> Array:
    values = [math.nan if value is None else value for value in tensor["data"]]
    return np.array(values, DTYPE_BY_DATATYPE[tensor["datatype"]]).reshape(tensor["shape"])


def to_columns(predictions: Sequence[Any]) -> dict[str, Array]:
    """Predictions as an array for each column of the service's CSV."""
    first = predictions[0] if predictions else None
    # those of a service that still sends the form of earlier versions are the values themselves
    if not (isinstance(first, dict) and isinstance(first.get("outputs"), dict)):
        return _values("output", predictions)
    outputs = list(first["outputs"])
    added = [name for name in first if name != "outputs"]
    columns: dict[str, Array] = {}
    for name in added:
        columns |= _values(name, [prediction[name] for prediction in predictions])
    # a label or a number takes the place of the output that it comes from
    for name in outputs[1:] if added else outputs:
        values = [prediction["outputs"][name] for prediction in predictions]
        columns |= _values("output" if len(outputs) == 1 else name, values)
    return columns


def no_predictions(metadata: Mapping[str, Any], certificate: Mapping[str, Any]) -> dict[str, Array]:
    """The columns of predictions of no rows, which have the names and types of those of any row."""
    outputs, labels = metadata["outputs"], certificate["labels"]
    row: dict[str, Any] = {}
    if labels and certificate["distribution"] and outputs[0]["shape"][1:] == [len(labels)]:
        row = {"label": labels[0], "probability": 0.0, "probabilities": dict.fromkeys(labels, 0.0)}
    elif certificate.get("task") == "number" and outputs[0]["shape"][1:] in ([], [1]):
        row = dict.fromkeys(("value", "low", "high") if certificate["interval"] else ("value",), 0.0)
    row["outputs"] = {
        output["name"]: np.zeros([max(dim, 0) for dim in output["shape"][1:]]).tolist() for output in outputs
    }
    return {name: values[:0] for name, values in to_columns([row]).items()}


def _values(name: str, rows: Sequence[Any]) -> dict[str, Array]:
    first = rows[0] if rows else None
    if isinstance(first, dict):
        prefix = "p_" if name == "probabilities" and name not in first else ""
        names = {key: prefix + key for key in first}
    else:
        names = {index: f"{name}_{index}" for index in range(len(first))} if isinstance(first, list) else {}
    if not names:
        return {name: np.array(rows)}
    parts = [_values(column, [row[key] for row in rows]) for key, column in names.items()]
    return {column: values for part in parts for column, values in part.items()}


def to_table(columns: dict[str, Array], rows: Any) -> Any:
    """The columns as a DataFrame with the index of the rows, or as a Series if the rows are one."""
    index = [rows.name] if rows.ndim == 1 else rows.index
    frame = sys.modules["pandas"].DataFrame(columns, index=index)
    return frame.iloc[0] if rows.ndim == 1 else frame


@dataclass(frozen=True, eq=False, repr=False)
class Gates:
    """The gates of a run, in the order of the data flow. A notebook shows T and C of each as bars.

    >>> gates = client.gates("digits-10", digits)
    >>> gates["layer"]
    array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    >>> int(gates["mean"].argmax())
    7
    """

    model: str
    version: str
    outputs: dict[str, Array]
    gates: list[dict[str, Any]]
    route: dict[str, Any]
    tensors: dict[str, Array]

    def __len__(self) -> int:
        """The number of gates."""
        return len(self.gates)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The figures of each gate."""
        return iter(self.gates)

    def __getitem__(self, key: str) -> Array:
        """One value for each gate, such as its `name`, or the `mean` of T; NaN for a figure of no rows."""
        known = self._keys
        if key not in known:
            raise KeyError(f"expected one of {', '.join(known)}, got {key!r}")
        values = [gate[key] for gate in self.gates]
        return np.array([math.nan if value is None else value for value in values])

    @property
    def _keys(self) -> list[str]:
        """The keys that all gates have."""
        first = self.gates[0] if self.gates else {}
        return [key for key in first if all(key in gate for gate in self.gates)]

    def to_frame(self) -> Any:
        """A DataFrame of pandas with a row for each gate, whose index is the names of the gates."""
        # only for this method, since the client does not require it
        pandas = importlib.import_module("pandas")
        columns = [key for key in self._keys if not isinstance(self.gates[0][key], list | dict)]
        frame = pandas.DataFrame(
            [{key: gate[key] for key in columns} for gate in self.gates], columns=columns
        )
        return frame.set_index("name") if columns else frame

    def __repr__(self) -> str:
        title = f"Gates of model {self.model!r}, version {self.version}: mean of T, and of C (carried)"
        lines = [
            f"{gate['name']:28}  T {_two_digits(gate['mean'])}  C {_two_digits(gate['carried'])}"
            for gate in self.gates
        ]
        more = [f"and {len(lines) - MAX_PRINTED} more"] if len(lines) > MAX_PRINTED else []
        return "\n".join([title, *lines[:MAX_PRINTED], *more])

    def _repr_html_(self) -> str:
        rows = ""
        for gate in self.gates:
            rows += f'<tr><th scope="row" {CELL}>{escape(gate["name"])}</th>'
            for key, color in COLORS.items():
                value = gate[key]
                width = 0 if value is None else 160 * min(max(value, 0), 1)
                rows += BAR.format(width, color, _two_digits(value))
            rows += "</tr>"
        title = escape(f"Gates of model {self.model!r}, version {self.version}")
        head = "".join(f'<th scope="col" {CELL}>{name}</th>' for name in ("gate", "mean of T", "carried"))
        return f"<table><caption>{title}</caption><tr>{head}</tr>{rows}</table>"


def _two_digits(value: float | None) -> str:
    """A share for people; a dash for a figure of no rows."""
    return "-" if value is None else f"{value:.2f}"


@dataclass(frozen=True, eq=False, repr=False)
class Lesion:
    """Outputs before and after gates were moved, and `changed`: the numbers of rows with another class.

    `changed` is None for a model without classes. `report` has the gates that moved, and each row's change.
    """

    before: dict[str, Array]
    after: dict[str, Array]
    changed: Array | None
    report: dict[str, Any]

    def __repr__(self) -> str:
        moved = ", ".join([*self.report["closed"], *self.report["open"], *self.report["shifted"]])
        rows = "" if self.changed is None else f": {len(self.changed)} of {self.report['rows']} rows changed"
        return f"Lesion of {moved}{rows}"


@dataclass(frozen=True, eq=False, repr=False)
class LesionCurve:
    """What closing each layer alone changes.

    `layers` has the figures of each layer, `before` the outputs of the network as it is, and `report` the
    whole curve of the service.
    """

    before: dict[str, Array]
    layers: list[dict[str, Any]]
    report: dict[str, Any]

    def __len__(self) -> int:
        """The number of layers."""
        return len(self.layers)

    def __repr__(self) -> str:
        lines = ["Lesion curve"]
        for layer in self.layers:
            # a network without classes has outputs only
            if "flipped" not in layer:
                effect = ""
            elif layer["flipped"] is None:
                effect = ": no finite numbers without it"
            else:
                effect = f": {layer['flipped']} of {self.report['rows']} rows changed"
            lines.append(f"layer {layer['layer']}{effect}")
        return "\n".join(lines)
