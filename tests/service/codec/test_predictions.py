"""Predictions as JSON and as CSV, in their form and in that of earlier versions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from turnpike.service.codec.tables.predictions import encode_predictions, predictions_csv
from turnpike.service.errors import NotFiniteError, RequestError
from turnpike.service.inference_types import Array, FeedLayout, InferAnswer, RequestedOutput, RequestForm

LABELS = ("a", "b")
NUMBERS = np.float32([[0.1, 0.2], [0.3, 0.4]])
LOGITS = np.float32([[0, np.log(3)], [0, 0]])


def answer(*arrays: Array, labels: Any = ()) -> InferAnswer:
    outputs = tuple(RequestedOutput(f"y{index}") for index in range(len(arrays)))
    return InferAnswer("digits", 3, RequestForm(len(arrays[0]), outputs, FeedLayout.of({})), arrays, labels)


def predicted(*arrays: Array, labels: Any = (), distribution: bool | None = None, **options: Any) -> Any:
    content = encode_predictions(answer(*arrays, labels=labels), distribution, **options)
    return json.loads(content)["predictions"]


def test_labels_and_probabilities_stand_beside_the_outputs() -> None:
    """The label of the greatest value, its probability, and the probabilities of all labels."""
    first, second = predicted(LOGITS, labels=LABELS, distribution=False)
    assert first["label"] == "b"
    assert first["probability"] == first["probabilities"]["b"]
    assert first["probabilities"] == pytest.approx({"a": 0.25, "b": 0.75}, rel=1e-6)
    assert first["outputs"] == {"y0": [0, pytest.approx(np.log(3))]}
    assert second == {
        "label": "a",
        "probability": 0.5,
        "probabilities": {"a": 0.5, "b": 0.5},
        "outputs": {"y0": [0, 0]},
    }
    given = np.float32([[0.25, 0.75]])
    assert predicted(given, labels=LABELS, distribution=True)[0]["probability"] == 0.75


@pytest.mark.parametrize(
    ("labels", "distribution"), [((), False), (("a", "b", "c"), False), (("a", "b"), None)]
)
def test_unlabelled_predictions_are_the_outputs(labels: Any, distribution: bool | None) -> None:
    """Without labels, with too few labels, or if it is unknown what the values mean."""
    got = predicted(NUMBERS, labels=labels, distribution=distribution)
    assert got == [{"outputs": {"y0": [0.1, 0.2]}}, {"outputs": {"y0": [0.3, 0.4]}}]


def test_what_a_version_adds_takes_nothing_away() -> None:
    """Code that reads the outputs of a version without labels also reads those of one with labels."""
    plain = predicted(LOGITS)
    labelled = predicted(LOGITS, labels=LABELS, distribution=False)
    assert all(with_labels.items() >= row.items() for row, with_labels in zip(plain, labelled, strict=True))


@pytest.mark.parametrize("shape", [(2, 1), (2,)])
def test_a_predicted_number_is_the_value(shape: tuple[int, ...]) -> None:
    column = np.float32([1.5, 2]).reshape(shape)
    first, _ = predicted(column, is_number=True)
    assert first == {"value": 1.5, "outputs": {"y0": column[0].tolist()}}
    # a number that is predicted is one number
    assert "value" not in predicted(NUMBERS, is_number=True)[0]


def test_predictions_of_several_outputs() -> None:
    """Only the first is labelled, also if another one has one value for each label."""
    number = np.int64([2**53 + 1])
    assert predicted(LOGITS[:1], number)[0]["outputs"]["y1"] == 2**53 + 1
    (got,) = predicted(LOGITS[1:], LOGITS[:1], labels=LABELS, distribution=False)
    assert got["label"] == "a"
    assert list(got["outputs"]) == ["y0", "y1"]


def test_predictions_of_every_shape_are_encoded() -> None:
    """Nested, FP16, in another memory order, and without rows."""
    nested = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    for array in (nested, nested.transpose(0, 2, 1), np.float16([[1.5], [2]])):
        assert [row["outputs"]["y0"] for row in predicted(array)] == array.tolist()
    for bare in (False, True):
        empty = np.empty((0, 2), np.float32)
        assert predicted(empty, labels=LABELS, distribution=False, bare=bare) == []


def test_the_form_of_earlier_versions() -> None:
    """The values of the only output, or an object with several; a label takes their place."""
    assert predicted(NUMBERS, bare=True) == [[pytest.approx(0.1), pytest.approx(0.2)], [0.3, 0.4]]
    assert predicted(np.float32([[1.5]]), is_number=True, bare=True) == [[1.5]]
    labelled = {"label": "a", "probability": 0.5, "probabilities": {"a": 0.5, "b": 0.5}}
    classes = {"labels": LABELS, "distribution": False, "bare": True}
    assert predicted(LOGITS[1:], **classes) == [labelled]
    assert predicted(LOGITS[1:], np.int64([7]), bare=True) == [{"y0": [0, 0], "y1": 7}]
    assert predicted(LOGITS[1:], np.int64([7]), **classes) == [{"y0": labelled, "y1": 7}]


def test_outputs_that_cannot_be_predictions_are_errors() -> None:
    """NaN gives 422. An output with another number of rows is not split."""
    with pytest.raises(NotFiniteError, match="y0: NaN or Inf is among the values"):
        predicted(np.float32([[np.nan]]))
    form = RequestForm(2, (RequestedOutput("y"),), FeedLayout.of({}))
    with pytest.raises(RequestError, match=r"y: expected an output of 2 rows, got shape \[3\]"):
        encode_predictions(InferAnswer("digits", 1, form, [np.float32([1, 2, 3])]), None)


@pytest.mark.parametrize("bare", [False, True])
def test_predictions_are_a_table(bare: bool) -> None:
    """Of either form. Labels may need quotes; outputs without labels have numbered columns."""

    def table(*arrays: Array, **options: Any) -> str:
        return predictions_csv(predicted(*arrays, bare=bare, **options))

    classes = {"labels": ("a,b", "c"), "distribution": True}
    shares = np.float32([[0.75, 0.25]])
    assert table(shares, **classes) == 'label,probability,"p_a,b",p_c\n"a,b",0.75,0.75,0.25\n'
    assert table(shares, np.int64([[7]]), **classes) == (
        'label,probability,"p_a,b",p_c,y1_0\n"a,b",0.75,0.75,0.25,7\n'
    )
    assert table(np.float32([[1.5, 2], [3, 4]])) == "output_0,output_1\n1.5,2.0\n3.0,4.0\n"
    assert table(np.float32([1.5]), np.int64([[2]])) == "y0,y1_0\n1.5,2\n"
    assert table(np.float32([[1.5]]), is_number=True) == ("output_0\n1.5\n" if bare else "value\n1.5\n")
    assert table(np.empty((0, 2))) == ""


def test_figures_of_each_row_stand_behind() -> None:
    predictions = predicted(np.float32([1.5]))
    assert predictions_csv(predictions, {"gate": np.array([0.25])}) == "output,gate\n1.5,0.25\n"


def test_kept_columns_stand_before_the_predictions() -> None:
    """A prediction whose column has the same name as one of them is renamed."""
    predictions = predicted(np.float32([[0.5, 0.5]]), labels=("no", "yes"), distribution=True)
    text = predictions_csv(predictions, {}, {"label": ["yes"], "id": ["a,b"]})
    assert text == 'label,id,predicted label,probability,p_no,p_yes\nyes,"a,b",no,0.5,0.5,0.5\n'


def test_outputs_may_have_the_names_of_a_prediction() -> None:
    """Models that were converted from scikit-learn have outputs such as `label` and `probabilities`."""
    expected = "probabilities_0,probabilities_1,label\n0.25,0.75,1\n"
    values = {"probabilities": [0.25, 0.75], "label": 1}
    assert predictions_csv([{"outputs": values}]) == predictions_csv([values]) == expected
    labelled = {"label": "a", "probability": 1.0, "probabilities": {"a": 1.0}}
    expected = "label,probability,p_a,rank\na,1.0,1.0,1\n"
    assert predictions_csv([{"probabilities": labelled, "rank": 1}]) == expected
    assert predictions_csv([{**labelled, "outputs": {"probabilities": [1.0], "rank": 1}}]) == expected
