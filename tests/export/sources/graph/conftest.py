"""Fixtures of the tests of sources."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import ModelProto

from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network
from turnpike.export.sources.graph.onnx_graph import read_onnx


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Network]:
    """Writes a model to a file and reads it as a source."""

    def call(model: ModelProto | bytes, *inputs: str) -> Network:
        path = tmp_path / "net.onnx"
        path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        return read_onnx(path, parse_inputs(inputs))

    return call
