"""The listening socket: errors that name the setting, and a shutdown that loses no accepted connection."""

from __future__ import annotations

import errno
import select
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.tls_certificate import certificate, openssl
from tests.support.waiting import wait_until
from turnpike.service.config.settings import Settings
from turnpike.service.errors import SettingError
from turnpike.service.http.connection import listener as listeners
from turnpike.service.http.connection.listener import (
    accept,
    bind_error_message,
    listen,
    listener_url,
    refuse_new_connections,
    tls_context,
)


def has_ipv6() -> bool:
    """Whether this machine can listen on an IPv6 address, found out without the code under test."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def test_a_port_in_use_is_a_setting_error() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(SettingError) as raised:
            listen("127.0.0.1", port)
    assert str(raised.value) == f"--port: expected a free port, got {port}, on which another process listens"


@pytest.mark.parametrize("host", ["no such host", "192.0.2.7", "a..b", "x" * 300])
def test_a_host_of_another_machine_is_a_setting_error(host: str) -> None:
    """So is a name that cannot be resolved."""
    with pytest.raises(SettingError, match="--host: expected an address"):
        listen(host, 0)


def test_a_privileged_port_is_a_setting_error() -> None:
    """The message suggests a port that needs no root."""
    message = bind_error_message(PermissionError(errno.EACCES, "denied"), "127.0.0.1", 80)
    assert message == "--port: expected a port that this user may listen on, such as one from 1024, got 80"


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "http://127.0.0.1:"),
        ("0.0.0.0", "http://127.0.0.1:"),
        pytest.param("::1", "http://[::1]:", marks=needs_ipv6),
        pytest.param("::", "http://[::1]:", marks=needs_ipv6),
    ],
)
def test_the_listener_url_can_be_called(host: str, shown: str) -> None:
    """The URL that is printed works as it is, also for IPv6 and for a listener on all addresses."""
    with listen(host, 0) as listener:
        assert listener_url(listener, "http") == f"{shown}{listener.getsockname()[1]}"
        assert listener_url(listener, "https").startswith("https://")
        url = urlsplit(listener_url(listener, "http"))
        socket.create_connection((url.hostname, url.port), 5).close()


@needs_ipv6
def test_listening_on_all_ipv6_addresses_includes_ipv4() -> None:
    """A listener on :: accepts IPv4 clients as well."""
    with listen("::", 0) as listener:
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, listener.getsockname()[1]), 5).close()


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can refuse new connections")


@needs_linux
@pytest.mark.parametrize(
    ("host", "client_host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        pytest.param("::", "127.0.0.1", marks=needs_ipv6),
        pytest.param("::", "::1", marks=needs_ipv6),
    ],
)
def test_refusing_new_connections_keeps_queued_ones(host: str, client_host: str) -> None:
    """A queued connection can still be accepted and used; a new one times out."""
    with listen(host, 0) as listener:
        address = (client_host, listener.getsockname()[1])
        with socket.create_connection(address, 5) as queued:
            refuse_new_connections(listener)
            with pytest.raises(TimeoutError):
                socket.create_connection(address, 0.3)
            with accept(listener) as accepted:
                with pytest.raises(BlockingIOError):
                    accept(listener)
                assert_both_ways(queued, accepted)


@needs_linux
def test_a_handshake_under_way_becomes_a_usable_connection() -> None:
    """It began before new connections were refused, and ends later. What the client sends is not dropped."""
    with listen("127.0.0.1", 0) as listener:
        # the kernel ignores the last packet of a handshake without data, so that the handshake goes on
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 5)
        with socket.create_connection(listener.getsockname(), 5) as client:
            refuse_new_connections(listener)
            client.sendall(b"first")
            wait_until(lambda: bool(select.select([listener], [], [], 0)[0]), 5)
            with accept(listener) as accepted:
                accepted.settimeout(5)
                assert accepted.recv(5) == b"first"
                assert_both_ways(client, accepted)


def assert_both_ways(client: socket.socket, accepted: socket.socket) -> None:
    """Data arrives in both directions."""
    accepted.settimeout(5)
    client.sendall(b"hello")
    assert accepted.recv(5) == b"hello"
    accepted.sendall(b"world")
    assert client.recv(5) == b"world"


def test_a_kernel_that_cannot_refuse_connections_accepts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the option of the kernel, shutdown goes on."""
    monkeypatch.setattr(listeners, "IP_MINTTL", 9999)
    with listen("127.0.0.1", 0) as listener:
        refuse_new_connections(listener)
        socket.create_connection(listener.getsockname(), 5).close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two certificates, their keys, and a key with a passphrase."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("mine", "other"):
        certificate(folder, name)
    openssl(
        *("ec", "-in", folder / "mine.key", "-aes128", "-passout", "pass:hush", "-out", folder / "secret.key")
    )
    (folder / "text").write_text("hello")
    return folder


def tls_settings(folder: Path, cert: str, key: str) -> Settings:
    return Settings(tls_cert=folder / cert, tls_key=folder / key)


def test_a_valid_certificate_and_key_are_loaded(files: Path) -> None:
    """Without a certificate the service speaks plain HTTP."""
    assert tls_context(tls_settings(files, "mine.pem", "mine.key")) is not None
    assert tls_context(Settings()) is None


@pytest.mark.parametrize(
    ("cert", "key", "message"),
    [
        ("text", "text", "--tls-cert: expected a certificate chain (PEM), got '{}/text'"),
        ("mine.key", "mine.pem", "--tls-cert: expected a certificate chain (PEM), got '{}/mine.key'"),
        (
            "mine.pem",
            "text",
            "--tls-key: expected the private key (PEM) of the certificate '{}/mine.pem', got '{}/text'",
        ),
        (
            "mine.pem",
            "other.key",
            "--tls-key: expected the private key (PEM) of the certificate '{}/mine.pem', got '{}/other.key' "
            "(key values mismatch)",
        ),
        (
            "mine.pem",
            "secret.key",
            "--tls-key: expected a key without a passphrase, got '{}/secret.key', which has one",
        ),
    ],
)
def test_an_invalid_certificate_or_key_is_a_setting_error(
    files: Path, cert: str, key: str, message: str
) -> None:
    """The error names the file. There is no prompt for a passphrase."""
    with pytest.raises(SettingError) as raised:
        tls_context(tls_settings(files, cert, key))
    assert str(raised.value) == message.replace("{}", str(files))
