"""Codes of gRPC as errors, retries and deadlines, with a server that answers with errors."""

from __future__ import annotations

import threading

import grpc
import numpy as np
import pytest

from tests.support.client_server import Kind, call
from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.grpc_stand_in import Failure, answering
from tests.support.live_server import free_port, serving
from turnpike.client.client import Client
from turnpike.client.errors import (
    ClientError,
    DeadlineError,
    RequestRefusedError,
    ServerError,
    UnavailableError,
)
from turnpike.service.artifact.runtime import open_model
from turnpike.service.grpc.connection.status import CODES
from turnpike.service.grpc.messages.descriptors import message_class

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

KINDS: list[Kind] = ["blocking", "async"]
Code = grpc.StatusCode
ID = (("x-request-id", "1"),)
FULL = Failure(Code.RESOURCE_EXHAUSTED, (*ID, ("retry-after", "0")))
NOT_SERVED = Failure(Code.UNAVAILABLE)
# no answer of the service, as when a connection breaks
LOST = Failure(Code.UNAVAILABLE, ())
MODELS = message_class("inference.RepositoryIndexResponse")(models=[{"name": "net"}]).SerializeToString()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("failure", [FULL, LOST])
def test_it_tries_again(kind: Kind, failure: Failure) -> None:
    with answering(failure, failure, MODELS) as (url, given):
        assert call(kind, url, "models") == ["net"]
        assert len(given) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_all_tries_share_one_deadline(kind: Kind) -> None:
    """Each try has the rest of the time as its deadline. grpcio rounds a deadline above a second up."""
    with answering(FULL, None) as (url, given):
        with pytest.raises(DeadlineError):
            call(kind, url, "models", options={"timeout": 0.95})
        assert 0.95 >= given[0] > given[1]


@pytest.mark.parametrize("kind", KINDS)
def test_it_tries_no_more_often_than_it_may(kind: Kind) -> None:
    with answering(FULL) as (url, given):
        with pytest.raises(
            UnavailableError, match=r"^models at grpc.*: the reason \(status 503\)$"
        ) as caught:
            call(kind, url, "models", options={"retries": 1})
        assert caught.value.retry_after == 0
        assert len(given) == 2


@pytest.mark.parametrize("failure", [NOT_SERVED, Failure(Code.UNAVAILABLE, (*ID, ("retry-after", "99")))])
def test_it_does_not_try_again_in_vain(failure: Failure) -> None:
    """Without a retry-after, or with one past the deadline."""
    with answering(failure) as (url, given):
        with pytest.raises(UnavailableError, match="the reason"):
            call("blocking", url, "models")
        assert len(given) == 1


@pytest.mark.parametrize(
    ("code", "kind", "status"),
    [
        (Code.INVALID_ARGUMENT, RequestRefusedError, 400),
        (Code.UNAUTHENTICATED, RequestRefusedError, 401),
        (Code.PERMISSION_DENIED, RequestRefusedError, 403),
        (Code.NOT_FOUND, RequestRefusedError, 404),
        (Code.RESOURCE_EXHAUSTED, RequestRefusedError, 413),
        (Code.FAILED_PRECONDITION, RequestRefusedError, 421),
        (Code.OUT_OF_RANGE, RequestRefusedError, 422),
        (Code.UNIMPLEMENTED, RequestRefusedError, 501),
        (Code.INTERNAL, ServerError, 500),
        (Code.DATA_LOSS, ServerError, 500),
        (Code.UNAVAILABLE, UnavailableError, 503),
        (Code.DEADLINE_EXCEEDED, DeadlineError, 504),
    ],
)
def test_each_code_is_an_error(code: grpc.StatusCode, kind: type[ClientError], status: int) -> None:
    """The status is one that the service has this code for."""
    with answering(Failure(code)) as (url, given):
        with pytest.raises(ClientError, match="the reason") as caught:
            call("blocking", url, "models")
        assert (type(caught.value), caught.value.status) == (kind, status)
        assert len(given) == 1
    assert code is Code.DATA_LOSS or CODES[status].name == code.name


def test_another_server_has_no_status_of_ours() -> None:
    with answering(Failure(Code.INTERNAL, ())) as (url, _):
        with pytest.raises(ServerError, match="^models at grpc.*: INTERNAL: the reason$") as caught:
            call("blocking", url, "models")
        assert caught.value.status is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content", [b"\xff", b"\x2a"])
def test_an_answer_that_is_no_message(kind: Kind, content: bytes) -> None:
    with answering(content) as (url, _), pytest.raises(ServerError, match="^models at grpc"):
        call(kind, url, "models")


@pytest.mark.parametrize("raw", [[b""], [b"123"], [], [b"1234", b"1234"]])
def test_a_tensor_with_other_bytes_than_its_shape(raw: list[bytes]) -> None:
    tensor = {"name": "y", "datatype": "FP32", "shape": [1]}
    metadata = message_class("inference.ModelMetadataResponse")(name="net", inputs=[tensor])
    answer = message_class("inference.ModelInferResponse")(outputs=[tensor], raw_output_contents=raw)
    with (
        answering(metadata.SerializeToString(), answer.SerializeToString()) as (url, _),
        pytest.raises(ServerError, match="expected an answer of the protocol, got another"),
    ):
        call("blocking", url, "infer", "net", {"y": [1]})


@pytest.mark.parametrize("kind", KINDS)
def test_the_deadline_holds(kind: Kind) -> None:
    with answering(None) as (url, given):
        with pytest.raises(DeadlineError, match="^models at grpc.*: expected an answer within") as caught:
            call(kind, url, "models", options={"timeout": 0.3})
        assert isinstance(caught.value, TimeoutError)
        assert len(given) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_at_the_address_is_an_error(kind: Kind) -> None:
    url = f"grpc://127.0.0.1:{free_port()}"
    with pytest.raises(UnavailableError, match=f"^models at {url}: expected an answer, got .*refused"):
        call(kind, url, "models", options={"retries": 1})


def test_a_client_may_start_before_the_service() -> None:
    """It connects soon after the service listens: the pauses of grpcio grow up to two minutes otherwise."""
    port = free_port()
    names: list[list[str]] = []

    def ask() -> None:
        names.append(call("blocking", f"grpc://127.0.0.1:{port}", "models", options={"retries": 99}))

    thread = threading.Thread(target=ask)
    thread.start()
    with serving("--grpc-port", port, "--no-access-log"):
        thread.join(30)
    assert names in ([["digits-10"]], [[]])


@pytest.mark.slow
def test_threads_share_a_client_and_a_full_queue() -> None:
    """32 threads, two places in the queue: some requests are refused, and all get their own answer."""
    generator = np.random.default_rng(0)
    batches = [generator.integers(0, 17, (300 + number, 64)).astype(np.float32) for number in range(32)]
    runtime = open_model(BUNDLED_MODEL)
    equal: list[bool] = []
    with (
        serving("--grpc-port", 0, "--queue", 2, "--no-access-log") as server,
        Client(f"grpc://{server.grpc_address}", retries=50, timeout=100) as client,
    ):

        def ask(number: int) -> None:
            rows = batches[number]
            (expected,) = runtime.run({"x": rows.reshape(-1, 1, 8, 8)})
            for _ in range(3):
                got = client.infer("digits-10", rows)["output"]
                equal.append(got.tobytes() == expected.tobytes())

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        refused = [line for line in server.get("/metrics").text.splitlines() if 'overloaded"}' in line]
    assert equal == [True] * 96
    assert any(float(line.split()[-1]) > 0 for line in refused), refused
