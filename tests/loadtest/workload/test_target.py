"""What a server says of itself, asked for and understood."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from loadtest.errors import TargetError, UsageError
from loadtest.plan import Plan
from loadtest.workload.http_client import Fetch
from loadtest.workload.target import Target, find
from loadtest.workload.tensors import Tensor
from tests.support import fake_servers as peers
from tests.support.fake_servers import Given
from tests.support.tls_certificate import certificate


def found(peer: peers.Peer, **options: Any) -> Target:
    plan = Plan(peer.url, **options)
    return find(plan, Fetch(plan.url, plan.api_key, timeout=10))


def test_the_only_model_is_found_by_an_index() -> None:
    """A server that lists no names, as Triton, is asked for its index of what is ready."""
    with peers.serving(peers.triton()) as peer:
        target = found(peer)
    assert (target.server, target.server_version, target.model, target.version) == (
        "triton",
        "2.50.0",
        "scale",
        "1",
    )
    assert target.inputs == (Tensor("x", "FP32", (-1, 4)),)
    assert target.outputs == (Tensor("logits", "FP32", (-1, 3)),)
    assert (target.binary, target.v1, target.gates, target.lesion) == (True, False, False, False)
    assert target.path == "/models/scale"


def test_the_only_model_is_found_in_a_list() -> None:
    """A server that lists names, as KServe, is not asked for more."""
    with peers.serving(peers.kserve()) as peer:
        target = found(peer)
        assert not [asked for asked in peer.asked if asked.path == "/v2/repository/index"]
    assert (target.model, target.v1, target.binary) == ("scale", True, False)


def test_metadata_may_be_scant() -> None:
    """A server that tells of no version and no tensors, as MLServer, is a target too."""
    with peers.serving(peers.mlserver()) as peer:
        target = found(peer)
    assert (target.version, target.inputs, target.outputs) == ("", (), ())


def test_what_is_not_ready_is_no_model_to_load() -> None:
    """Of an index with a model that failed, the other one is the only one."""
    index = [{"name": "scale", "state": "READY"}, {"name": "broken", "state": "UNAVAILABLE"}]
    with peers.serving(peers.triton() | {"POST /v2/repository/index": index}) as peer:
        assert found(peer).model == "scale"


def test_several_models_are_listed() -> None:
    """Which one is meant is not guessed."""
    with (
        peers.serving(peers.kserve() | {"GET /v2/models": {"models": ["b", "a"]}}) as peer,
        pytest.raises(UsageError, match=r"--model: expected one of a, b, got none"),
    ):
        found(peer)


def test_a_server_that_lists_nothing_wants_a_name() -> None:
    """Without a list and an index the name must be given, and is enough."""
    routes = peers.triton()
    del routes["POST /v2/repository/index"]
    with peers.serving(routes) as peer:
        with pytest.raises(UsageError, match="--model: expected a name"):
            found(peer)
        assert found(peer, model="scale").model == "scale"


def test_a_server_without_models() -> None:
    """Nothing to load is said to be nothing."""
    with (
        peers.serving(peers.kserve() | {"GET /v2/models": {"models": []}}) as peer,
        pytest.raises(TargetError, match="expected a model that is served, got none"),
    ):
        found(peer)


def test_a_version_is_asked_for_and_kept_to() -> None:
    """A version that is named stands in every address, escaped as the model's name is."""
    about = peers.triton()["GET /v2/models/scale"]
    routes = peers.triton() | {"GET /v2/models/a%2Fb/versions/2": about | {"versions": ["1", "2"]}}
    with peers.serving(routes) as peer:
        target = found(peer, model="a/b", version="2")
        assert (target.version, target.pinned, target.path) == ("2", True, "/models/a%2Fb/versions/2")
        with pytest.raises(TargetError, match=r"expected a model 'a/b' of version 3, got 404: not here"):
            found(peer, model="a/b", version="3")


def test_the_newest_version_is_the_highest_number() -> None:
    """Versions are numbers written as text: 10 is above 9."""
    with peers.serving(peers.triton(versions=["9", "10", "2"])) as peer:
        assert found(peer).version == "10"


@pytest.mark.parametrize("entry", [{"name": "x"}, {"name": "x", "datatype": "FP32", "shape": None}, "x"])
def test_metadata_that_makes_no_sense(entry: Any) -> None:
    """A tensor without its datatype or shape is named by its place."""
    with (
        peers.serving(peers.triton(inputs=[peers.INPUT, entry])) as peer,
        pytest.raises(TargetError, match=r"metadata of 'scale': inputs\[1\]: expected name, datatype and"),
    ):
        found(peer)


