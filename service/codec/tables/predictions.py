"""The predictions of an answer of /v1 predict: as JSON, and as a table in CSV.

A prediction is an object with the values of all `outputs`, by their names. Labels and a predicted number add
to it and take nothing away, so that code which reads `outputs` can also read those of later versions.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from turnpike.service.artifact.manifest import Interval
from turnpike.service.classification import probabilities
from turnpike.service.codec.tables.intervals import numbers_of
from turnpike.service.errors import NotFiniteError, RequestError
from turnpike.service.inference_types import Array, InferAnswer

# the members of a prediction of bare form with labels
LABELLED = ["label", "probability", "probabilities"]


def encode_predictions(
    answer: InferAnswer,
    distribution: bool | None,
    *,
    is_number: bool = False,
    interval: Interval | None = None,
    bare: bool = False,
    more: Mapping[str, Any] | None = None,
) -> bytes:
    """Encode a prediction for each row.

    Args:
        answer: The outputs. If the first has one value for each label, a prediction has the most probable
            label, and the probabilities of all.
        distribution: Whether the first output has probabilities, or else logits; None for neither.
        is_number: Whether the first output is the number that the model predicts, the prediction's `value`.
        interval: Of that number, if it has one: `low` and `high` stand beside the value.
        bare: Whether predictions have the form of earlier versions: the values of the only output, or an
            object with those of each output, in which a label takes the place of what it comes from.
        more: Further members of the answer.
    """
    columns = _outputs(answer)
    added: list[dict[str, Any]] = []
    first = answer.arrays[0] if columns else None
    if first is not None and answer.labels and distribution is not None:
        if first.shape[1:] == (len(answer.labels),):
            added = _labelled(first, answer.labels, distribution=distribution)
    elif first is not None and is_number and first.size == len(first):
        added = numbers_of(first, interval)
    rows = _bare(columns, added) if bare else _objects(columns, added)
    document = {"predictions": rows, "model": answer.model_name, "version": str(answer.model_version)}
    return orjson.dumps({**document, **(more or {})}, option=orjson.OPT_SERIALIZE_NUMPY)


def _outputs(answer: InferAnswer) -> dict[str, list[Array]]:
    """The values of each row, by the names of the outputs."""
    columns = {}
    for output, array in zip(answer.form.outputs, answer.arrays, strict=True):
        if array.shape[:1] != (answer.form.rows,):
            raise RequestError(
                f"{output.name}: expected an output of {answer.form.rows} rows, got shape "
                f"{list(array.shape)}; ask for it by /v2/models/{answer.model_name}/infer"
            )
        if not np.isfinite(array).all():
            raise NotFiniteError(
                f"{output.name}: NaN or Inf is among the values, which JSON cannot represent; "
                f"request binary data by /v2/models/{answer.model_name}/infer"
            )
        columns[output.name] = list(np.ascontiguousarray(array))
    return columns


def _objects(columns: Mapping[str, list[Array]], added: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(columns) == 1:
        ((name, values),) = columns.items()
        outputs = [{name: value} for value in values]
    else:
        outputs = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    predictions = added or [{} for _ in outputs]
    for prediction, values_by_name in zip(predictions, outputs, strict=True):
        prediction["outputs"] = values_by_name
    return predictions


def _bare(columns: Mapping[str, list[Array]], added: list[dict[str, Any]]) -> list[Any]:
    lists: list[list[Any]] = list(columns.values())
    if added and "label" in added[0]:
        lists[0] = added
    if len(lists) == 1:
        return lists[0]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def _labelled(array: Array, labels: Sequence[str], *, distribution: bool) -> list[dict[str, Any]]:
    """For each row: the most probable label, its probability, and the probabilities of all labels."""
    return [
        {
            "label": labels[best],
            "probability": row[best],
            "probabilities": dict(zip(labels, row, strict=True)),
        }
        for best, row in zip(
            array.argmax(axis=1).tolist(),
            probabilities(array, distribution=distribution).tolist(),
            strict=True,
        )
    ]


def predictions_csv(
    predictions: Sequence[Any],
    more: Mapping[str, Array] | None = None,
    others: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """One line per row: other columns of its table, what is predicted, and more columns.

    Label and probabilities, or the predicted value, take the place of the output that they come from.
    """
    before = others or {}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = {
        name: [round(value, 6) if isinstance(value, float) else value for value in values.tolist()]
        for name, values in (more or {}).items()
    }
    for index, prediction in enumerate(predictions):
        cells = dict(_cells(prediction))
        if index == 0:
            own = [f"predicted {name}" if name in before else name for name in (*cells, *columns)]
            writer.writerow([*before, *own])
        kept = (texts[index] for texts in before.values())
        writer.writerow([*kept, *cells.values(), *(values[index] for values in columns.values())])
    return text.getvalue()


def _cells(prediction: Any) -> Iterator[tuple[str, Any]]:
    """The names and values of the columns that a prediction of either form fills."""
    if not (isinstance(prediction, dict) and isinstance(prediction.get("outputs"), dict)):
        yield from _bare_cells("output", prediction)
        return
    outputs = dict(prediction["outputs"])
    added = {name: value for name, value in prediction.items() if name != "outputs"}
    if added:
        del outputs[next(iter(outputs))]
        for name, value in added.items():
            if name == "probabilities":
                yield from ((f"p_{label}", probability) for label, probability in value.items())
            else:
                yield name, value
    only = not added and len(outputs) == 1
    for name, values in outputs.items():
        yield from _bare_cells("output" if only else name, values)


def _bare_cells(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    # the outputs of a model may have such names, too
    if isinstance(value, dict) and list(value) == LABELLED and isinstance(value["probabilities"], dict):
        yield "label", value["label"]
        yield "probability", value["probability"]
        for label, probability in value["probabilities"].items():
            yield f"p_{label}", probability
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _bare_cells(key, part)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _bare_cells(f"{name}_{index}", part)
    else:
        yield name, value
