"""The client beside servers that answer as others do, that lie, and beside our own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.errors import TargetError, UsageError
from loadtest.plan import Plan, Wire
from loadtest.workload.answer_check import Judge
from loadtest.workload.http_client import Fetch
from loadtest.workload.payloads import Body, bodies
from loadtest.workload.target import find
from tests.support import fake_servers as peers
from tests.support import live_server as serving
from tests.support.fake_servers import LENGTH, Asked, Given

Lie = Callable[[Given], Given]


@dataclass
class Client:
    """A load that is ready to begin: its requests, and a judge that has learnt their answers."""

    fetch: Fetch
    requests: tuple[Body, ...]
    judge: Judge

    @classmethod
    def ready(cls, url: str, **options: Any) -> Client:
        plan = Plan(url, **{"samples": 4, **options})
        fetch = Fetch(plan.url, timeout=10)
        target = find(plan, fetch)
        client = cls(fetch, bodies(target, plan), Judge(target, plan))
        for body in client.requests:
            client.judge.learn(body, fetch.post(body.path, body.data, body.headers))
        return client

    def faults(self) -> set[str | None]:
        """What is said of one answer to each request."""
        said = set()
        for body in self.requests:
            reply = self.fetch.post(body.path, body.data, body.headers)
            said.add(self.judge.fault(body, reply.status, reply.headers, reply.body))
        return said


class Liar:
    """A server that is honest until it is told how to lie."""

    def __init__(self) -> None:
        self.lie: Lie | None = None
        self.last: Given | None = None
        self._lock = threading.Lock()

    def infer(self, asked: Asked) -> Given:
        with self._lock:
            given, before = peers.scaled(asked), self.last
            self.last = given
            if self.lie is another and before is not None:
                return before
        return self.lie(given) if self.lie else given


def document(change: Callable[[Any], Any]) -> Lie:
    """The answer with something else in its JSON."""

    def lie(given: Given) -> Given:
        answer = json.loads(given.data)
        change(answer["outputs"][0])
        return Given(answer)

    return lie


def another(given: Given) -> Given:
    """The answer to the request before this one."""
    return given


@pytest.mark.parametrize("wire", ["json", "binary", "mixed"])
def test_triton(wire: Wire) -> None:
    """A server as Triton is loaded by JSON and the binary form, and its answers are good."""
    with peers.serving(peers.triton()) as peer:
        client = Client.ready(peer.url, wire=wire, rows=(1, 5))
        assert client.faults() == {None}
        assert client.judge.alike == ()
    wires = {body.wire for body in client.requests}
    assert wires == ({"json", "binary"} if wire == "mixed" else {wire})


def test_triton_has_no_gates() -> None:
    """What only our server has is refused for another one, by its name."""
    with peers.serving(peers.triton()) as peer:
        for wire in ("gates", "lesion", "v1"):
            with pytest.raises(UsageError, match=f"--wire {wire}: expected .* triton"):
                Client.ready(peer.url, wire=wire)


def test_mlserver(tmp_path: Path) -> None:
    """A server that puts an id of its own into each answer gives good ones all the same."""
    with peers.serving(peers.mlserver(inputs=[peers.INPUT], outputs=[peers.OUTPUT])) as peer:
        assert Client.ready(peer.url, rows=(1, 3)).faults() == {None}
    with peers.serving(peers.mlserver()) as peer:
        with pytest.raises(TargetError, match="does not tell what inputs 'scale' has"):
            Client.ready(peer.url)
        np.savez(tmp_path / "rows.npz", x=np.random.default_rng(0).random((9, 4), np.float32))
        assert Client.ready(peer.url, rows=(1, 3), data=tmp_path / "rows.npz").faults() == {None}
        with pytest.raises(TargetError, match=r"binary, 1 row: expected an answer .*, got 400: Invalid JSON"):
            Client.ready(peer.url, wire="binary", data=tmp_path / "rows.npz")


def test_kserve() -> None:
    """A server as KServe is loaded by both protocols, and by the binary form when that is asked for."""
    with peers.serving(peers.kserve()) as peer:
        mixed = Client.ready(peer.url, wire="mixed", rows=(2,))
        assert mixed.faults() == {None}
        assert {body.wire for body in mixed.requests} == {"json", "v1"}
        assert Client.ready(peer.url, wire="binary").faults() == {None}


@pytest.mark.parametrize(
    ("lie", "fault"),
    [
        (document(lambda o: o["data"].__setitem__(-1, o["data"][-1] + 0.001)), "logits differs from the ref"),
        (document(lambda o: o["data"].reverse()), "logits differs from the reference answer"),
        (document(lambda o: o["data"].__setitem__(0, float("nan"))), "logits is not finite"),
        (document(lambda o: o["data"].__setitem__(0, None)), "values of another datatype"),
        (document(lambda o: o.update(shape=o["shape"][::-1])), "shape of logits"),
        (document(lambda o: o.update(shape=[1, 3], data=o["data"][:3])), "shape of logits"),
        (document(lambda o: o.update(name="other")), "outputs"),
        (lambda given: Given(given.data[:-1]), "not JSON"),
        (lambda given: Given(b""), "not JSON"),
        (lambda given: Given({**given.body, "model_name": "other"}), "model"),
        (another, "logits differs from the reference answer"),
    ],
)
def test_lies_in_json(lie: Lie, fault: str) -> None:
    """A server that answered well, and then does not, is found out with the first answer."""
    liar = Liar()
    with peers.serving(peers.triton(liar.infer)) as peer:
        client = Client.ready(peer.url, rows=(2,))
        assert client.faults() == {None}
        liar.lie = lie
        (said,) = client.faults()
    assert said is not None
    assert said.startswith(f"wrong: {fault}")
    assert client.judge.first_wrong is not None
    assert client.judge.first_wrong.startswith("json, 2 rows: ")


@pytest.mark.parametrize(
    ("lie", "fault"),
    [
        (
            lambda given: Given(given.data[:-4] + b"\0\0\xc0\x7f", headers=given.headers),
            "logits is not finite",
        ),
        (lambda given: Given(given.data[:-4] + b"\0\0\0\0", headers=given.headers), "logits differs"),
        (lambda given: Given(given.data[:-4], headers=given.headers), "binary data of another length"),
        (lambda given: Given(given.data + b"\0", headers=given.headers), "binary data of another length"),
        (lambda given: Given(given.data), "not JSON"),
        (lambda given: Given(given.data, headers={LENGTH: "7"}), "not JSON"),
        (another, "logits differs"),
    ],
)
def test_lies_in_binary(lie: Lie, fault: str) -> None:
    """The same of answers whose values are bytes."""
    liar = Liar()
    with peers.serving(peers.triton(liar.infer)) as peer:
        client = Client.ready(peer.url, rows=(2,), wire="binary")
        assert client.faults() == {None}
        liar.lie = lie
        (said,) = client.faults()
    assert said is not None
    assert said.startswith(f"wrong: {fault}")


def test_a_server_that_always_lies() -> None:
    """An answer that the metadata already shows to be wrong is taken for no reference."""
    for lie, complaint in [
        (document(lambda o: o["data"].__setitem__(0, float("inf"))), "'logits': expected finite numbers"),
        (document(lambda o: o.update(shape=[3], data=o["data"][:3])), r"expected shape \[1, 3\], got \[3\]"),
        (lambda given: Given({"error": "NaN is no JSON"}, 422), "got 422: NaN is no JSON"),
        (lambda given: Given(given.data, headers={"Content-Length": "9999"}), "the connection ended before"),
    ]:
        liar = Liar()
        liar.lie = lie
        with peers.serving(peers.triton(liar.infer)) as peer, pytest.raises(TargetError, match=complaint):
            Client.ready(peer.url)


@pytest.mark.slow
def test_our_own_server() -> None:
    """All that our server speaks is loaded, decoded and told apart from the answers to other rows."""
    with serving.serving() as server:
        client = Client.ready(server.url, wire="mixed", rows=(1, 3))
        assert {body.wire for body in client.requests} == {"json", "binary", "v1", "gates", "lesion"}
        assert client.judge.alike == ()
        assert client.faults() == {None}
        for body in client.requests:
            reply = client.fetch.post(body.path, body.data, body.headers)
            headers = dict(reply.headers)
            if length := headers.get(LENGTH.lower()):
                headers[LENGTH.lower()] = str(int(length) + 1)
            # other bytes that say the same, and so must be read
            assert client.judge.fault(body, 200, headers, b" " + reply.body) is None
            others = (each for each in client.requests if each.kind == body.kind and each is not body)
            fault = client.judge.fault(next(others), reply.status, reply.headers, reply.body)
            assert fault is not None
            assert fault.endswith("differs from the reference answer")
        with pytest.raises(TargetError, match="expected a model 'digits-10' of version 9, got 404"):
            Client.ready(server.url, version="9")
        assert Client.ready(server.url, version="1", wire="mixed").faults() == {None}
