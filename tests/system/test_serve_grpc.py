"""A real server of gRPC with clients of grpcio: metadata, several workers, and ends under load."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest
import requests

from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.grpc_load import InferRequest, digit_request, grpc_load, infer_method
from tests.support.live_server import Server, serving, worker_processes
from tests.support.tls_certificate import certificate
from tests.support.waiting import wait_until
from turnpike.service.grpc.messages.descriptors import message_class

INFERENCE = "/inference.GRPCInferenceService"
KEY, ADMIN = ("x-api-key", "secret"), ("authorization", "Bearer master")
TRACE = "ab" * 16
StreamResponse = message_class("inference.ModelStreamInferResponse")
# errors of a channel whose server has ended, for calls that it has not sent
REFUSED = ("UNAVAILABLE: failed to connect to all addresses", "UNAVAILABLE: Connection refused")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The bundled model with two workers and keys."""
    keys = {"TURNPIKE_API_KEYS": "secret", "TURNPIKE_ADMIN_KEY": "master"}
    with serving("--workers", 2, "--grpc-port", 0, **keys) as one:
        yield one


@contextlib.contextmanager
def channel_to(server: Server) -> Iterator[grpc.Channel]:
    """A channel with a connection of its own."""
    with grpc.insecure_channel(server.grpc_address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


def infer(channel: grpc.Channel, *metadata: tuple[str, str]) -> Any:
    """A prediction, and the metadata of its answer."""
    answer, call = infer_method(channel).with_call(digit_request(), metadata=metadata, timeout=20)
    assert len(answer.raw_output_contents[0]) == 40
    return dict(call.initial_metadata())


def refusal(channel: grpc.Channel, method: str, name: str, *metadata: tuple[str, str], **fields: Any) -> str:
    """The code of a call of the protocol that is refused."""
    request = message_class(f"inference.{name}")(**fields)
    call = channel.unary_unary(f"{INFERENCE}/{method}")
    with pytest.raises(grpc.RpcError) as caught:
        call(request.SerializeToString(), metadata=metadata, timeout=20)
    return str(caught.value.code().name)


def logged(server: Server, request_id: str) -> dict[str, Any]:
    """The line of a request in the log."""
    lines: list[dict[str, Any]] = []

    def is_logged() -> bool:
        lines[:] = [line for line in server.logged() if line.get("id") == request_id]
        return bool(lines)

    wait_until(is_logged)
    return lines[0]


def wait_for_end(pid: int) -> None:
    """Wait until a process has ended."""
    wait_until(lambda: not psutil.pid_exists(pid))


def test_keys_are_metadata(server: Server) -> None:
    """An API key for predictions, the admin key for changes, and none for health."""
    with channel_to(server) as channel:
        infer(channel, KEY)
        infer(channel, ("authorization", "Bearer secret"))
        infer(channel, ADMIN)
        assert refusal(channel, "ModelInfer", "ModelInferRequest") == "UNAUTHENTICATED"
        wrong = ("x-api-key", "other")
        assert refusal(channel, "ModelInfer", "ModelInferRequest", wrong) == "UNAUTHENTICATED"
        load = ("RepositoryModelLoad", "RepositoryModelLoadRequest")
        assert refusal(channel, *load, KEY, model_name="digits-10") == "PERMISSION_DENIED"
        assert refusal(channel, *load, ADMIN, model_name="absent") == "NOT_FOUND"
        live = channel.unary_unary(f"{INFERENCE}/ServerLive")(b"", timeout=20)
        assert message_class("inference.ServerLiveResponse").FromString(live).live


def test_ids_and_traces_are_metadata(server: Server) -> None:
    """The log has them, and the answer the id."""
    traceparent = ("traceparent", f"00-{TRACE}-{'cd' * 8}-01")
    with channel_to(server) as channel:
        metadata = infer(channel, KEY, ("x-request-id", "mine"), traceparent)
        assert metadata["x-request-id"] == "mine"
        line = logged(server, "mine")
        assert (line["trace"], line["status"], line["model"]) == (TRACE, 200, "digits-10/1")
        assert line["path"] == f"{INFERENCE}/ModelInfer"
        made = infer(channel, KEY)["x-request-id"]
        assert logged(server, made)["status"] == 200


@pytest.mark.slow
def test_calls_may_be_left_out_of_drift() -> None:
    """By the same header as over HTTP."""
    with serving("--workers", 1, "--grpc-port", 0) as server, channel_to(server) as channel:

        def rows() -> int:
            return int(server.get("/v2/models/digits-10/gates/drift").json()["rows"])

        for _ in range(5):
            infer(channel, ("x-turnpike-drift", "skip"))
            time.sleep(0.12)
        assert rows() == 0

        def counts() -> bool:
            infer(channel)
            return rows() > 0

        wait_until(counts)


def test_channels_are_shared_by_the_workers(server: Server) -> None:
    """Each worker has about as many; all calls of a channel go to one worker."""
    # a worker that gets no processor for a while leaves its share to the other, and gets more afterwards
    assert any(smaller_share(server, f"spread-{attempt}") >= 3 for attempt in range(3))


def smaller_share(server: Server, name: str, channels: int = 8) -> int:
    """Open new channels, and return how many of them the worker with fewer of them serves."""
    with contextlib.ExitStack() as opened:
        seen = []
        for number in range(channels):
            # they stay open until the end, so that all count
            options = [("grpc.use_local_subchannel_pool", 1)]
            channel = opened.enter_context(grpc.insecure_channel(server.grpc_address, options))
            ids = [f"{name}-{number}-{turn}" for turn in range(3)]
            for request_id in ids:
                infer(channel, KEY, ("x-request-id", request_id))
            (worker,) = {logged(server, request_id)["worker"] for request_id in ids}
            seen.append(worker)
    assert set(seen) <= {1, 2}
    return min(seen.count(worker) for worker in (1, 2))


def test_a_call_of_http_on_the_port_of_grpc(server: Server) -> None:
    """It gets an answer that says where HTTP is."""
    response = requests.get(f"http://{server.grpc_address}/v2", timeout=20)
    assert response.status_code == 400
    assert "--port" in response.json()["error"]


# ---- under load


@dataclass
class StreamTally:
    """What clients of ModelStreamInfer have seen."""

    answered: int = 0
    reopened: int = 0
    lost: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


@contextlib.contextmanager
def stream_load(address: str, streams: int = 4) -> Iterator[StreamTally]:
    """Send on streams, several messages ahead, and open a new one when the server asks for it.

    A message is lost if its stream ends well without an answer to it, or with another error.
    """
    tally, lock = StreamTally(), threading.Lock()
    stopping, answered = threading.Event(), threading.Semaphore(0)

    def one_stream(channel: grpc.Channel) -> None:
        """Send messages until the end of the test or of the stream."""
        outgoing: SimpleQueue[Any] = SimpleQueue()
        sent = received = 0
        for _ in range(4):
            outgoing.put(digit_request())
            sent += 1
        call = channel.stream_stream(
            f"{INFERENCE}/ModelStreamInfer",
            request_serializer=InferRequest.SerializeToString,
            response_deserializer=StreamResponse.FromString,
        )(iter(outgoing.get, None), timeout=60)
        try:
            for response in call:
                assert len(response.infer_response.raw_output_contents[0]) == 40, response.error_message
                received += 1
                with lock:
                    tally.answered += 1
                answered.release()
                if stopping.is_set():
                    if received == sent:
                        outgoing.put(None)
                else:
                    outgoing.put(digit_request())
                    sent += 1
            if received < sent:
                tally.lost.append(f"{sent - received} messages without an answer")
        except grpc.RpcError as error:
            text = f"{error.code().name}: {error.details()}"
            with lock:
                if text.startswith(REFUSED):
                    tally.refused.append(text)
                elif "open a new stream" in text:
                    tally.reopened += 1
                else:
                    tally.lost.append(text)
        finally:
            outgoing.put(None)

    def send() -> None:
        with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            while not stopping.is_set() and not tally.refused:
                one_stream(channel)

    senders = [threading.Thread(target=send) for _ in range(streams)]
    for sender in senders:
        sender.start()
    try:
        for _ in range(4 * streams):
            assert answered.acquire(timeout=30)
        yield tally
    finally:
        stopping.set()
        for sender in senders:
            sender.join(60)


async def many_calls(
    server: Server, action: Callable[[], Any], channels: int = 4, each: int = 32
) -> Counter[str]:
    """How many calls had each outcome, with several in flight on each channel, before and after an action."""
    outcomes: Counter[str] = Counter()
    stopping = asyncio.Event()

    async def send(infer: Any) -> None:
        while not stopping.is_set() and not outcomes["refused"]:
            try:
                await infer(digit_request(), timeout=30)
                outcomes["good"] += 1
            except grpc.aio.AioRpcError as error:
                text = f"{error.code().name}: {error.details()}"
                outcomes["refused" if text.startswith(REFUSED) else text] += 1

    async with contextlib.AsyncExitStack() as stack:
        sending = []
        for _ in range(channels):
            options = [("grpc.use_local_subchannel_pool", 1)]
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.grpc_address, options))
            sending += [asyncio.create_task(send(infer_method(channel))) for _ in range(each)]
        await asyncio.sleep(0.5)
        assert outcomes["good"]
        await asyncio.to_thread(action)
        good = outcomes["good"]
        async with asyncio.timeout(30):
            while not outcomes["refused"] and outcomes["good"] < good + 500:
                await asyncio.sleep(0.01)
        stopping.set()
        await asyncio.gather(*sending)
    return outcomes


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_sigterm_under_load_loses_no_call(workers: int) -> None:
    """Calls that were sent are answered, or tried again by their channel. Later ones find no server."""
    for turn in range(4):
        with serving("--workers", workers, "--grpc-port", 0, "--no-access-log") as server:

            def end(server: Server = server, turn: int = turn) -> None:
                time.sleep(turn / 20)
                assert server.stop() == 0

            outcomes = asyncio.run(many_calls(server, end))
        assert outcomes.keys() == {"good", "refused"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_sigterm_under_load_of_streams_answers_all_messages() -> None:
    """A busy stream may go on until `--drain-seconds`; one that pauses is asked to open a new one."""
    with serving("--workers", 2, "--grpc-port", 0, "--no-access-log") as server:
        with stream_load(server.grpc_address) as tally:
            time.sleep(0.5)
            server.process.send_signal(signal.SIGTERM)
            # the streams end when their clients stop
            time.sleep(1.5)
        assert server.process.wait(30) == 0
    assert tally.answered > 20
    assert tally.lost == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_stopped_worker_hands_its_channels_over() -> None:
    """The others and its replacement answer everything: no call fails, not even by a refused connection."""
    with serving("--workers", 2, "--grpc-port", 0, "--no-access-log") as server:
        before = {process.pid for process in worker_processes(server)}

        def replace() -> None:
            for pid in before:
                os.kill(pid, signal.SIGTERM)
                wait_for_end(pid)
            wait_until(lambda: len(worker_processes(server)) == 2)

        outcomes = asyncio.run(many_calls(server, replace))
        assert {process.pid for process in worker_processes(server)}.isdisjoint(before)
    assert outcomes.keys() == {"good"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_worker_loses_only_its_own_calls() -> None:
    """At most one of each channel, and the channels connect again."""
    with serving("--workers", 2, "--grpc-port", 0, "--no-access-log") as server:
        with grpc_load(server.grpc_address) as tally:
            victim = min(process.pid for process in worker_processes(server))
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda: len(worker_processes(server)) == 2)
            good = tally.good
            wait_until(lambda: tally.good > good + 100)
        assert victim not in {process.pid for process in worker_processes(server)}
    assert len(tally.errors) <= 6
    assert {error.partition(":")[0] for error in tally.errors} <= {"UNAVAILABLE"}
    assert tally.wrong == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_versions_are_swapped_under_load(tmp_path: Path) -> None:
    """Calls and streams are answered by one version or the other, with the same bits here."""
    model = tmp_path / "digits-10"
    shutil.copytree(BUNDLED_MODEL.parent.parent, model)
    with serving("--models", tmp_path, "--poll", 0.2, "--workers", 2, "--grpc-port", 0) as server:

        def serves(version: str) -> bool:
            with channel_to(server) as channel:
                return bool(infer_method(channel)(digit_request(), timeout=20).model_version == version)

        with grpc_load(server.grpc_address) as tally, stream_load(server.grpc_address) as streams:
            for number in (2, 3):
                (model / f".{number}").mkdir()
                shutil.copy(BUNDLED_MODEL, model / f".{number}" / "model.onnx")
                (model / f".{number}").rename(model / str(number))
                wait_until(partial(serves, str(number)))
                time.sleep(0.3)
    assert tally.errors == streams.lost == streams.refused == []
    assert tally.wrong == 0


@pytest.mark.slow
def test_tls(tmp_path: Path) -> None:
    """The certificate is that of HTTP, and the protocol h2 is agreed on."""
    cert, key = certificate(tmp_path)
    with serving("--workers", 1, "--grpc-port", 0, "--tls-cert", cert, "--tls-key", key) as server:
        credentials = grpc.ssl_channel_credentials(cert.read_bytes())
        with grpc.secure_channel(server.grpc_address, credentials) as channel:
            infer(channel)
        with pytest.raises(grpc.RpcError), channel_to(server) as channel:
            infer(channel)
        context = ssl.create_default_context(cafile=cert)
        context.set_alpn_protocols(["http/1.1", "h2"])
        host, port = server.grpc_address.split(":")
        with (
            socket.create_connection((host, int(port))) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            assert secure.selected_alpn_protocol() == "h2"


@pytest.mark.slow
def test_a_silent_client_of_tls_does_not_delay_the_end(tmp_path: Path) -> None:
    """It never says that its connection has ended, which TLS would wait for."""
    cert, key = certificate(tmp_path)
    options = ("--grpc-port", 0, "--tls-cert", cert, "--tls-key", key, "--drain-seconds", 60)
    with serving(*options) as server:
        context = ssl.create_default_context(cafile=cert)
        context.set_alpn_protocols(["h2"])
        host, port = server.grpc_address.split(":")
        with (
            socket.create_connection((host, int(port))) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            # the preface, and a frame of settings
            secure.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
            server.process.terminate()
            # without the limit, it takes 30 s
            assert server.process.wait(timeout=20) == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_many_connections_at_once(server: Server) -> None:
    """A hundred channels, each with several calls in flight."""
    channels = [
        grpc.insecure_channel(server.grpc_address, [("grpc.use_local_subchannel_pool", 1)])
        for _ in range(100)
    ]
    calls = [
        infer_method(channel).future(digit_request(), metadata=[KEY], timeout=60)
        for _ in range(10)
        for channel in channels
    ]
    assert {bytes(call.result().raw_output_contents[0]) for call in calls} == {
        bytes(calls[0].result().raw_output_contents[0])
    }
    for channel in channels:
        channel.close()
