"""A network trained on texts, exported, and served: texts give the answers of their ids to real clients."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.clients import client_programs
from tests.support.live_server import Server, serving
from tests.support.run_cli import run_in_process
from tests.support.virtualenvs import run_client
from turnpike.models.data.embedded import encode_texts
from turnpike.models.data.load import load_dataset
from turnpike.models.training.checkpoint import load_network
from turnpike.service.artifact.runtime import open_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# also cut, padded, empty, of unknown characters, and with all kinds of white space
TEXTS = [
    "LATIN SMALL LETTER A WITH ACUTE",
    "DIGIT ONE",
    "",
    " \u2003 ",
    "ARABIC LIGATURE ALEF WITH HAMZA ABOVE AND A VERY LONG TAIL OF WORDS",
    "SUPERCALIFRAGILISTICEXPIALIDOCIOUS SIGN",
    "latin small letter é",
    "GREEK\u00a0SMALL\tLETTER\nALPHA",
]


def run(*words: object) -> str:
    """The standard output of a command that must succeed."""
    result = run_in_process(*words)
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short training run, and the repository with its export."""
    root = tmp_path_factory.mktemp("texts")
    run("train", "charcnn", "--epochs", 1, "--no-pictures", "--out", root / "run")
    run("export", root / "run", "--to", root / "repository")
    return root


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with serving(folder / "repository", "--workers", 2, "--grpc-port", 0) as running:
        yield running


@pytest.fixture(scope="module")
def expected(folder: Path) -> Any:
    """What the network of the training answers to the ids of the training."""
    net, _ = load_network(folder / "run/model.safetensors")
    with torch.no_grad():
        return net(encode_texts(TEXTS, load_dataset("names").alphabet)).numpy()


def test_texts_give_the_answers_of_the_trained_network(folder: Path, server: Server, expected: Any) -> None:
    """Its labels too; alone and together; as a person sends them with curl."""
    (path,) = folder.rglob("model.onnx")
    ids = encode_texts(TEXTS, load_dataset("names").alphabet).numpy()
    of_ids = open_model(path).run({"ids": ids})[0]
    np.testing.assert_allclose(of_ids, expected, rtol=1e-4, atol=1e-5)
    body = {"inputs": [{"name": "ids", "datatype": "BYTES", "shape": [len(TEXTS)], "data": TEXTS}]}
    sent = subprocess.run(
        ["curl", "-s", f"{server.url}/v2/models/charcnn/infer", "-d", "@-"],
        input=json.dumps(body),
        capture_output=True,
        text=True,
        check=True,
    )
    (output,) = json.loads(sent.stdout)["outputs"]
    np.testing.assert_array_equal(np.array(output["data"], np.float32).reshape(output["shape"]), of_ids)
    labels = load_dataset("names").labels
    for text, row in zip(TEXTS, of_ids, strict=True):
        (prediction,) = server.post("/v1/models/charcnn:predict", {"instances": [text]}).json()["predictions"]
        assert prediction["label"] == labels[int(row.argmax())]


def test_gates_and_lesions_take_texts(server: Server) -> None:
    """They are those of the ids."""
    ids = encode_texts(TEXTS[:1], load_dataset("names").alphabet).numpy()
    tensors = [
        {"name": "ids", "datatype": "BYTES", "shape": [1], "data": TEXTS[:1]},
        {"name": "ids", "datatype": "INT64", "shape": list(ids.shape), "data": ids.ravel().tolist()},
    ]
    for route, more in (("gates?detail=rows", {}), ("lesion", {"close": [0]})):
        texts_answer, ids_answer = (
            server.post(f"/v2/models/charcnn/{route}", {"inputs": [tensor], **more}).json()
            for tensor in tensors
        )
        assert texts_answer == ids_answer
        assert "error" not in texts_answer


def test_samples_can_be_posted_as_texts(server: Server) -> None:
    """Text and ids of a sample give the same answer."""
    for sample in server.get("/v2/models/charcnn/samples").json()["samples"]:
        text = [{"name": "ids", "datatype": "BYTES", "shape": [1], "data": [sample["text"]]}]
        answers = [
            server.post("/v2/models/charcnn/infer", {"inputs": inputs}).json()
            for inputs in (text, sample["inputs"])
        ]
        assert answers[0] == answers[1]


def test_the_client_of_triton_sends_texts(folder: Path, server: Server) -> None:
    """As arrays of objects, in every form that it has; the answers are those of the ids, bit for bit."""
    ids = encode_texts(TEXTS, load_dataset("names").alphabet).numpy()
    results = run_client(
        "triton_texts.py",
        client_programs("triton"),
        server.url.removeprefix("http://"),
        server.grpc_address,
        "charcnn",
        stdin=json.dumps({"texts": TEXTS, "ids": ids.tolist()}),
    )
    (path,) = folder.rglob("model.onnx")
    of_ids = open_model(path).run({"ids": ids})[0]
    assert results["tensor"] == {
        "name": "ids",
        "datatype": "INT64",
        "shape": [-1, -1, 12],
        "parameters": {"text": True},
    }
    for form in (
        "ids",
        "binary",
        "json",
        "strings",
        "mixed",
        "column",
        "column_json",
        "gzip",
        "alone",
        "grpc",
    ):
        assert results[form] == of_ids.tolist(), form
    labels = load_dataset("names").labels
    assert results["labels"] == [labels[int(row.argmax())] for row in of_ids]
    assert results["invalid"] == ["400", r"inputs[0].data[1]: expected UTF-8, got b'\xff' at offset 6"]
    assert results["invalid_over_grpc"] == [
        "StatusCode.INVALID_ARGUMENT",
        r"raw_input_contents of inputs[0][1]: expected UTF-8, got b'\xff' at offset 6",
    ]
    assert results["table"] == [
        "400",
        "inputs[0].shape: expected [texts] or [texts, 1] for BYTES, got [1, 2]",
    ]


def test_predictions_of_a_table_of_texts(folder: Path, server: Server) -> None:
    """`turnpike predict` reads the column `text`, for a file and for a service, and keeps the others."""
    table = folder / "rows.csv"
    table.write_text("code,text\n1,LATIN SMALL LETTER A\n2,DIGIT ONE\n")
    local = run("predict", folder / "repository", table)
    assert local == run("predict", server.url, table)
    header, first, _ = local.splitlines()
    assert header.startswith("code,label,probability,p_Cf,")
    assert first.startswith("1,Ll,")
