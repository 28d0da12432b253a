"""The client against servers of other kinds, faulty ones, and our own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import fake_servers, live_server
from tests.support.fake_servers import LENGTH_HEADER, FakeAnswer, ReceivedRequest
from turnpike.loadtest.errors import TargetError, UsageError
from turnpike.loadtest.plan import LoadPlan, Wire
from turnpike.loadtest.workload.answer_check import AnswerChecker
from turnpike.loadtest.workload.http_client import HttpClient
from turnpike.loadtest.workload.payloads import Payload, make_payloads
from turnpike.loadtest.workload.target import find_target

Change = Callable[[FakeAnswer], FakeAnswer]


@dataclass
class Client:
    """A client with its payloads, and a checker that has learnt their answers."""

    http: HttpClient
    payloads: tuple[Payload, ...]
    checker: AnswerChecker

    @classmethod
    def ready(cls, url: str, **options: Any) -> Client:
        plan = LoadPlan(url, **{"samples": 4, **options})
        http = HttpClient(plan.url, timeout=10)
        target = find_target(plan, http)
        client = cls(http, make_payloads(target, plan), AnswerChecker(target, plan))
        for payload in client.payloads:
            client.checker.learn(payload, http.post(payload.path, payload.data, payload.headers))
        return client

    def faults(self) -> set[str | None]:
        """The faults of one answer to each payload."""
        faults = set()
        for payload in self.payloads:
            reply = self.http.post(payload.path, payload.data, payload.headers)
            faults.add(self.checker.check(payload, reply.status, reply.headers, reply.body))
        return faults


class Faulty:
    """A server that answers correctly until `change` is set."""

    def __init__(self) -> None:
        self.change: Change | None = None
        self.last: FakeAnswer | None = None
        self._lock = threading.Lock()

    def infer(self, request: ReceivedRequest) -> FakeAnswer:
        with self._lock:
            answer, before = fake_servers.scale_rows(request), self.last
            self.last = answer
            if self.change is previous_answer and before is not None:
                return before
        return self.change(answer) if self.change else answer


def edit_output(edit: Callable[[Any], Any]) -> Change:
    """A change of the output in the JSON of an answer."""

    def change(answer: FakeAnswer) -> FakeAnswer:
        document = json.loads(answer.data)
        edit(document["outputs"][0])
        return FakeAnswer(document)

    return change


def previous_answer(answer: FakeAnswer) -> FakeAnswer:
    """Marks a server that answers with the answer to the previous request."""
    return answer


@pytest.mark.parametrize("wire", ["json", "binary", "mixed"])
def test_triton_is_supported(wire: Wire) -> None:
    with fake_servers.fake_server(fake_servers.triton()) as server:
        client = Client.ready(server.url, wire=wire, rows=(1, 5))
        assert client.faults() == {None}
        assert client.checker.kinds_with_equal_answers == ()
    wires = {payload.wire for payload in client.payloads}
    assert wires == ({"json", "binary"} if wire == "mixed" else {wire})


def test_triton_has_no_gates() -> None:
    with fake_servers.fake_server(fake_servers.triton()) as server:
        for wire in ("gates", "lesion", "v1"):
            with pytest.raises(UsageError, match=f"--wire {wire}: expected .* triton"):
                Client.ready(server.url, wire=wire)


def test_mlserver_is_supported(tmp_path: Path) -> None:
    """An id in every answer does not make answers wrong."""
    with fake_servers.fake_server(
        fake_servers.mlserver(inputs=[fake_servers.INPUT], outputs=[fake_servers.OUTPUT])
    ) as server:
        assert Client.ready(server.url, rows=(1, 3)).faults() == {None}
    with fake_servers.fake_server(fake_servers.mlserver()) as server:
        with pytest.raises(TargetError, match="does not describe the inputs of 'scale'"):
            Client.ready(server.url)
        np.savez(tmp_path / "rows.npz", x=np.random.default_rng(0).random((9, 4), np.float32))
        assert Client.ready(server.url, rows=(1, 3), data=tmp_path / "rows.npz").faults() == {None}
        with pytest.raises(
            TargetError, match=r"binary, 1 row: expected a reference answer, got 400: Invalid JSON"
        ):
            Client.ready(server.url, wire="binary", data=tmp_path / "rows.npz")


def test_kserve_is_supported() -> None:
    with fake_servers.fake_server(fake_servers.kserve()) as server:
        mixed = Client.ready(server.url, wire="mixed", rows=(2,))
        assert mixed.faults() == {None}
        assert {payload.wire for payload in mixed.payloads} == {"json", "v1"}
        assert Client.ready(server.url, wire="binary").faults() == {None}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            edit_output(lambda o: o["data"].__setitem__(-1, o["data"][-1] + 0.001)),
            "logits differs from the ref",
        ),
        (edit_output(lambda o: o["data"].reverse()), "logits differs from the reference answer"),
        (edit_output(lambda o: o["data"].__setitem__(0, float("nan"))), "logits is not finite"),
        (edit_output(lambda o: o["data"].__setitem__(0, None)), "values of another datatype"),
        (edit_output(lambda o: o.update(shape=o["shape"][::-1])), "shape of logits"),
        (edit_output(lambda o: o.update(shape=[1, 3], data=o["data"][:3])), "shape of logits"),
        (edit_output(lambda o: o.update(name="other")), "outputs"),
        (lambda answer: FakeAnswer(answer.data[:-1]), "not JSON"),
        (lambda answer: FakeAnswer(b""), "not JSON"),
        (lambda answer: FakeAnswer({**answer.body, "model_name": "other"}), "model"),
        (previous_answer, "logits differs from the reference answer"),
    ],
)
def test_wrong_json_responses_are_found(change: Change, fault: str) -> None:
    faulty = Faulty()
    with fake_servers.fake_server(fake_servers.triton(faulty.infer)) as server:
        client = Client.ready(server.url, rows=(2,))
        assert client.faults() == {None}
        faulty.change = change
        (fault_text,) = client.faults()
    assert fault_text is not None
    assert fault_text.startswith(f"wrong: {fault}")
    assert client.checker.first_wrong is not None
    assert client.checker.first_wrong.startswith("json, 2 rows: ")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            lambda answer: FakeAnswer(answer.data[:-4] + b"\0\0\xc0\x7f", headers=answer.headers),
            "logits is not finite",
        ),
        (lambda answer: FakeAnswer(answer.data[:-4] + b"\0\0\0\0", headers=answer.headers), "logits differs"),
        (
            lambda answer: FakeAnswer(answer.data[:-4], headers=answer.headers),
            "binary data of another length",
        ),
        (
            lambda answer: FakeAnswer(answer.data + b"\0", headers=answer.headers),
            "binary data of another length",
        ),
        (lambda answer: FakeAnswer(answer.data), "not JSON"),
        (lambda answer: FakeAnswer(answer.data, headers={LENGTH_HEADER: "7"}), "not JSON"),
        (previous_answer, "logits differs"),
    ],
)
def test_wrong_binary_responses_are_found(change: Change, fault: str) -> None:
    faulty = Faulty()
    with fake_servers.fake_server(fake_servers.triton(faulty.infer)) as server:
        client = Client.ready(server.url, rows=(2,), wire="binary")
        assert client.faults() == {None}
        faulty.change = change
        (fault_text,) = client.faults()
    assert fault_text is not None
    assert fault_text.startswith(f"wrong: {fault}")


def test_invalid_reference_responses_stop_the_test() -> None:
    """An answer that contradicts the metadata is not taken as a reference."""
    for change, message in [
        (edit_output(lambda o: o["data"].__setitem__(0, float("inf"))), "'logits': expected finite numbers"),
        (
            edit_output(lambda o: o.update(shape=[3], data=o["data"][:3])),
            r"expected shape \[1, 3\], got \[3\]",
        ),
        (lambda answer: FakeAnswer({"error": "NaN is no JSON"}, 422), "got 422: NaN is no JSON"),
        (
            lambda answer: FakeAnswer(answer.data, headers={"Content-Length": "9999"}),
            "the connection ended before",
        ),
    ]:
        faulty = Faulty()
        faulty.change = change
        with (
            fake_servers.fake_server(fake_servers.triton(faulty.infer)) as server,
            pytest.raises(TargetError, match=message),
        ):
            Client.ready(server.url)


@pytest.mark.slow
def test_our_own_server_is_supported() -> None:
    """All wire formats are decoded, and answers to other rows are noticed."""
    with live_server.serving() as server:
        client = Client.ready(server.url, wire="mixed", rows=(1, 3))
        assert {payload.wire for payload in client.payloads} == {"json", "binary", "v1", "gates", "lesion"}
        assert client.checker.kinds_with_equal_answers == ()
        assert client.faults() == {None}
        for payload in client.payloads:
            reply = client.http.post(payload.path, payload.data, payload.headers)
            headers = dict(reply.headers)
            if length := headers.get(LENGTH_HEADER.lower()):
                headers[LENGTH_HEADER.lower()] = str(int(length) + 1)
            # other bytes with the same meaning, which have to be decoded
            assert client.checker.check(payload, 200, headers, b" " + reply.body) is None
            others = (
                other for other in client.payloads if other.kind == payload.kind and other is not payload
            )
            fault = client.checker.check(next(others), reply.status, reply.headers, reply.body)
            assert fault is not None
            assert fault.endswith("differs from the reference answer")
        with pytest.raises(TargetError, match="expected a model 'digits-10' of version 9, got 404"):
            Client.ready(server.url, version="9")
        assert Client.ready(server.url, version="1", wire="mixed").faults() == {None}
