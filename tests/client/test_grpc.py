"""Both clients over gRPC with a real server: the results are those over HTTP, bit for bit."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pandas as pd
import pytest

from tests.support.cell_tables import ROWS
from tests.support.client_server import DTYPES, FEATURES, Kind, call
from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.identity_model import identity_model
from tests.support.live_server import ROOT, Server, serving
from tests.support.tiny_repository import put_model
from tests.support.tls_certificate import certificate
from tests.support.waiting import wait_until
from turnpike.client.client import AsyncClient, Client
from turnpike.client.errors import InputError, RequestRefusedError, UnavailableError
from turnpike.client.inputs import Array
from turnpike.service.artifact.runtime import open_model

KINDS: list[Kind] = ["blocking", "async"]
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("kind", KINDS)]


def both(server: Server, kind: Kind, method: str, *arguments: Any, **more: Any) -> tuple[Any, Any]:
    """What a method returns over gRPC, and over HTTP."""
    over_grpc = call(kind, f"grpc://{server.grpc_address}", method, *arguments, **more)
    return over_grpc, call(kind, server.url, method, *arguments, **more)


def assert_same(got: dict[str, Array], expected: dict[str, Array]) -> None:
    """Compare names, types, shapes and bits."""
    assert list(got) == list(expected)
    for name, array in expected.items():
        assert (got[name].dtype, got[name].shape) == (array.dtype, array.shape)
        assert got[name].tobytes() == array.tobytes()
        assert got[name].flags.writeable


@pytest.mark.parametrize("outputs", [(), ("layer03.transform_gate", "output")])
@pytest.mark.parametrize("version", ["", 1])
def test_infer(server: Server, kind: Kind, digits: Array, outputs: tuple[str, ...], version: Any) -> None:
    got, expected = both(server, kind, "infer", "digits-10", digits, outputs, version)
    assert_same(got, expected)


def test_several_inputs(server: Server, kind: Kind) -> None:
    assert_same(*both(server, kind, "infer", "bare", {"b": [[1, 2, 3, 2**53 + 1]], "a": [[0.5, 1]]}))


def test_texts(server: Server, kind: Kind) -> None:
    assert_same(*both(server, kind, "infer", "texts", ["AB é A", "", "C?\0"]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_datatype(server: Server, kind: Kind, dtype: str) -> None:
    values = np.array([[1, 0, 1]] if dtype == "bool" else [[0, 1.5, 100]]).astype(dtype)
    got, expected = both(server, kind, "infer", f"same-{dtype}", values)
    assert_same(got, expected)
    assert got["y"].tobytes() == values.tobytes()


@pytest.mark.parametrize("detail", ["summary", "units", "rows"])
@pytest.mark.parametrize("moves", [{}, {"close": [3], "shift": {"layer07.transform_gate": 0.5}}])
def test_gates(server: Server, kind: Kind, digits: Array, detail: str, moves: dict[str, Any]) -> None:
    got, expected = both(server, kind, "gates", "digits-10", digits, detail, **moves)
    assert (got.model, got.version) == (expected.model, expected.version)
    assert got.gates == expected.gates
    assert [list(gate["quantiles"]) for gate in got.gates] == [
        list(gate["quantiles"]) for gate in expected.gates
    ]
    assert got.route == expected.route
    assert_same(got.outputs, expected.outputs)
    assert_same(got.tensors, expected.tensors)
    assert repr(got) == repr(expected)


def test_gates_of_no_rows_have_no_figures(server: Server, kind: Kind, digits: Array) -> None:
    got, expected = both(server, kind, "gates", "digits-10", digits[:0])
    for key in ("mean", "sd", "closed", "open", "carried"):
        assert np.isnan(got[key]).all()
        assert np.isnan(expected[key]).all()
    assert "T -  C -" in repr(got)
    assert "</svg> -</td>" in got._repr_html_()


@pytest.mark.parametrize("model", ["digits-10", "table", "net"])
def test_a_lesion(server: Server, kind: Kind, digits: Array, rows: Array, model: str) -> None:
    """With labels, and without."""
    inputs = digits if model == "digits-10" else rows
    moves: dict[str, Any] = {"close": np.array([1]), "open": ["layer00.transform_gate"]}
    if model != "digits-10":
        moves = {"close": [0]}
    got, expected = both(server, kind, "lesion", model, inputs, **moves)
    assert got.report == expected.report
    assert_same(got.before, expected.before)
    assert_same(got.after, expected.after)
    np.testing.assert_array_equal(got.changed, expected.changed)


def test_facts_about_models(server: Server, kind: Kind) -> None:
    got, expected = both(server, kind, "models")
    assert got == expected
    for name in expected:
        for version in ("", 1):
            metadata, expected_metadata = both(server, kind, "metadata", name, version)
            assert metadata == expected_metadata
            assert both(server, kind, "ready", name, version) == (True, True)
    assert both(server, kind, "ready") == (True, True)
    assert call(kind, f"grpc://{server.grpc_address}", "ready", "gone") is False


def test_a_large_tensor(tmp_path: Path, kind: Kind) -> None:
    """grpcio limits messages to 4 MiB by default."""
    put_model(tmp_path, "copy", data=identity_model("float64"))
    values = np.random.default_rng(0).normal(size=(300_000, 3))
    options = ("--allow-unverified", "--no-access-log", "--max-rows", 300_000)
    with serving("--models", tmp_path, "--grpc-port", 0, *options) as server:
        got = call(kind, f"grpc://{server.grpc_address}", "infer", "copy", values)
    assert got["y"].tobytes() == values.tobytes()


def test_many_at_once_get_their_own_answers(server: Server, kind: Kind) -> None:
    """32 threads, or tasks, share a client."""
    runtime = open_model(BUNDLED_MODEL)
    generator = np.random.default_rng(0)
    batches = [generator.integers(0, 17, (1 + number % 5, 1, 8, 8)).astype("f4") for number in range(32)]
    answers: list[bytes | None] = [None] * 32
    url = f"grpc://{server.grpc_address}"

    async def ask_async() -> None:
        async with AsyncClient(url) as client:
            found = await asyncio.gather(*(client.infer("digits-10", batch) for batch in batches))
            answers[:] = [outputs["output"].tobytes() for outputs in found]

    def ask(client: Client, number: int) -> None:
        answers[number] = client.infer("digits-10", batches[number])["output"].tobytes()

    if kind == "async":
        asyncio.run(ask_async())
    else:
        with Client(url) as client:
            threads = [threading.Thread(target=ask, args=(client, number)) for number in range(32)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert answers == [runtime.run({"x": batch})[0].tobytes() for batch in batches]


@pytest.mark.parametrize(
    ("method", "arguments", "status", "message"),
    [
        ("infer", ("gone", [[1]]), 404, "metadata of model 'gone' at URL: model 'gone': expected a model"),
        ("infer", ("digits-10", np.zeros((1, 64)), ["y"]), 400, "infer of model 'digits-10' at URL: outputs"),
        ("gates", ("bare", {"a": [[1, 2]], "b": [[1, 2, 3, 4]]}), 404, "gates of model 'bare' at URL: model"),
        ("gates", ("net", np.full((1, 4), np.nan)), 422, "gates of model 'net' at URL: "),
        ("lesion", ("net", np.zeros((1, 4))), 400, "lesion of model 'net' at URL: .*close"),
    ],
)
def test_a_refusal_is_that_of_http(
    server: Server, kind: Kind, method: str, arguments: tuple[Any, ...], status: int, message: str
) -> None:
    reasons = []
    for url in (f"grpc://{server.grpc_address}", server.url):
        with pytest.raises(RequestRefusedError, match="^" + message.replace("URL", url)) as caught:
            call(kind, url, method, *arguments)
        assert caught.value.status == status
        reasons.append(caught.value.reason)
    assert reasons[0] == reasons[1]


def test_what_http_alone_has_is_an_error(server: Server, kind: Kind) -> None:
    with pytest.raises(InputError, match="^drift of model 'digits-10' .*: expected an address of HTTP"):
        call(kind, f"grpc://{server.grpc_address}", "drift", "digits-10")


@pytest.mark.parametrize("rows", ["digits", "table", "cells", "texts"])
def test_predictions(server: Server, kind: Kind, digits: Array, rows: str) -> None:
    """Of arrays, tables, cells and texts."""
    model, inputs = {
        "digits": ("digits-10", digits),
        "table": ("table", pd.DataFrame(np.ones((2, 4)), columns=list(FEATURES))),
        "cells": ("cells", ROWS[:3]),
        "texts": ("texts", pd.Series(["AB", "C"], index=[3, 4])),
    }[rows]
    got, expected = both(server, kind, "predict", model, inputs)
    assert list(got) == list(expected)
    for name in expected:
        assert list(got[name]) == list(expected[name])


def test_documents(server: Server, kind: Kind) -> None:
    for method in ("certificate", "profile"):
        got, expected = both(server, kind, method, "digits-10")
        assert got == expected
    got, expected = both(server, kind, "samples", "digits-10")
    assert len(got) == 10
    for one, other in zip(got, expected, strict=True):
        assert one[:2] == other[:2]
        assert_same(one.inputs, other.inputs)


def test_classes_and_curves(server: Server, kind: Kind, digits: Array) -> None:
    got, expected = both(server, kind, "classify", "digits-10", digits, 3)
    assert got == expected
    assert [len(row) for row in got] == [3] * 5
    got, expected = both(server, kind, "lesion_curve", "digits-10", digits)
    assert [layer["flipped"] for layer in got.layers] == [layer["flipped"] for layer in expected.layers]


def test_statistics(server: Server, kind: Kind) -> None:
    got, expected = both(server, kind, "statistics", "digits-10")
    assert [entry["version"] for entry in got] == [entry["version"] for entry in expected] == ["1"]


@pytest.mark.parametrize(
    ("detail", "moves", "message"),
    [
        ("all", {}, "detail: expected 'summary', 'units', 'rows', got 'all'"),
        ("units", {"shift": {"layer00": "far"}}, "shift: layer00: expected a number, got 'far'"),
        ("units", {"shift": [1]}, r"shift: expected a dict of numbers by layer or gate, got \[1\]"),
        ("units", {"close": ["\ud800"]}, "expected arguments that fit in a message, got "),
    ],
)
def test_arguments_that_no_message_holds(
    server: Server, kind: Kind, digits: Array, detail: str, moves: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=f"^gates of model 'digits-10'.*: {message}"):
        call(kind, f"grpc://{server.grpc_address}", "gates", "digits-10", digits, detail, **moves)


@pytest.mark.parametrize("layers", ["12", 3])
def test_layers_are_a_list(server: Server, kind: Kind, digits: Array, layers: Any) -> None:
    """The characters of a text would each be a layer."""
    with pytest.raises(InputError, match=f"close: expected a list of layers or gates' names, got {layers!r}"):
        call(kind, f"grpc://{server.grpc_address}", "lesion", "digits-10", digits, close=layers)


def test_a_key_is_sent(tmp_path: Path, kind: Kind, digits: Array) -> None:
    keys = tmp_path / "keys"
    keys.write_text("open-sesame\n")
    with serving("--grpc-port", 0, "--api-keys-file", keys, "--no-access-log") as server:
        url = f"grpc://{server.grpc_address}"
        with pytest.raises(RequestRefusedError, match="expected a key") as caught:
            call(kind, url, "infer", "digits-10", digits)
        assert caught.value.status == 401
        options = {"api_key": "open-sesame"}
        assert len(call(kind, url, "infer", "digits-10", digits, options=options)["output"]) == 5


def test_tls(tmp_path: Path, kind: Kind, digits: Array) -> None:
    cert, key = certificate(tmp_path)
    trusted = {"tls": grpc.ssl_channel_credentials(cert.read_bytes())}
    options = ("--tls-cert", cert, "--tls-key", key, "--no-access-log")
    with serving("--grpc-port", 0, *options) as server:
        url = f"grpcs://{server.grpc_address}"
        assert len(call(kind, url, "infer", "digits-10", digits, options=trusted)["output"]) == 5
        # no authority vouches for the certificate
        with pytest.raises(UnavailableError, match="(?i)handshake failed"):
            call(kind, url, "models", options={"retries": 0})


def test_not_ready_is_no_error(tmp_path: Path, kind: Kind) -> None:
    put_model(tmp_path).path.write_bytes(b"damaged")
    with serving("--models", tmp_path, "--grpc-port", 0, "--no-access-log") as server:
        wait_until(lambda: server.post("/v2/repository/index").json()[0]["reason"])
        url = f"grpc://{server.grpc_address}"
        assert call(kind, url, "ready", "net") is False
        assert call(kind, url, "ready") is False
        assert call(kind, url, "models") == []
        with pytest.raises(UnavailableError, match=r"net.*\(status 503\)$") as caught:
            call(kind, url, "metadata", "net")
        assert caught.value.retry_after is None


@pytest.mark.parametrize("address", ["grpc://127.0.0.1", "grpc://127.0.0.1:1/path", "grpcs://"])
def test_an_address_has_a_host_and_a_port(kind: Kind, address: str) -> None:
    with pytest.raises(ValueError, match="^url: expected grpcs?://HOST:PORT, got "):
        call(kind, address, "models")


def test_credentials_need_tls(kind: Kind) -> None:
    """What an address cannot use is not ignored."""
    for address in ("grpc://host:1", "http://host:1"):
        with pytest.raises(ValueError, match="^tls: expected (grpcs|https)://HOST:PORT"):
            call(kind, address, "models", options={"tls": ssl.create_default_context()})


WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
import turnpike
client = getattr(turnpike, sys.argv[2])
client("http://127.0.0.1:1")
client("grpc://127.0.0.1:1")
"""


@pytest.mark.parametrize("name", ["grpc", "google.protobuf"])
def test_a_missing_library_is_named_with_its_extra(kind: Kind, name: str) -> None:
    """HTTP works without it."""
    client = "AsyncClient" if kind == "async" else "Client"
    program = [sys.executable, "-c", WITHOUT, name, client]
    result = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    line = result.stderr.splitlines()[-1]
    assert line.startswith(f"ModuleNotFoundError: an address grpc:// needs {name}")
    assert line.endswith("[client-grpc]'")
