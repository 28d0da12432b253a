"""Both clients with a real server: the answers are those of the file, bit for bit, or those of the routes."""

from __future__ import annotations

import asyncio
import inspect
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.client_server import DTYPES, Kind, call
from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.identity_model import identity_model
from tests.support.live_server import Server, serving
from tests.support.text_models import encoder
from tests.support.tiny_repository import put_model
from tests.support.waiting import wait_until
from turnpike.client.client import AsyncClient, Client
from turnpike.client.errors import InputError, RequestRefusedError
from turnpike.client.inputs import Array
from turnpike.service.artifact.runtime import open_model

pytestmark = pytest.mark.parametrize("kind", ["blocking", "async"])
FIRST_GATE = "layer00.transform_gate"


def infer_body(rows: Array, **more: Any) -> dict[str, Any]:
    """The body of a request in JSON."""
    tensor = {"name": "x", "datatype": "FP32", "shape": rows.shape, "data": rows.ravel().tolist()}
    return {"inputs": [tensor], **more}


def assert_equal(got: dict[str, Array], tensors: list[dict[str, Any]]) -> None:
    """Compare arrays with tensors in JSON, which keep every bit."""
    assert list(got) == [tensor["name"] for tensor in tensors]
    for tensor in tensors:
        array = got[tensor["name"]]
        assert list(array.shape) == tensor["shape"]
        assert array.ravel().tolist() == np.array(tensor["data"], array.dtype).tolist()


def test_infer_is_exact(server: Server, kind: Kind, digits: Array) -> None:
    names = ["output", FIRST_GATE]
    got = call(kind, server.url, "infer", "digits-10", digits, names)
    expected = dict(zip(names, open_model(BUNDLED_MODEL).run({"x": digits}, names), strict=True))
    assert list(got) == names
    for name in names:
        assert got[name].dtype == expected[name].dtype
        assert got[name].shape == expected[name].shape
        assert got[name].tobytes() == expected[name].tobytes()


@pytest.mark.parametrize("form", [list, np.float64, np.int8, np.uint64])
def test_other_forms_of_rows_give_the_same_answer(
    server: Server, kind: Kind, digits: Array, form: Any
) -> None:
    """Whatever the type of the numbers, and flat or nested."""
    flat = digits.reshape(5, 64)
    inputs = flat.tolist() if form is list else flat.astype(form)
    got = call(kind, server.url, "infer", "digits-10", inputs)
    assert got["output"].tobytes() == open_model(BUNDLED_MODEL).run({"x": digits})[0].tobytes()


def test_several_inputs_and_datatypes(server: Server, kind: Kind) -> None:
    inputs = {"b": [[1, 2, 3, 2**53 + 1]], "a": [[0.5, 1]]}
    got = call(kind, server.url, "infer", "bare", inputs)
    assert got["twice"].tolist() == [[2, 4, 6, 2**54 + 2]]
    assert got["scores"].dtype == np.float32
    columns = call(kind, server.url, "predict", "bare", inputs)
    assert columns["twice_3"].tolist() == [2**54 + 2]
    scores = [columns[f"scores_{index}"][0] for index in range(3)]
    np.testing.assert_array_equal(np.array(scores, "f4"), got["scores"][0])


def test_texts_are_their_ids(server: Server, kind: Kind) -> None:
    """A text, its word beyond the limit, and a character that the alphabet lacks."""
    texts = ["AB é A", "", "C?\0"]
    ids = encoder().encode(texts)
    got, expected = (call(kind, server.url, "infer", "texts", inputs)["logits"] for inputs in (texts, ids))
    assert got.tobytes() == expected.tobytes()
    got, expected = (call(kind, server.url, "predict", "texts", inputs) for inputs in (texts, ids))
    assert {name: column.tolist() for name, column in got.items()} == {
        name: column.tolist() for name, column in expected.items()
    }
    assert len(set(got["p_a"])) == 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_datatype_there_and_back(server: Server, kind: Kind, dtype: str) -> None:
    """The model returns what it gets."""
    values = np.array([[0, 1, 1], [1, 0, 1]]) if dtype == "bool" else np.array([[0, 1.5, 100]])
    values = values.astype(dtype)
    got = call(kind, server.url, "infer", f"same-{dtype}", values)
    assert got["y"].dtype == np.dtype(dtype)
    assert got["y"].tobytes() == values.tobytes()


