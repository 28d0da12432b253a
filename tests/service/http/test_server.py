"""What HTTPS is spoken with: files of no use are said at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.config.settings import Settings
from service.errors import SettingError
from service.http.listener import tls_context
from tests.support.tls_certificate import certificate, openssl


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


def given(folder: Path, cert: str, key: str) -> Settings:
    return Settings(tls_cert=folder / cert, tls_key=folder / key)


def test_a_pair_that_fits_is_taken(files: Path) -> None:
    """And without one it is plain HTTP."""
    assert tls_context(given(files, "mine.pem", "mine.key")) is not None
    assert tls_context(Settings()) is None


@pytest.mark.parametrize(
    ("cert", "key", "says"),
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
def test_a_pair_of_no_use_is_said(files: Path, cert: str, key: str, says: str) -> None:
    """Which of the two is at fault, and nobody is asked for a passphrase."""
    with pytest.raises(SettingError) as raised:
        tls_context(given(files, cert, key))
    assert str(raised.value) == says.replace("{}", str(files))
