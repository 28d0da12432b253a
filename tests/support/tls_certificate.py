"""A certificate of its own making, for servers that speak HTTPS."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def openssl(*words: object) -> None:
    """The command; the test is skipped where there is none."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates, and is not installed")
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def certificate(folder: Path, name: str = "own") -> tuple[Path, Path]:
    """A certificate of this machine's loopback, and its key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    made = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2)
    told = ("-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1")
    openssl(*made, *told, "-keyout", key, "-out", cert)
    return cert, key
