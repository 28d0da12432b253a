"""A model that takes texts: every form of them gives the answer of their ids, and the routes say so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.asgi import Reply
from tests.support.in_process_worker import INFER, NAME, PREDICT, InProcessWorker, request, run_scene, until
from tests.support.manifests import stored_input
from tests.support.text_models import ALPHABET, encoder, text_file, text_input
from tests.support.tiny_repository import load_model, put_model
from turnpike.service.artifact.manifest import Sample
from turnpike.service.artifact.text_records import TextInput, Vocabulary
from turnpike.service.config.settings import Settings
from turnpike.service.errors import ModelFileError
from turnpike.service.repository.deployment import Deployment

TEXTS = ["AB", "", "C é\U0001f600A B", "unknown A"]
IDS = encoder().encode(TEXTS)
MODEL = f"/v2/models/{NAME}"


def started(folder: Path, data: bytes | None = None, **settings: Any) -> InProcessWorker:
    """A worker with a model that takes texts."""
    file = put_model(folder, NAME, data=text_file() if data is None else data)
    worker = InProcessWorker(Settings(threads=1, **settings))
    committed = asyncio.run(worker.app.registry.commit(Deployment(1, {NAME: (file,)}).to_json()))
    assert not committed["failed"]
    return worker


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> InProcessWorker:
    sample = Sample(label="a", text="AB", inputs=(stored_input("ids", [[1, 2, 0], [0, 0, 0]]),))
    data = text_file(samples=(sample,))
    return started(tmp_path_factory.mktemp("texts"), data, max_rows=50, max_json=4000, max_body=9000)


def ask(
    worker: InProcessWorker,
    path: str = INFER,
    body: bytes = b"",
    headers: Mapping[str, object] | None = None,
    method: str = "POST",
) -> Reply:
    replies: list[Reply] = []

    async def scene(worker: InProcessWorker) -> None:
        replies.append(await worker.connect().ask(request(path, body, headers, method=method)))

    run_scene(worker, scene)
    return replies[0]


def infer(datatype: str, data: Any, *shape: int, **more: Any) -> bytes:
    tensor = {"name": "ids", "datatype": datatype, "shape": shape, "data": data}
    return json.dumps({"inputs": [tensor], **more}).encode()


def binary_texts(texts: list[str]) -> tuple[bytes, dict[str, object]]:
    tensor = b"".join(len(text.encode()).to_bytes(4, "little") + text.encode() for text in texts)
    entry = {
        "name": "ids",
        "datatype": "BYTES",
        "shape": [len(texts)],
        "parameters": {"binary_data_size": len(tensor)},
    }
    head = json.dumps({"inputs": [entry]}).encode()
    return head + tensor, {"Inference-Header-Content-Length": len(head)}


def outputs(reply: Reply) -> Any:
    assert reply.status == 200, reply.body
    return json.loads(reply.body)["outputs"][0]


def test_every_form_of_texts_gives_the_answer_of_their_ids(worker: InProcessWorker) -> None:
    """Twice, since the form of a request is remembered."""
    expected = outputs(ask(worker, body=infer("INT64", IDS.ravel().tolist(), *IDS.shape)))
    assert expected["shape"] == [4, 3]
    binary, headers = binary_texts(TEXTS)
    for _ in range(2):
        assert outputs(ask(worker, body=infer("BYTES", TEXTS, 4))) == expected
        assert outputs(ask(worker, body=infer("BYTES", [[text] for text in TEXTS], 4, 1))) == expected
        assert outputs(ask(worker, body=binary, headers=headers)) == expected


def test_predictions_of_texts_are_those_of_their_ids(worker: InProcessWorker) -> None:
    """As strings in JSON, by the name of the input, and as a column of CSV."""
    expected = json.loads(ask(worker, PREDICT, json.dumps({"instances": IDS.tolist()}).encode()).body)
    for instances in (TEXTS, [{"ids": text} for text in TEXTS]):
        reply = ask(worker, PREDICT, json.dumps({"instances": instances}).encode())
        assert json.loads(reply.body) == expected
    table = "text\n" + "".join(f'"{text}"\n' for text in TEXTS)
    reply = ask(worker, PREDICT, table.encode(), {"Content-Type": "text/csv"})
    assert json.loads(reply.body) == expected


def test_a_text_has_the_same_answer_alone_and_among_others(worker: InProcessWorker) -> None:
    """Texts are padded to one size, whatever the others are."""
    together = outputs(ask(worker, body=infer("BYTES", TEXTS, 4)))["data"]
    alone = [outputs(ask(worker, body=infer("BYTES", [text], 1)))["data"] for text in TEXTS]
    assert [value for values in alone for value in values] == together


def test_the_best_classes_of_texts_have_labels(worker: InProcessWorker) -> None:
    wanted = [{"name": "logits", "parameters": {"classification": 1}}]
    classes = outputs(ask(worker, body=infer("BYTES", ["AB"], 1, outputs=wanted)))
    values = outputs(ask(worker, body=infer("BYTES", ["AB"], 1)))["data"]
    best = int(np.argmax(values))
    assert (classes["datatype"], classes["shape"]) == ("BYTES", [1, 1])
    assert classes["data"] == [f"{values[best]:.6f}:{best}:{'abc'[best]}"]


def test_the_routes_say_which_input_takes_texts(worker: InProcessWorker) -> None:
    """Clients that know nothing of it still see the input of the graph, once."""
    (tensor,) = json.loads(ask(worker, MODEL, method="GET").body)["inputs"]
    assert tensor == {
        "name": "ids",
        "datatype": "INT64",
        "shape": [-1, -1, 3],
        "parameters": {"text": True},
    }
    config = json.loads(ask(worker, f"{MODEL}/config", method="GET").body)
    assert config["input"] == [{"name": "ids", "data_type": "TYPE_INT64", "dims": [-1, 3]}]
    assert config["parameters"] == {"text_input": {"string_value": "ids"}}
    certificate = json.loads(ask(worker, f"{MODEL}/certificate", method="GET").body)
    assert (certificate["alphabet"], certificate["text"]) == (ALPHABET, text_input().model_dump())
    (sample,) = json.loads(ask(worker, f"{MODEL}/samples", method="GET").body)["samples"]
    assert sample["text"] == "AB"
    assert sample["inputs"][0]["data"] == encoder().encode(["AB"]).ravel().tolist()


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        (INFER, infer("BYTES", ["A", 5], 2), 400, "inputs[0].data[1]: expected a string, got a number"),
        (
            INFER,
            infer("BYTES", ["A"] * 51, 51),
            400,
            "inputs[0].shape: expected at most 50 rows (--max-rows)",
        ),
        (INFER, infer("FP32", [0.0] * 6, 1, 2, 3), 400, "expected INT64 or BYTES, got 'FP32'"),
        (PREDICT, b'{"instances": ["A", {}]}', 400, "instances[1]: expected a string, got an object"),
        (PREDICT, json.dumps({"instances": ["A" * 4000]}).encode(), 413, "(--max-json)"),
    ],
)
def test_errors_say_where_a_text_is_wrong(
    worker: InProcessWorker, path: str, body: bytes, status: int, message: str
) -> None:
    reply = ask(worker, path, body)
    assert reply.status == status
    assert message in json.loads(reply.body)["error"]


def test_binary_texts_have_the_limits_of_json(worker: InProcessWorker) -> None:
    """They take as long to convert."""
    body, headers = binary_texts(["A" * 4001])
    reply = ask(worker, body=body, headers=headers)
    assert (reply.status, "expected at most 4000 characters" in reply.body.decode()) == (413, True)
    body, headers = binary_texts(["A", "B"])
    reply = ask(worker, body=body[:-1] + b"\xff", headers=headers)
    assert reply.status == 400
    assert "inputs[0].data[1]: expected UTF-8, got b'\\\\xff' at offset 0" in reply.body.decode()


def test_the_ids_of_texts_count_as_memory(tmp_path: Path) -> None:
    """They may be many times as large as the request."""
    data = text_file(text=text_input(words=1000))
    # the bodies of two requests, and the ids of one
    size = 1000 * 3 * 8
    worker = started(tmp_path, data, max_body=2 * size, max_held=3 * size)

    async def scene(worker: InProcessWorker) -> None:
        with worker.blocked_runs() as release:
            first, second = worker.connect(), worker.connect()
            first.send(request(INFER, infer("BYTES", ["A", "B"], 2)))
            await until(lambda: worker.app.context.budget.bytes == 2 * size)
            reply = await second.ask(request(INFER, infer("BYTES", ["A", "B"], 2)))
            assert (reply.status, "--max-held" in reply.body.decode()) == (503, True)
            reply = await second.ask(request(INFER, infer("BYTES", ["A"] * 3, 3)))
            assert (reply.status, "--max-body" in reply.body.decode()) == (413, True)
            release.set()
            assert (await first.wait_for_reply()).status == 200

    run_scene(worker, scene)


def test_a_model_whose_file_lacks_the_input_is_not_loaded(tmp_path: Path) -> None:
    file = put_model(tmp_path, data=text_file(text=text_input(characters=9)))
    with pytest.raises(ModelFileError, match=r"manifest: text: expected an input of any number of 2 x 9 ids"):
        load_model(file)


WORDS = Vocabulary(tokens=("<pad>", "<unk>", "AB", "C"), unknown=1)
CHARACTERS = Vocabulary(tokens=("<pad>", " ", "A", "B", "C"))


@pytest.mark.parametrize(
    ("text", "row", "texts", "ids"),
    [
        (
            text_input("words", 4, 1, vocabulary=WORDS),
            ("words",),
            ["AB x", "", "C C C C C"],
            [[2, 1, 0, 0], [0, 0, 0, 0], [3, 3, 3, 3]],
        ),
        (
            text_input("characters", 1, 5, vocabulary=CHARACTERS),
            (5,),
            ["A BX", "", "CCCCCC"],
            [[2, 1, 3, 0, 0], [0, 0, 0, 0, 0], [4, 4, 4, 4, 4]],
        ),
        (
            text_input("alphabet", 2, 3, vocabulary=CHARACTERS),
            ("words", 3),
            ["A BX", "", "CCCCCC"],
            [[[2, 0, 0], [3, 0, 0]], [[0, 0, 0], [0, 0, 0]], [[4, 4, 4], [0, 0, 0]]],
        ),
    ],
    ids=["words", "characters", "alphabet"],
)
def test_texts_by_a_vocabulary_give_the_answer_of_their_ids(
    tmp_path: Path, text: TextInput, row: tuple[str | int, ...], texts: list[str], ids: Any
) -> None:
    """In JSON, in binary form and in CSV."""
    worker = started(tmp_path, text_file(row, text=text, alphabet=""))
    array = np.array(ids)
    expected = outputs(ask(worker, body=infer("INT64", array.ravel().tolist(), *array.shape)))
    assert outputs(ask(worker, body=infer("BYTES", texts, len(texts)))) == expected
    assert outputs(ask(worker, INFER, *binary_texts(texts))) == expected
    csv = "text\n" + "".join(f'"{text}"\n' for text in texts)
    bodies = [(json.dumps({"instances": texts}), "application/json"), (csv, "text/csv")]
    for body, kind in bodies:
        reply = ask(worker, PREDICT, body.encode(), {"Content-Type": kind})
        assert reply.status == 200, reply.body
        logits = [prediction["outputs"]["logits"] for prediction in json.loads(reply.body)["predictions"]]
        np.testing.assert_array_equal(np.array(logits).ravel(), expected["data"])