def test_predictions_are_those_of_the_route(server: Server, kind: Kind, digits: Array) -> None:
    rows = digits.reshape(5, 64)
    predictions = server.post("/v1/models/digits-10:predict", {"instances": rows.tolist()}).json()
    got = call(kind, server.url, "predict", "digits-10", rows)
    assert list(got) == ["label", "probability", *(f"p_{digit}" for digit in range(10))]
    for index, prediction in enumerate(predictions["predictions"]):
        assert got["label"][index] == prediction["label"]
        assert got["probability"][index] == prediction["probability"]
        assert [got[f"p_{digit}"][index] for digit in range(10)] == [*prediction["probabilities"].values()]


def test_predictions_without_labels_are_the_outputs(server: Server, kind: Kind, rows: Array) -> None:
    got = call(kind, server.url, "predict", "net", rows)
    outputs = call(kind, server.url, "infer", "net", rows)["logits"]
    assert list(got) == ["output_0", "output_1", "output_2"]
    np.testing.assert_array_equal(np.stack([*got.values()], axis=1).astype("f4"), outputs)


def test_gates_are_those_of_the_route(server: Server, kind: Kind, digits: Array) -> None:
    answer = server.post("/v2/models/digits-10/gates?detail=units", infer_body(digits)).json()
    got = call(kind, server.url, "gates", "digits-10", digits, "units")
    assert (got.model, got.version) == ("digits-10", "1")
    assert got.gates == answer["gates"]
    assert got.route == answer["route"]
    assert got["mean"].tolist() == [gate["mean"] for gate in answer["gates"]]
    assert_equal(got.outputs, answer["outputs"])
    assert_equal(got.tensors, answer["tensors"])
    assert call(kind, server.url, "gates", "digits-10", digits).tensors == {}


def test_gates_of_rows_are_the_hidden_outputs(server: Server, kind: Kind, digits: Array) -> None:
    """With moved gates, they are those of the lesion."""
    got = call(kind, server.url, "gates", "digits-10", digits, detail="rows")
    expected = call(kind, server.url, "infer", "digits-10", digits, [FIRST_GATE])[FIRST_GATE]
    assert got.tensors[FIRST_GATE].tobytes() == expected.tobytes()
    closed = call(kind, server.url, "gates", "digits-10", digits, detail="rows", close=[0])
    assert not closed.tensors[FIRST_GATE].any()


def test_a_lesion_is_that_of_the_route(server: Server, kind: Kind, digits: Array) -> None:
    moves: dict[str, Any] = {"open": [FIRST_GATE], "shift": {"7": 0.5}}
    answer = server.post("/v2/models/digits-10/lesion", infer_body(digits, close=[3, 4], **moves)).json()
    got = call(kind, server.url, "lesion", "digits-10", digits, close=np.array([3, 4]), **moves)
    assert_equal(got.before, answer["outputs"])
    assert_equal(got.after, answer["lesioned"]["outputs"])
    assert got.report == answer["lesion"]
    classes = answer["lesion"]["by_row"]["class"]
    pairs = zip(classes["before"], classes["after"], strict=True)
    assert got.changed.tolist() == [row for row, (before, after) in enumerate(pairs) if before != after]
    assert len(got.changed) > 0


def test_facts_about_models(server: Server, kind: Kind) -> None:
    models = sorted(
        ["bare", "cells", "digits-10", "net", "table", "texts", *(f"same-{dtype}" for dtype in DTYPES)]
    )
    assert call(kind, server.url, "models") == models
    for method, path in (("metadata", ""), ("certificate", "/certificate")):
        expected = server.get(f"/v2/models/digits-10/versions/1{path}").json()
        for version in ("", 1, "1"):
            assert call(kind, server.url, method, "digits-10", version) == expected
    assert call(kind, server.url, "ready")
    assert call(kind, server.url, "ready", "digits-10", 1)


