"""Self-signed certificates for HTTPS servers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def openssl(*words: object) -> None:
    """Run openssl, or skip the test if it is not installed."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificates, is not installed")
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def certificate(folder: Path, name: str = "own") -> tuple[Path, Path]:
    """The paths of a new certificate for 127.0.0.1 and of its key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    request = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2)
    subject = ("-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1")
    openssl(*request, *subject, "-keyout", key, "-out", cert)
    return cert, key
