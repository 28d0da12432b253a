"""The lesion route: the same rows with and without moved gates, compared with the formula of the network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.gates_client import LABELS, GatesClient, infer, manifest_of, random_rows
from tests.support.tiny_highway import Gated, highway
from turnpike.service.errors import NotFiniteError, RequestError
from turnpike.service.gates import lesions

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture(scope="module")
def gated() -> Gated:
    return highway()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, gated: Gated) -> GatesClient:
    return GatesClient.of(tmp_path_factory.mktemp("model"), gated, manifest_of(gated))


def logits_of(answer: dict[str, Any]) -> Array:
    (output,) = answer["outputs"]
    return np.array(output["data"], np.float32).reshape(output["shape"])


def softmax(logits: Array) -> Array:
    powers = np.exp(logits)
    return powers / powers.sum(1, keepdims=True)


@pytest.mark.parametrize("count", [1, 6, 150])
def test_closing_layers_equals_the_formula(client: GatesClient, gated: Gated, count: int) -> None:
    """Outputs, flips and changes are compared in double precision, for one run or several."""
    x = random_rows(count)
    answer = client.lesion(x, close=[0, "layer02.transform_gate"], id="a")
    before, after = gated.logits(x), gated.logits(x, frozenset({0, 2}))
    np.testing.assert_allclose(logits_of(answer), before, atol=1e-5)
    np.testing.assert_allclose(logits_of(answer["lesioned"]), after, atol=1e-5)
    lesion = answer["lesion"]
    assert lesion["closed"] == ["layer00.transform_gate", "layer02.transform_gate"]
    assert lesion["rows"] == count
    flipped = before.argmax(1) != after.argmax(1)
    assert lesion["by_row"]["flipped"] == flipped.tolist()
    assert (lesion["flipped"], lesion["share_flipped"]) == (flipped.sum(), pytest.approx(flipped.mean()))
    at = np.arange(count), before.argmax(1)
    change = softmax(after)[at] - softmax(before)[at]
    assert lesion["by_row"]["change"] == pytest.approx(change.tolist(), abs=1e-5)
    assert lesion["change"] == pytest.approx(change.mean(), abs=1e-5)
    assert lesion["by_row"]["label"]["before"] == [LABELS[n] for n in before.argmax(1)]


def test_outputs_before_the_lesion_equal_infer(client: GatesClient) -> None:
    """The gates route gives the same outputs as infer, and so does this route."""
    x = random_rows(5)
    assert client.lesion(x, close=[1])["outputs"] == client.gates(x)["outputs"]


def test_opened_and_shifted_gates_equal_the_formula(client: GatesClient, gated: Gated) -> None:
    """T is 1 in an opened layer, and the sigmoid of a higher logit in a shifted one."""
    x = random_rows(4)
    answer = client.lesion(x, open=[1], shift={"2": 0.75}, outputs=[{"name": "logits"}, *_gates(gated)])
    lesioned = {
        output["name"]: np.array(output["data"]).reshape(output["shape"])
        for output in answer["lesioned"]["outputs"]
    }
    assert (lesioned["layer01.transform_gate"] == 1).all()
    assert answer["lesion"]["open"] == ["layer01.transform_gate"]
    assert answer["lesion"]["shifted"] == {"layer02.transform_gate": 0.75}
    # layers before the opened one are unchanged
    untouched = {output["name"]: output["data"] for output in answer["outputs"]}
    assert lesioned["layer00.transform_gate"].ravel().tolist() == untouched["layer00.transform_gate"]
    y = lesioned["layer01.output"]
    logit = y @ gated.weights["layers.2.gate.weight"].T + gated.weights["layers.2.gate.bias"] + 0.75
    np.testing.assert_allclose(lesioned["layer02.transform_gate"], 1 / (1 + np.exp(-logit)), atol=1e-5)


def _gates(gated: Gated) -> list[dict[str, str]]:
    return [*({"name": gate.name} for gate in gated.gates), {"name": "layer01.output"}]


def test_a_curve_closes_each_layer_in_turn(client: GatesClient, gated: Gated) -> None:
    """Each is compared with the unchanged network."""
    x = random_rows(30)
    answer = client.lesion(x, curve=True)
    before = gated.logits(x)
    np.testing.assert_allclose(logits_of(answer), before, atol=1e-5)
    assert (answer["curve"]["rows"], answer["curve"]["skipped"]) == (30, [])
    at = np.arange(30), before.argmax(1)
    for layer, entry in enumerate(answer["curve"]["layers"]):
        after = gated.logits(x, frozenset({layer}))
        assert entry["layer"] == layer
        assert entry["gates"] == [gated.gates[layer].name]
        assert entry["flipped"] == (before.argmax(1) != after.argmax(1)).sum()
        assert entry["change"] == pytest.approx((softmax(after)[at] - softmax(before)[at]).mean(), abs=1e-5)
    assert len(answer["curve"]["layers"]) == 3


def test_a_request_counts_once(client: GatesClient) -> None:
    """The log and the model's counters have one request with its rows, however many runs it takes."""
    results_before, before = len(client.results), client.model.counters.snapshot()
    client.lesion(random_rows(30), curve=True)
    assert len(client.results) == results_before + 1
    after = client.model.counters.snapshot()
    assert after["rows"] == before["rows"] + 30


