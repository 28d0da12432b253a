"""The gates route: the answer of infer, the summary of the gates, and tensors in JSON and binary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.gates_client import GatesClient, array_of, infer, manifest_of, profile_of, random_rows
from tests.support.tiny_highway import Gated, highway
from turnpike.service.api import gates as gates_endpoint
from turnpike.service.codec.gates_response import JsonSummaries
from turnpike.service.errors import NotFiniteError, NotFoundError, RequestError, TooLargeError

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture(scope="module")
def gated() -> Gated:
    return highway()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, gated: Gated) -> GatesClient:
    manifest = manifest_of(gated, profile_of(gated.gates, gated.gate_values(random_rows(500))))
    return GatesClient.of(tmp_path_factory.mktemp("model"), gated, manifest)


@pytest.mark.parametrize("count", [1, 7, 200])
def test_gates_equal_the_formula(client: GatesClient, gated: Gated, count: int) -> None:
    """The formula is computed in double precision. The rows take one run or several."""
    x = random_rows(count, seed=1)
    answer = client.gates(x, {"detail": "rows"}, id="seven")
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("net", "3", "seven")
    (output,) = answer["outputs"]
    np.testing.assert_allclose(array_of(output), gated.logits(x), atol=1e-5)
    gate_values = gated.gate_values(x)
    assert [tensor["name"] for tensor in answer["tensors"]] == [gate.name for gate in gated.gates]
    for tensor, entry, t in zip(answer["tensors"], answer["gates"], gate_values, strict=True):
        np.testing.assert_allclose(array_of(tensor), t, atol=1e-6)
        assert entry["name"] == tensor["name"]
        assert entry["mean"] == pytest.approx(t.mean(), abs=2e-6)
        # the profile sets the bound of closed and open, and the quantile levels
        assert entry["closed"] == pytest.approx((t < 0.1).mean(), abs=1e-6)
        assert list(entry["quantiles"]) == ["0.05", "0.5", "0.95"]
    carried = np.prod([1 - t for t in gate_values], axis=0).mean(1)
    assert answer["route"]["carried"] == pytest.approx(carried.tolist(), abs=1e-5)


def test_detail_units_has_means_over_rows(client: GatesClient, gated: Gated) -> None:
    """The answer also has their standard deviations."""
    x = random_rows(9)
    answer = client.gates(x, {"detail": "units"})
    tensors = {tensor["name"]: array_of(tensor) for tensor in answer["tensors"]}
    for gate, t in zip(gated.gates, gated.gate_values(x), strict=True):
        np.testing.assert_allclose(tensors[f"{gate.name}.unit_mean"], t.mean(0), atol=1e-6)
        np.testing.assert_allclose(tensors[f"{gate.name}.unit_sd"], t.std(0), atol=1e-6)


def test_a_summary_has_no_tensors(client: GatesClient) -> None:
    """The outputs are the public ones alone."""
    answer = client.gates(random_rows(2))
    assert set(answer) == {"model_name", "model_version", "outputs", "gates", "route"}
    assert [output["name"] for output in answer["outputs"]] == ["logits"]


def test_summaries_are_computed_in_the_run(client: GatesClient) -> None:
    """The gate tensors are dropped after the run, unless the request asks for them."""
    client.gates(random_rows(2))
    assert client.results[-1].arrays == ()
    client.gates(random_rows(2), {"detail": "rows"})
    assert len(client.results[-1].arrays) == 4


def test_summaries_of_small_and_large_gates_are_equal(
    client: GatesClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small gates are summarized in the run, and large ones after it."""
    in_run = client.gates(random_rows(9))
    monkeypatch.setattr(gates_endpoint, "LARGE_GATE_BYTES", 0)
    # with a parameter, so that it is not run like the request before
    assert client.gates(random_rows(9), parameters={"priority": 1}) == in_run
    assert len(client.results[-1].arrays) == 4