def test_not_ready_is_no_error(tmp_path: Path, kind: Kind) -> None:
    """An empty repository makes a server that is ready; a model whose file is damaged is not."""
    put_model(tmp_path).path.write_bytes(b"damaged")
    with serving("--models", tmp_path, "--no-access-log") as server:
        wait_until(lambda: server.post("/v2/repository/index").json()[0]["reason"])
        assert call(kind, server.url, "ready", "net") is False
        assert call(kind, server.url, "ready") is False


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("infer", ("gone", [[1]]), "metadata of model 'gone' at URL: model 'gone': expected a model that"),
        ("infer", ("digits-10", np.zeros((1, 64)), ["y"]), "infer of model 'digits-10' at URL: outputs"),
        ("gates", ("bare", {"a": [[1, 2]], "b": [[1, 2, 3, 4]]}), "gates of model 'bare' at URL: model"),
        ("lesion", ("net", np.zeros((1, 4))), "lesion of model 'net' at URL: .*close"),
    ],
)
def test_a_refusal_says_what_and_where(
    server: Server, kind: Kind, method: str, arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(RequestRefusedError, match="^" + message.replace("URL", server.url)):
        call(kind, server.url, method, *arguments)


def test_a_key_is_sent(tmp_path: Path, kind: Kind, digits: Array) -> None:
    keys = tmp_path / "keys"
    keys.write_text("open-sesame\n")
    with serving("--api-keys-file", keys, "--no-access-log") as server:
        with pytest.raises(RequestRefusedError, match="expected a key") as caught:
            call(kind, server.url, "infer", "digits-10", digits)
        assert caught.value.status == 401
        options = {"api_key": "open-sesame"}
        assert len(call(kind, server.url, "infer", "digits-10", digits, options=options)["output"]) == 5


def test_a_model_that_changes_its_datatype_is_looked_up_again(tmp_path: Path, kind: Kind) -> None:
    """Inputs that fit the new file only are refused first, by the client itself or by the service."""
    put_model(tmp_path, "copy", data=identity_model("float32"))
    halves = [[0.5, 1, 200]]

    async def steps(client: Any, ask: Any) -> None:
        assert (await ask(client.infer("copy", halves)))["y"].dtype == np.float32
        # the service refuses FP32
        put_model(tmp_path, "copy", 2, identity_model("uint8"))
        await ask(wait_for("2"))
        with pytest.raises(InputError, match="UINT8 holds, got 0.5"):
            await ask(client.infer("copy", halves))
        assert (await ask(client.infer("copy", [[1, 2, 3]])))["y"].dtype == np.uint8
        # the client takes the inputs for UINT8, and refuses them, until it has looked again
        put_model(tmp_path, "copy", 3, identity_model("float64"))
        await ask(wait_for("3"))
        assert (await ask(client.infer("copy", halves)))["y"].dtype == np.float64

    async def wait_for(version: str) -> None:
        wait_until(lambda: server.get("/v2/models/copy").json()["versions"][-1] == version)

    async def with_async_client() -> None:
        async def ask(step: Any) -> Any:
            return await step

        async with AsyncClient(server.url) as client:
            await steps(client, ask)

    async def with_blocking_client() -> None:
        async def ask(step: Any) -> Any:
            return await step if inspect.isawaitable(step) else step

        with Client(server.url) as client:
            await steps(client, ask)

    with serving("--models", tmp_path, "--allow-unverified", "--poll", 0.1, "--no-access-log") as server:
        asyncio.run(with_async_client() if kind == "async" else with_blocking_client())


def test_many_at_once_get_their_own_answers(server: Server, kind: Kind) -> None:
    """64 threads, or tasks, share a client; each compares its own answers with those of the file."""
    runtime = open_model(BUNDLED_MODEL)
    generator = np.random.default_rng(0)
    batches = [generator.integers(0, 17, (1 + number % 5, 1, 8, 8)).astype("f4") for number in range(64)]
    expected = [runtime.run({"x": batch})[0].tobytes() for batch in batches]
    answers: list[bytes | None] = [None] * 64

    async def ask_async() -> None:
        async with AsyncClient(server.url) as client:
            found = await asyncio.gather(*(client.infer("digits-10", batch) for batch in batches))
            answers[:] = [outputs["output"].tobytes() for outputs in found]

    def ask(client: Client, number: int) -> None:
        for _ in range(4):
            answers[number] = client.infer("digits-10", batches[number])["output"].tobytes()

    if kind == "async":
        asyncio.run(ask_async())
    else:
        with Client(server.url) as client:
            threads = [threading.Thread(target=ask, args=(client, number)) for number in range(64)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert answers == expected


def test_both_clients_have_the_same_methods(kind: Kind) -> None:
    """With the same arguments and the same documentation."""
    names = [name for name in vars(AsyncClient) if not name.startswith("_")]
    assert sorted(names) == sorted(name for name in vars(Client) if not name.startswith("_"))
    for name in names:
        method, blocking = getattr(AsyncClient, name), getattr(Client, name)
        signature = inspect.signature(method)
        # only an AsyncClient reads batches from an asynchronous generator
        if not name.endswith("_stream"):
            assert signature == inspect.signature(blocking)
        assert list(signature.parameters) == list(inspect.signature(blocking).parameters)
        assert method.__doc__
        assert method.__doc__ == blocking.__doc__
