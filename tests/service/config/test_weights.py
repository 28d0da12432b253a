"""How large a file's weights are: the very sizes, of whatever onnx writes, and nothing of what is damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.config.auto_workers import MIN_WEIGHT_BYTES, median_weight_size
from tests.support.onnx_with_weights import graph

FEW = MIN_WEIGHT_BYTES // 4


def told(tmp_path: Path, content: bytes) -> int:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    return median_weight_size(path)


def test_the_weight_in_the_middle(tmp_path: Path) -> None:
    """Biases and one large embedding leave it where it is; names and headers are some bytes more."""
    shapes = {"a": (256, 256), "b": (512, 256), "words": (9000, 256), "bias": (256,)}
    assert 0 <= told(tmp_path, graph(shapes)) - 512 * 256 * 4 < 64


def test_a_quarter_in_eight_bits(tmp_path: Path) -> None:
    """It is bytes that count."""
    assert 0 <= told(tmp_path, graph({"a": (512, 512)}, np.int8)) - 512 * 512 < 64


def test_small_ones_are_none(tmp_path: Path) -> None:
    """As are none at all."""
    assert told(tmp_path, graph({"a": (FEW - 64,)})) == 0
    assert told(tmp_path, graph({"a": (FEW,)})) >= MIN_WEIGHT_BYTES
    assert told(tmp_path, graph({})) == 0


def test_no_file_and_no_model(tmp_path: Path) -> None:
    """What cannot be told is not told; whoever loads it says why. A file of zeros is not read to its end."""
    assert median_weight_size(tmp_path / "missing.onnx") == 0
    assert median_weight_size(tmp_path) == 0
    for content in (b"", b"\x00", b"not a model", b"\xff" * 64, b"\x3a\xff\xff\xff\xff\x0f", b"\x3b\x01"):
        assert told(tmp_path, content) == 0
    hole = tmp_path / "model.onnx"
    with hole.open("wb") as file:
        file.truncate(1 << 40)
    assert median_weight_size(hole) == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_model(tmp_path: Path, seed: int) -> None:
    """Cut anywhere or with bytes that are others: an answer, and in time."""
    whole = graph({"a": (128, 128), "b": (128, 128)})
    random = np.random.default_rng(seed)
    for _ in range(100):
        content = bytearray(whole[: int(random.integers(len(whole)))])
        for at in random.integers(min(len(content), 200) or 1, size=3):
            content[int(at) : int(at) + 1] = bytes([int(random.integers(256))])
        assert 0 <= told(tmp_path, bytes(content)) <= len(whole)
