"""Fuzz tests of all decoders of the service: bytes from outside are decoded correctly, or refused.

`make fuzz` gives each of them a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.fuzz.compressed_bodies import body_decoder
from tests.service.fuzz.config_files import config_decoder
from tests.service.fuzz.connections import http_decoder
from tests.service.fuzz.grpc_connections import grpc_decoder
from tests.service.fuzz.json_bodies import gate_query_decoder, infer_decoder, lesion_decoder, predict_decoder
from tests.service.fuzz.model_files import manifest_decoder, onnx_decoder
from tests.service.fuzz.repository_files import scan_decoder
from tests.service.fuzz.whole_service import service_decoder
from tests.service.fuzz.worker_messages import ipc_decoder
from tests.support.fuzzing import Decoder, FuzzError, check, fuzz

Loop = asyncio.AbstractEventLoop

DECODERS: dict[str, Callable[[Path, Loop], Decoder]] = {
    "infer": lambda folder, loop: infer_decoder(),
    "predict": lambda folder, loop: predict_decoder(),
    "lesion": lambda folder, loop: lesion_decoder(),
    "gate query": lambda folder, loop: gate_query_decoder(),
    "body": lambda folder, loop: body_decoder(loop),
    "http": lambda folder, loop: http_decoder(loop),
    "service": lambda folder, loop: service_decoder(loop),
    "grpc": lambda folder, loop: grpc_decoder(loop),
    "onnx": lambda folder, loop: onnx_decoder(),
    "manifest": lambda folder, loop: manifest_decoder(),
    "scan": lambda folder, loop: scan_decoder(folder),
    "ipc": lambda folder, loop: ipc_decoder(loop),
    "config": lambda folder, loop: config_decoder(folder),
}


@pytest.fixture
def loop() -> Iterator[Loop]:
    with asyncio.Runner() as runner:
        yield runner.get_loop()


@pytest.mark.parametrize("name", DECODERS)
def test_any_bytes_are_decoded_correctly_or_refused(name: str, tmp_path: Path, loop: Loop) -> None:
    """Only declared errors are raised, in a limited time and with limited memory."""
    check(DECODERS[name](tmp_path, loop))


@pytest.mark.parametrize(
    ("name", "target", "fault"),
    [
        ("infer", "turnpike.service.codec.infer_request.InputReader.expect_even", lambda *_: None),
        ("gate query", "turnpike.service.gates.query.DETAILS", ("summary", "units", "rows", "row")),
        ("body", "turnpike.service.requests.decompression._damaged", lambda: ValueError("damaged")),
        ("http", "turnpike.service.http.connection.request_parser.LINE_ENDS", b""),
        (
            "grpc",
            "turnpike.service.grpc.connection.http2_connection.without_padding",
            lambda _, payload: payload,
        ),
        ("grpc", "turnpike.service.grpc.connection.call._is_one_message", lambda data: len(data) >= 5),
        (
            "onnx",
            "turnpike.service.artifact.onnx_file.constants.FLOATS",
            {1: ("<f4", 4), 10: ("<f2", 5), 11: ("<f8", 4)},
        ),
        pytest.param(
            "onnx", "turnpike.service.artifact.onnx_file.constants.LOCATION", 99, marks=pytest.mark.slow
        ),
        ("manifest", "turnpike.service.artifact.manifest.ValidationError", KeyError),
        ("ipc", "turnpike.service.process.ipc.ERROR_BY_NAME", None),
    ],
)
def test_faults_are_found(
    name: str, target: str, fault: Any, tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decoder without one of its checks."""
    monkeypatch.setattr(target, fault)
    with pytest.raises(FuzzError):
        fuzz(DECODERS[name](tmp_path, loop), inputs=20_000)