def test_a_layer_without_a_lever_is_skipped(tmp_path: Path, gated: Gated) -> None:
    """The answer lists it as skipped."""
    fixed = gated.gates[1].model_copy(update={"levers": ()})
    gates = (gated.gates[0], fixed, gated.gates[2])
    client = GatesClient.of(tmp_path, gated, manifest_of(gated).model_copy(update={"gates": gates}))
    curve = client.lesion(random_rows(3), curve=True)["curve"]
    assert [entry["layer"] for entry in curve["layers"]] == [0, 2]
    assert curve["skipped"] == [1]
    with pytest.raises(RequestError, match="expected one that can be moved, a layer \\(0, 2\\)"):
        client.lesion(random_rows(3), close=[1])


def test_binary_responses_have_both_outputs(client: GatesClient, gated: Gated) -> None:
    """First the outputs without the lesion, then those with it."""
    x = random_rows(2)
    headers, content = client.ask("lesion", infer(x, close=[0], parameters={"binary_data_output": True}))
    length = int(headers[b"inference-header-content-length"])
    assert json.loads(content[:length])["lesion"]["rows"] == 2
    both = np.frombuffer(content[length:], "<f4").reshape(2, 2, 3)
    np.testing.assert_allclose(both[0], gated.logits(x), atol=1e-5)
    np.testing.assert_allclose(both[1], gated.logits(x, frozenset({0})), atol=1e-5)


def test_zero_rows_are_answered_without_a_run(client: GatesClient) -> None:
    """The model does not run, and nothing flips."""
    lesion = client.lesion(random_rows(0), close=[0])["lesion"]
    assert (lesion["rows"], lesion["flipped"], lesion["share_flipped"]) == (0, 0, None)
    assert client.lesion(random_rows(0), curve=True)["curve"]["layers"][0]["change"] is None


def test_without_classes_there_are_no_flips(tmp_path: Path) -> None:
    """Both outputs are in the answer. A curve is refused because it compares classes."""
    gated = highway(classes=1)
    client = GatesClient.of(tmp_path, gated, manifest_of(gated, labels=()))
    answer = client.lesion(random_rows(2), close=[0])
    assert set(answer["lesion"]) == {"rows", "closed", "open", "shifted"}
    np.testing.assert_allclose(
        logits_of(answer["lesioned"]), gated.logits(random_rows(2), frozenset({0})), atol=1e-5
    )
    with pytest.raises(
        RequestError, match="curve: expected a model whose output has a value per class, and 'logits'"
    ):
        client.lesion(random_rows(2), curve=True)


def test_labels_of_another_number_are_left_out(tmp_path: Path, gated: Gated) -> None:
    """Labels are used only if there is one for each class."""
    client = GatesClient.of(tmp_path, gated, manifest_of(gated, labels=("one", "two")))
    assert "label" not in client.lesion(random_rows(2), close=[0])["lesion"]["by_row"]


def test_nan_outputs_are_an_error(client: GatesClient) -> None:
    """Binary rows may have NaN."""
    x = np.full((1, 4), np.nan, np.float32)
    tensor = {"name": "x", "shape": x.shape, "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
    head = json.dumps({"inputs": [tensor], "close": [0], "parameters": {"binary_data_output": True}}).encode()
    with pytest.raises(NotFiniteError, match="expected numbers to compare, got NaN or Inf in 'logits'"):
        client.ask("lesion", head + x.tobytes(), header=len(head))


def test_an_empty_lesion_is_refused_and_counted(client: GatesClient) -> None:
    """It is refused before the model runs."""
    before = len(client.results)
    with pytest.raises(RequestError, match="expected close, open, shift or curve"):
        client.lesion(random_rows(1))
    with pytest.raises(RequestError, match="expected a layer \\(0 to 2\\)"):
        client.lesion(random_rows(1), close=[3])
    assert len(client.results) == before


def test_a_curve_over_the_row_limit_is_refused(client: GatesClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before the first run."""
    monkeypatch.setattr(lesions, "MAX_CURVE_ROWS", 30)
    client.lesion(random_rows(10), curve=True)
    before = len(client.results)
    with pytest.raises(RequestError, match="curve: expected at most 30 rows times layers, got 11 times 3"):
        client.lesion(random_rows(11), curve=True)
    assert len(client.results) == before
