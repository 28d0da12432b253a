"""Fuzz tests of answers and of users' rows: they are read correctly, or refused with one declared error."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.fuzzing import Decoder, check, mutate_json
from turnpike.loadtest.errors import UsageError
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.workload.answer_decoding import AnswerError, decode
from turnpike.loadtest.workload.input_data import InputSource
from turnpike.loadtest.workload.target import Target
from turnpike.loadtest.workload.tensors import TensorSpec

TARGET = Target(
    url="http://127.0.0.1:8000",
    server="turnpike",
    server_version="1",
    model="m",
    version="1",
    inputs=(TensorSpec("x", "FP32", (-1, 3)),),
    outputs=(TensorSpec("y", "FP32", (-1, 4)),),
    binary=True,
    v1=True,
    gates=True,
    lesion_layers=(3, 5),
)


def answer(document: Any, rest: bytes = b"", wire: str = "json") -> bytes:
    """One input of the fuzzer: wire format, length of the JSON, the JSON, and binary tensors."""
    text = json.dumps(document).encode()
    return f"{wire} {len(text) if rest else ''}\n".encode() + text + rest


def change_json(data: bytes, draw: random.Random) -> bytes:
    head, _, content = data.partition(b"\n")
    wire, _, size = head.partition(b" ")
    stop = int(size) if size.isdigit() else len(content)
    text = mutate_json(content[:stop], draw)
    return wire + b" " + (str(len(text)).encode() if size else b"") + b"\n" + text + content[stop:]


def test_any_answer_is_decoded_correctly_or_refused() -> None:
    """Only AnswerError is raised."""

    def read(data: bytes) -> None:
        head, _, content = data.partition(b"\n")
        wire, _, size = head.decode("latin-1").partition(" ")
        kind: Any = wire if wire in ("json", "binary", "v1", "gates", "lesion") else "json"
        headers = {"inference-header-content-length": size} if size else {}
        got = decode(kind, headers, content)
        for name, datatype in got.datatypes.items():
            assert isinstance(got.arrays[name], np.ndarray), datatype

    output = {"name": "y", "datatype": "FP32", "shape": [2, 2], "data": [1, 2.5, -3, 4]}
    sized = {"name": "y", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}
    texts = {"name": "z", "datatype": "BYTES", "shape": [2], "data": ["a", "b"]}
    seeds = [
        answer({"model_name": "m", "model_version": "1", "outputs": [output, texts]}),
        answer({"outputs": [sized]}, np.float32([1, 2]).tobytes()),
        answer({"outputs": [output], "lesioned": {"outputs": [output]}}, wire="lesion"),
        answer({"outputs": [output], "gates": [{"name": "g", "mean": 0.5}]}, wire="gates"),
        answer(
            {"predictions": [{"label": "a", "probability": 0.5}, {"label": "b", "probability": 1}]}, wire="v1"
        ),
    ]
    tokens = (b"FP16", b"BF16", b"BYTES", b"BOOL", b"[[", b"NaN", b"Infinity", b"binary_data_size")
    check(Decoder(read, seeds, (AnswerError,), tokens, change_json))


@pytest.mark.filterwarnings("ignore")
def test_any_rows_are_read_correctly_or_refused(tmp_path: Path) -> None:
    """Only UsageError is raised."""
    path = tmp_path / "rows.npz"
    plan = LoadPlan(TARGET.url, data=path)

    def read(data: bytes) -> None:
        path.write_bytes(data)
        rows = InputSource(TARGET, plan).make(2, 0)["x"]
        assert rows.shape == (2, 3)
        assert rows.dtype == np.float32

    x = np.arange(12, dtype=np.float64).reshape(4, 3)
    stored, compressed, single = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.savez(stored, x=x)
    np.savez_compressed(compressed, x=x.astype(np.float32))
    np.save(single, x.astype(np.float16))
    seeds = [stored.getvalue(), compressed.getvalue(), single.getvalue()]
    tokens = (b"PK\3\4", b"x.npy", b"\x93NUMPY", b"<f8", b"|O", b"fortran_order", b"(4, 3)", b"True")
    # for the size that a header claims, NumPy reserves addresses, not memory
    check(Decoder(read, seeds, (UsageError,), tokens, memory=(1, 1 << 60)))