def test_layers_that_can_be_closed() -> None:
    """A layer of which one gate has no lever cannot be closed; the others can."""
    lever = {"tensor": "b", "start": 0, "stop": 4, "sign": 1}
    gates = [
        {"name": name, "layer": layer, "levers": levers}
        for name, layer, levers in [
            ("a", 2, [lever]),
            ("b", 0, [lever]),
            ("c", 0, []),
            ("d", 1, [lever]),
            ("e", 3, []),
            ("f", 3, [lever]),
        ]
    ]
    profile = "GET /v2/models/scale/gates/profile"
    with peers.serving(peers.triton() | {profile: {"gates": gates}}) as peer:
        target = found(peer)
    assert (target.gates, target.lesion, target.lesions) == (True, True, (1, 2))
    with (
        peers.serving(peers.triton() | {profile: {"gates": [{"layer": 1}]}}) as peer,
        pytest.raises(TargetError, match="gates/profile: expected gates, each with its layer and levers"),
    ):
        found(peer)


def test_the_key_goes_with_every_request() -> None:
    """A key is sent as a bearer's; a server that wants one says so, and the option is named."""
    refused = Given({"error": "expected a key"}, 401)
    with peers.serving(peers.triton()) as peer:
        found(peer, api_key="secret")
        assert {asked.headers.get("authorization") for asked in peer.asked} == {"Bearer secret"}
    with (
        peers.serving({"GET /v2": refused}) as peer,
        pytest.raises(TargetError, match="got 401: expected a key; --api-key-file holds a key"),
    ):
        found(peer)


@pytest.mark.parametrize("key", ["", "two words", "line\n", "clé"])
def test_a_key_that_no_header_can_carry(key: str) -> None:
    """What would end a header, or is not ASCII, is refused before anything is sent."""
    with pytest.raises(UsageError, match="the API key: expected one word"):
        Fetch("http://127.0.0.1:1", key)


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://h:99999",
        "http://h:x",
        "http://u:p@h",
        "http://h/?a=1",
        "http://h/#a",
        "http://h/a b",
    ],
)
def test_urls_that_make_no_sense(url: str) -> None:
    """An address without a host, with a wrong port, with a password or a query is wrong use."""
    with pytest.raises(UsageError, match="URL: expected"):
        Fetch(url)


def test_a_path_before_the_protocol() -> None:
    """A server behind a prefix is asked behind it."""
    routes = {route.replace(" ", " /at", 1): answer for route, answer in peers.triton().items()}
    with peers.serving(routes) as peer:
        plan = Plan(f"{peer.url}/at/")
        assert find(plan, Fetch(plan.url)).model == "scale"


def test_nobody_there() -> None:
    """A port without a server, a host without a name and a server that is none each get their sentence."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(TargetError, match=r"expected an answer within 0.05 s, got none"):
            Fetch(f"http://127.0.0.1:{port}", timeout=0.05).get("/v2")
    with pytest.raises(TargetError, match=f"http://127.0.0.1:{port}: no server answers there"):
        Fetch(f"http://127.0.0.1:{port}").get("/v2")
    with (
        peers.serving({}) as peer,
        pytest.raises(TargetError, match="expected a server of the Open Inference Protocol at /v2, got 404"),
    ):
        found(peer)
    with (
        peers.serving({"GET /v2": Given(b"<html>hello</html>")}) as peer,
        pytest.raises(TargetError, match="got 200: <html>hello</html>"),
    ):
        found(peer)


def test_an_answer_that_ends_early() -> None:
    """A body shorter than announced is no answer."""
    with (
        peers.serving({"GET /v2": Given(b"{", headers={"Content-Length": "10"})}) as peer,
        pytest.raises(TargetError, match="the connection ended before the answer was complete"),
    ):
        found(peer)


def test_http_and_https_mistaken() -> None:
    """TLS spoken to a server without it names the likely mistake."""
    with (
        peers.serving({}) as peer,
        pytest.raises(TargetError, match="is it http:// that is spoken there?"),
    ):
        Fetch(peer.url.replace("http:", "https:"), timeout=10).get("/v2")


def test_a_certificate_that_nobody_signed(tmp_path: Path) -> None:
    """It is refused, unless it was said to be good enough."""
    cert, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with peers.serving(peers.triton(), context) as peer:
        with pytest.raises(TargetError, match=r"expected a certificate that can be trusted.*--insecure"):
            Fetch(peer.url, timeout=10).get("/v2")
        assert Fetch(peer.url, insecure=True, timeout=10).get("/v2").document()["name"] == "triton"


def test_a_name_that_is_none() -> None:
    """A host that no resolver takes is said not to be known."""
    with pytest.raises(TargetError, match="no host of this name is known"):
        Fetch("http://" + "a" * 70).get("/v2")


def test_something_else_than_http() -> None:
    """A server of another protocol is told from one that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.test ESMTP\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(TargetError, match="expected HTTP, got something else"):
            Fetch(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=10).get("/v2")
        thread.join(10)
