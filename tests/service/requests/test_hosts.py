"""The hosts that requests may name: a list, or by default the names of this machine on a loopback address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from tests.support.in_process_servers import ask, own_server, uvicorn_server
from tests.support.in_process_worker import INFER, NAME, InProcessWorker, load_worker
from turnpike.service.config.settings import Settings
from turnpike.service.errors import MisdirectedError
from turnpike.service.requests.hosts import AllowedHosts
from turnpike.service.requests.request import RequestHead

LOCAL = (
    "localhost",
    "LOCALHOST:8000",
    "localhost.",
    "a.b.localhost",
    "127.0.0.1:8000",
    "127.9.8.7",
    "[::1]:80",
)
OTHERS = (
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "0.0.0.0",
    "10.0.0.1",
    "[::2]",
    "x",
)

Start = Callable[[InProcessWorker], AbstractAsyncContextManager[int]]


def allows(hosts: AllowedHosts | None, host: str) -> bool:
    if hosts is None:
        return True
    try:
        hosts.check(RequestHead("GET", "/v2", "/v2", b"", [(b"host", host.encode())]))
    except MisdirectedError:
        return False
    return True


@pytest.mark.parametrize("bound", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_a_local_service_answers_only_for_this_machine(bound: str) -> None:
    hosts = AllowedHosts.from_settings(Settings(host=bound))
    assert [host for host in LOCAL if not allows(hosts, host)] == []
    assert [host for host in OTHERS if allows(hosts, host)] == []


def test_the_own_name_of_a_local_service_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian lets the name of the machine resolve to 127.0.1.1."""
    address = [(2, 1, 6, "", ("127.0.1.1", 0))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: address)
    hosts = AllowedHosts.from_settings(Settings(host="My-Machine"))
    assert allows(hosts, "my-machine:8000")
    assert not allows(hosts, "evil.example")


@pytest.mark.parametrize("bound", ["0.0.0.0", "::", "10.1.2.3"])
def test_a_public_service_answers_for_any_host(bound: str) -> None:
    """Probes of Kubernetes send the address of the pod."""
    assert AllowedHosts.from_settings(Settings(host=bound)) is None
    assert AllowedHosts.from_settings(Settings(allowed_hosts=("a.example", "*"))) is None


def test_a_list_replaces_the_default() -> None:
    """Ports and upper case make no difference. A pattern allows all names below one, and not that name."""
    listed = ("Models.Example:80", "*.internal.example", "10.0.0.5", "[FD00::1]")
    for bound in ("127.0.0.1", "0.0.0.0"):
        hosts = AllowedHosts.from_settings(Settings(host=bound, allowed_hosts=listed))
        for host in (
            "models.example",
            "MODELS.example.:8000",
            "a.b.internal.example",
            "10.0.0.5:1",
            "[fd00::1]",
        ):
            assert allows(hosts, host), host
        for host in ("localhost", "internal.example", "xinternal.example", "a.models.example", "10.0.0.50"):
            assert not allows(hosts, host), host


@pytest.fixture(scope="module")
def worker() -> InProcessWorker:
    return load_worker(access_log=False)


def raw(method: str, path: str, host: str) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode()


@pytest.mark.parametrize("server", [own_server, uvicorn_server])
def test_a_request_for_another_host_is_refused(worker: InProcessWorker, server: Start) -> None:
    """This holds for all routes and methods, and for heads that were received before."""
    error = (
        "Host: expected localhost or a loopback address, as the service listens on one (--allowed-hosts), "
        "got 'evil.example'"
    )

    async def test() -> None:
        async with server(worker) as port:
            for method, path in (
                ("GET", "/"),
                ("GET", "/v2/models"),
                ("GET", "/docs"),
                ("POST", INFER),
                ("GET", f"/v2/models/{NAME}/certificate"),
                ("OPTIONS", INFER),
                ("GET", "/nowhere"),
            ):
                for _ in range(2):
                    reply = await ask(port, raw(method, path, "evil.example:8000"))
                    assert (reply.status, reply.json) == (421, {"error": error}), path
                reply = await ask(port, raw(method, path, f"localhost:{port}"))
                assert reply.status != 421, path
                assert (await ask(port, raw(method, path, "evil.example:8000"))).status == 421
            # probes send the address of the container
            for path in ("/v2/health/live", "/v2/health/ready"):
                for _ in range(2):
                    assert (await ask(port, raw("GET", path, "10.0.0.1:8000"))).status == 200

    before = worker.app.context.counters.snapshot()["refused"].get("misdirected", 0)
    asyncio.run(test())
    assert worker.app.context.counters.snapshot()["refused"]["misdirected"] == before + 21


def test_the_host_of_a_url_is_checked(worker: InProcessWorker) -> None:
    """It replaces the header Host. A request without any host is answered."""

    async def test() -> None:
        async with own_server(worker) as port:
            reply = await ask(port, raw("GET", "http://evil.example/v2", "localhost"))
            assert reply.status == 421
            reply = await ask(port, raw("GET", "http://localhost/v2", "evil.example"))
            assert reply.status == 200
            assert (await ask(port, b"GET /v2 HTTP/1.0\r\n\r\n")).status == 200

    asyncio.run(test())
