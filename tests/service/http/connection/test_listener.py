"""The listening socket: errors that name the setting, and a shutdown that loses no accepted connection."""

from __future__ import annotations

import errno
import socket
import sys
from pathlib import Path

import pytest

from service.config.settings import Settings
from service.errors import SettingError
from service.http.connection import listener as listeners
from service.http.connection.listener import (
    bind_error_message,
    listen,
    listener_url,
    refuse_new_connections,
    tls_context,
)
from tests.support.tls_certificate import certificate, openssl


def connected(listener: socket.socket, seconds: float = 5) -> socket.socket:
    client = socket.socket(listener.family)
    client.settimeout(seconds)
    try:
        client.connect(listener.getsockname()[:2])
    except OSError:
        client.close()
        raise
    return client


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
        ("::1", "http://[::1]:"),
        ("::", "http://[::1]:"),
    ],
)
def test_the_listener_url_can_be_called(host: str, shown: str) -> None:
    """The URL that is printed works as it is, also for IPv6 and for a listener on all addresses."""
    try:
        listener = listen(host, 0)
    except SettingError:
        pytest.skip("this machine has no IPv6")
    with listener:
        assert listener_url(listener, "http") == f"{shown}{listener.getsockname()[1]}"
        assert listener_url(listener, "https").startswith("https://")


def test_listening_on_all_ipv6_addresses_includes_ipv4() -> None:
    """A listener on :: accepts IPv4 clients as well."""
    try:
        listener = listen("::", 0)
    except SettingError:
        pytest.skip("this machine has no IPv6")
    with listener, socket.create_connection(("127.0.0.1", listener.getsockname()[1]), 5):
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="uses a socket filter of Linux")
def test_refusing_new_connections_keeps_queued_ones() -> None:
    """A queued connection can still be accepted and used; a new one times out."""
    with listen("127.0.0.1", 0) as listener:
        queued = connected(listener)
        refuse_new_connections(listener)
        with pytest.raises(TimeoutError):
            connected(listener, 0.3)
        accepted, _ = listener.accept()
        with pytest.raises(BlockingIOError):
            listener.accept()
        queued.sendall(b"hello")
        accepted.settimeout(5)
        assert accepted.recv(5) == b"hello"
        accepted.sendall(b"world")
        assert queued.recv(5) == b"world"
        queued.close()
        accepted.close()


def test_without_a_kernel_filter_connections_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the kernel refuses the filter, shutdown goes on without it."""
    monkeypatch.setattr(listeners, "SO_ATTACH_FILTER", 9999)
    with listen("127.0.0.1", 0) as listener:
        refuse_new_connections(listener)
        connected(listener).close()


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