@pytest.mark.parametrize("threads", [1, 3])
def test_gates_are_read_by_the_number_of_threads_of_a_run(
    tmp_path: Path, gated: Gated, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    thread_counts: list[int] = []
    reader = gates_endpoint.GateReader

    def recording_reader(*arguments: Any) -> Any:
        thread_counts.append(arguments[-1])
        return reader(*arguments)

    monkeypatch.setattr(gates_endpoint, "GateReader", recording_reader)
    GatesClient.of(tmp_path, gated, manifest_of(gated), threads=threads).gates(random_rows(2))
    assert thread_counts == [threads]


def test_blocks_are_the_outputs_of_layers(client: GatesClient, gated: Gated) -> None:
    """The option may be in the query or in the request's parameters."""
    x = random_rows(3)
    answer = client.gates(x, parameters={"blocks": True})
    assert [tensor["name"] for tensor in answer["tensors"]] == [gate.output for gate in gated.gates]
    last = array_of(answer["tensors"][-1]).astype(np.float64)
    logits = last @ gated.weights["last.weight"].T + gated.weights["last.bias"]
    np.testing.assert_allclose(logits, gated.logits(x), atol=1e-5)


def test_moved_gates_are_read(client: GatesClient, gated: Gated) -> None:
    """With `close` and `open`, outputs, summary, route and tensors are those of the lesion."""
    x = random_rows(5)
    moved = {"close": [0], "open": [2]}
    answer = client.gates(x, {"detail": "rows", "blocks": "true"}, **moved)
    (output,) = client.lesion(x, **moved)["lesioned"]["outputs"]
    assert answer["outputs"] == [output]
    assert answer["outputs"] != client.gates(x)["outputs"]
    tensors = {tensor["name"]: array_of(tensor) for tensor in answer["tensors"]}
    assert (tensors["layer00.transform_gate"] == 0).all()
    assert (tensors["layer02.transform_gate"] == 1).all()
    # the layer after the closed one reads what that layer carried over
    as_trained = client.gates(x, {"detail": "rows"})["tensors"][1]
    assert np.abs(tensors["layer01.transform_gate"] - array_of(as_trained)).max() > 1e-3
    assert [entry["mean"] for entry in answer["gates"]][::2] == [0, 1]
    assert answer["route"]["carried"] == [0] * 5
    # the same without tensors, which is not read in a run shared with other requests
    summary = client.gates(x, **moved)
    assert (summary["gates"], summary["route"]) == (answer["gates"], answer["route"])


def test_binary_tensors_follow_the_json_in_order(client: GatesClient, gated: Gated) -> None:
    """The header has the length of the JSON, and the bytes follow in the order of the tensors."""
    x = random_rows(5)
    for body, query in (
        (infer(x), {"detail": "rows", "binary": "true"}),
        (infer(x, parameters={"binary_data_output": True}), {"detail": "rows"}),
    ):
        headers, content = client.ask("gates", body, query)
        assert headers[b"content-type"] == b"application/octet-stream"
        length = int(headers[b"inference-header-content-length"])
        answer, at = json.loads(content[:length]), length
        arrays = []
        for tensor in (*answer["outputs"], *answer["tensors"]):
            size = tensor["parameters"]["binary_data_size"]
            arrays.append(np.frombuffer(content[at : at + size], "<f4").reshape(tensor["shape"]))
            at += size
        assert at == len(content)
        np.testing.assert_allclose(arrays[0], gated.logits(x), atol=1e-5)
        for array, t in zip(arrays[1:], gated.gate_values(x), strict=True):
            np.testing.assert_allclose(array, t, atol=1e-6)
        assert answer["route"]["per"] == "row"


def test_binary_requests_are_accepted(client: GatesClient, gated: Gated) -> None:
    """The answer is in JSON unless the request asks for binary."""
    x = random_rows(2)
    tensor = {"name": "x", "shape": x.shape, "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
    head = json.dumps({"inputs": [tensor]}).encode()
    _, content = client.ask("gates", head + x.tobytes(), header=len(head))
    (output,) = json.loads(content)["outputs"]
    np.testing.assert_allclose(array_of(output), gated.logits(x), atol=1e-5)


def test_requested_outputs_are_returned(client: GatesClient) -> None:
    """Classification of an output, and a gate as an output that is also among the tensors."""
    outputs = [
        {"name": "logits", "parameters": {"classification": 1}},
        {"name": "layer01.transform_gate"},
    ]
    answer = client.gates(random_rows(2), {"detail": "rows"}, outputs=outputs)
    assert [output["name"] for output in answer["outputs"]] == ["logits", "layer01.transform_gate"]
    assert answer["outputs"][0]["datatype"] == "BYTES"
    assert answer["outputs"][1]["data"] == answer["tensors"][1]["data"]


def test_large_gates_are_read_in_a_thread(client: GatesClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop continues meanwhile."""
    in_loop = client.gates(random_rows(50), {"detail": "units"})
    monkeypatch.setattr(gates_endpoint, "LARGE_GATE_BYTES", 0)
    threads: list[Any] = []

    async def to_thread(function: Any, *arguments: Any) -> Any:
        threads.append(function)
        return function(*arguments)

    monkeypatch.setattr(gates_endpoint.asyncio, "to_thread", to_thread)
    assert client.gates(random_rows(50), {"detail": "units"}) == in_loop
    assert len(threads) == 1


def test_zero_rows_are_answered_without_a_run(client: GatesClient) -> None:
    """The model does not run, and the gates are listed without figures."""
    answer = client.gates(random_rows(0), {"detail": "units"})
    assert answer["outputs"][0]["shape"] == [0, 3]
    assert [gate["mean"] for gate in answer["gates"]] == [None] * 3
    assert answer["route"]["carried"] == []
    assert client.gates(random_rows(0))["gates"] == answer["gates"]


def test_nan_in_a_gate_is_an_error(client: GatesClient) -> None:
    """Binary rows may have NaN. The error names the first gate that becomes NaN."""
    x = np.full((1, 4), np.nan, np.float32)
    tensor = {"name": "x", "shape": x.shape, "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    with pytest.raises(NotFiniteError, match="got NaN in 'layer00.transform_gate'"):
        client.ask("gates", head + x.tobytes(), header=len(head))


def test_a_response_over_the_limit_is_refused_before_the_run(tmp_path: Path, gated: Gated) -> None:
    """A summary of the same rows is small enough."""
    client = GatesClient.of(tmp_path, gated, manifest_of(gated), max_gates=3 * 6 * 4 * 10)
    client.gates(random_rows(10))
    before = len(client.results)
    with pytest.raises(
        TooLargeError, match=r"expected at most 720 bytes of them \(--max-gates\), .* about 2160"
    ):
        client.gates(random_rows(10), {"detail": "rows"})
    with pytest.raises(TooLargeError, match="about 792; ask with fewer rows$"):
        client.gates(random_rows(11))
    with pytest.raises(TooLargeError, match="about 1440"):
        client.ask("gates", infer(random_rows(10)), {"blocks": "1", "binary": "1"})
    assert len(client.results) == before


def test_open_shapes_are_checked_after_the_run(tmp_path: Path, gated: Gated) -> None:
    """If the graph leaves a shape open, the size is that of the arrays."""
    client = GatesClient.of(tmp_path, gated, manifest_of(gated), max_gates=100)
    client.model.signature.hidden.update(  # type: ignore[attr-defined]
        {
            name: type(tensor)(name, tensor.dtype, ("?", 6))
            for name, tensor in client.model.signature.hidden.items()
        }
    )
    with pytest.raises(TooLargeError, match="about 144"):
        client.gates(random_rows(2))


def test_invalid_options_and_missing_gates_are_refused(client: GatesClient, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="detail: expected one of summary, units, rows"):
        client.gates(random_rows(1), {"detail": "everything"})
    plain = highway(layers=1)
    without = GatesClient.of(tmp_path, plain, manifest_of(plain).model_copy(update={"gates": ()}))
    with pytest.raises(NotFoundError, match="model 'net' has no known gates"):
        without.gates(random_rows(1))
    bare = tuple(gate.model_copy(update={"output": None}) for gate in plain.gates)
    no_blocks = GatesClient.of(tmp_path, plain, manifest_of(plain).model_copy(update={"gates": bare}))
    with pytest.raises(RequestError, match="blocks: expected a model with outputs of its layers"):
        no_blocks.gates(random_rows(1), {"blocks": "true"})


def test_readers_of_replaced_models_are_dropped(client: GatesClient, tmp_path: Path) -> None:
    """A repository that is reloaded for years must not fill the memory with readers."""
    runner = gates_endpoint.GatesRunner(client.context, JsonSummaries, max_prepared_models=2)
    for seed in range(5):
        runner.prepare_model(
            GatesClient.of(tmp_path, other := highway(seed=seed, layers=1), manifest_of(other)).model
        )
        assert len(runner._prepared) <= 2
