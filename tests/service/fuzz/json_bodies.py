"""Fuzzing of bodies and queries: infer, predict, gates and lesion."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import numpy as np
import orjson
import pytest

from tests.support.fuzzing import Decoder, mutate_json
from tests.support.infer_bodies import IDS, ROWS, binary, body, entry, signature
from tests.support.text_models import ALPHABET, TEXTS
from tests.support.tiny_highway import highway
from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.codec.infer_request import decode_infer
from turnpike.service.codec.infer_request_cache import CachingDecoder
from turnpike.service.codec.predict_json import decode_instances
from turnpike.service.errors import RequestError
from turnpike.service.gates.lesions import LESION_KEYS, parse_lesion_request
from turnpike.service.gates.query import DETAILS, OPTIONS, parse_gate_query

Array = np.ndarray[Any, np.dtype[Any]]

LIMITS = RequestLimits(max_rows=50, max_depth=8, max_json_bytes=20_000)
PAIR = signature(Tensor("a", "float32", ("batch", 2)), Tensor("b", "bool", ("batch",)))
HALVES = signature(Tensor("x", "float16", ("batch", "?")))
# with each input, the first byte says which of these models it is for
MODELS = (ROWS, IDS, PAIR, HALVES, TEXTS)
JSON_TOKENS = (
    *(b'"inputs"', b'"outputs"', b'"name"', b'"shape"', b'"datatype"', b'"data"', b'"parameters"', b'"id"'),
    *(b'"binary_data_size"', b'"binary_data"', b'"classification"', b'"timeout"', b'"instances"', b'"x"'),
    *(b"FP32", b"FP16", b"INT64", b"BOOL", b"BYTES", b"NaN", b"-Infinity", b"1e999", b"true", b"null"),
    *(b"[[", b"]]", b"[]", b"{}", b"\\u0000", b"\\ud800", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"/**/"),
)
DTYPES = {"FP32": "<f4", "FP16": "<f2", "FP64": "<f8", "INT64": "<i8", "BOOL": "?"}


def message(model: int, header: int | None, content: bytes) -> bytes:
    """One input of the fuzzer: the model, the header with the length of the JSON, and the body."""
    return b"%d %b\n%b" % (model, b"" if header is None else b"%d" % header, content)


def message_parts(data: bytes) -> tuple[Signature, int | None, bytes]:
    head, _, content = data.partition(b"\n")
    model, _, header = head.partition(b" ")
    # the endpoint has checked that the header is a number of at most 12 digits
    digits = header[:12] if header[:12].isdigit() else b""
    return (
        MODELS[int(model[:1]) % len(MODELS) if model[:1].isdigit() else 0],
        (int(digits) if digits else None),
        content,
    )


def change_json(data: bytes, draw: random.Random) -> bytes:
    """A change of the JSON in a message, whose length in the head stays correct."""
    head, _, content = data.partition(b"\n")
    _, size, _ = message_parts(data)
    text = content[:size]
    changed = mutate_json(text, draw)
    if size is not None:
        head = head.split(b" ")[0] + b" %d" % len(changed)
    return head + b"\n" + changed + (b"" if size is None else content[size:])


def infer_seeds() -> list[bytes]:
    x = np.arange(12, dtype=np.float32).reshape(2, 2, 3) / 7
    wanted = {"id": "7", "outputs": [{"name": "logits", "parameters": {"binary_data": True}}]}
    sized = {"name": "x", "shape": [2, 2, 3], "datatype": "FP32", "parameters": {"binary_data_size": 48}}
    content, size = binary({"inputs": [sized], **wanted}, x.tobytes())
    ids = entry([[1, 2], [3, -4]], 2, 2, name="ids", datatype="INT64")
    pair = [
        entry([1, 2.5, 3, 4], 2, 2, name="a"),
        entry([True, False], 2, name="b", datatype="BOOL"),
    ]
    halves = {"name": "x", "shape": [1, 4], "datatype": "FP16", "parameters": {"binary_data_size": 8}}
    halves_content, halves_size = binary({"inputs": [halves]}, bytes(8))
    gate = [{"name": "layer00.transform_gate"}, {"name": "logits", "parameters": {"classification": 3}}]
    texts = b"".join(len(text).to_bytes(4, "little") + text for text in (b"AB C", b"", b"\xc3\xa9[\0"))
    bytes_head = {
        "name": "ids",
        "shape": [3],
        "datatype": "BYTES",
        "parameters": {"binary_data_size": len(texts)},
    }
    texts_content, texts_size = binary({"inputs": [bytes_head]}, texts)
    return [
        message(0, None, body(entry(x.ravel().tolist(), 2, 2, 3))),
        message(0, None, body(entry(x.tolist(), 2, 2, 3), **wanted)),
        message(0, None, body(entry(x.ravel().tolist(), 2, 2, 3), outputs=gate, parameters={"timeout": 9})),
        message(0, None, body(entry([], 0, 2, 3))),
        message(0, size, content),
        message(0, 0, x.tobytes()),
        message(1, None, body(ids)),
        message(2, None, body(*pair, parameters={"binary_data_output": True}, more=[[1]])),
        message(3, halves_size, halves_content),
        message(4, None, body(entry(["AB C", "é[["], 2, name="ids", datatype="BYTES"))),
        message(4, None, body(entry([["AB C"], [""]], 2, 1, name="ids", datatype="BYTES"))),
        message(4, None, body(entry([1, 2, 0, 3, 0, 0], 1, 2, 3, name="ids", datatype="INT64"))),
        message(4, texts_size, texts_content),
    ]


def reference_ids(text: str) -> list[list[int]]:
    """Ids of a text by the alphabet of TEXTS: two words of three characters."""
    words = [[ALPHABET.index(letter) for letter in word if letter in ALPHABET] for word in text.split()]
    return [[*word, 0, 0, 0][:3] for word in [*words, [], []][:2]]


def reference_texts(data: bytes) -> list[str]:
    """The elements of a BYTES tensor in binary form."""
    texts = []
    while data:
        size = int.from_bytes(data[:4], "little")
        texts.append(data[4 : 4 + size].decode())
        data = data[4 + size :]
    return texts


def reference_feeds(model: Signature, size: int | None, content: bytes) -> dict[str, Array]:
    """The arrays of a valid infer request, read by json and NumPy."""
    if size == 0:
        ((name, tensor),) = model.inputs.items()
        dims = [dim if isinstance(dim, int) else -1 for dim in tensor.dims]
        return {name: np.frombuffer(content, np.dtype(tensor.dtype)).reshape(dims)}
    document = json.loads(content[:size].decode("utf-8-sig"))
    feeds, position = {}, len(content[:size])
    for tensor in document["inputs"]:
        length = tensor.get("parameters", {}).get("binary_data_size")
        if tensor["datatype"] == "BYTES":
            data = content[position : position + (length or 0)]
            texts = np.array(tensor["data"]).ravel() if length is None else reference_texts(data)
            ids = [reference_ids(str(text)) for text in texts]
            feeds[tensor["name"]] = np.array(ids, np.int64).reshape(-1, 2, 3)
            position += len(data)
            continue
        dtype = np.dtype(DTYPES[tensor["datatype"]])
        if length is None:
            wide = {"f": "f8", "i": "i8", "b": "?"}[dtype.kind]
            values = np.array(tensor["data"], wide).astype(dtype)
        else:
            values = np.frombuffer(content[position : position + length], dtype)
            position += length
        feeds[tensor["name"]] = values.reshape(tensor["shape"])
    assert position == len(content)
    return feeds


def expect_same_feeds(got: Any, expected: dict[str, Array]) -> None:
    assert got.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name], array, strict=True)


def infer_decoder() -> Decoder:
    """The decoder of infer requests and the cache before it, which must agree with each other."""
    cache = CachingDecoder(LIMITS, frozenset({"more"}))

    def read(data: bytes) -> None:
        model, size, content = message_parts(data)
        try:
            cached = cache.decode(content, size, model, str(id(model)))
        except RequestError as error:
            with pytest.raises(type(error), match=f"^{re.escape(str(error))}$"):
                decode_infer(content, size, model, LIMITS, frozenset({"more"}))
            raise
        request = decode_infer(content, size, model, LIMITS, frozenset({"more"}))
        expect_same_feeds(request.feeds, dict(cached.feeds))
        assert (request.form.rows, request.form.outputs, request.form.id) == (
            cached.form.rows,
            cached.form.outputs,
            cached.form.id,
        )
        assert request.form.parameters == cached.form.parameters
        expect_same_feeds(request.feeds, reference_feeds(model, size, content))

    return Decoder(read, infer_seeds(), (RequestError,), JSON_TOKENS, change_json)


def predict_decoder() -> Decoder:
    def read(data: bytes) -> None:
        model, _, content = message_parts(data)
        request = decode_instances(content, model, LIMITS)
        instances = json.loads(content.decode("utf-8-sig"))["instances"]
        for name, array in request.feeds.items():
            rows = (
                [row[name] for row in instances]
                if instances and isinstance(instances[0], dict)
                else instances
            )
            if request.form.has_texts:
                rows = [reference_ids(text) for text in rows]
            wide = {"f": "f8", "i": "i8", "b": "?"}[array.dtype.kind]
            expected = np.array(rows, wide).astype(array.dtype).reshape(array.shape)
            np.testing.assert_array_equal(array, expected, strict=True)

    seeds = [
        message(0, None, orjson.dumps({"instances": [[1, 2, 3, 4, 5, 6.5]] * 2})),
        message(0, None, orjson.dumps({"instances": [[[1, 2, 3], [4, 5, 6]]]})),
        message(0, None, orjson.dumps({"instances": [{"x": [[1, 2, 3], [4, 5, 6]]}]})),
        message(0, None, orjson.dumps({"instances": []})),
        message(1, None, orjson.dumps({"instances": [[1, 2, 3], [4, 5, 6]], "parameters": {"x": 1}})),
        message(2, None, orjson.dumps({"instances": [{"a": [1, 2], "b": True}, {"a": [3, 4], "b": False}]})),
        message(4, None, orjson.dumps({"instances": ["AB C", "é"]})),
        message(4, None, orjson.dumps({"instances": [{"ids": "AB C"}, {"ids": ""}]})),
    ]
    return Decoder(read, seeds, (RequestError,), JSON_TOKENS, change_json)


def lesion_decoder() -> Decoder:
    network = highway()
    model = signature(Tensor("x", "float32", ("batch", 1)))

    def read(data: bytes) -> None:
        parameters = decode_infer(data, None, model, LIMITS, LESION_KEYS).form.parameters
        lesion = parse_lesion_request(parameters, network.gates)
        overrides = lesion.bias_overrides(network.biases)
        assert overrides.keys() <= network.biases.keys()
        assert all(np.isfinite(array).all() for array in overrides.values())
        orjson.dumps(lesion.to_json(network.gates))

    one = entry([1], 1, 1)
    name = network.gates[1].name
    seeds = [
        body(one, close=[0, 1]),
        body(one, close=[name], open=[2]),
        body(one, shift={"0": 1.5, name: -2}),
        body(one, curve=True),
    ]
    return Decoder(read, seeds, (RequestError,), (name.encode(), *JSON_TOKENS), mutate_json)


def gate_query_decoder() -> Decoder:
    def read(data: bytes) -> None:
        query = parse_gate_query(data, {})
        assert query.detail in DETAILS
        assert {type(query.blocks), type(query.binary)} == {bool}
        if data.isalpha():
            raise AssertionError(f"expected an option with a value, got {data!r}")
        # the last value of an option counts
        plain = dict(pair.split("=", 1) for pair in data.decode("latin-1").split("&") if "=" in pair)
        if not set(data) & set(b"%+;") and plain.keys() <= set(OPTIONS):
            assert query.detail == plain.get("detail", "summary")
            assert query.binary == (plain.get("binary", "0") in ("1", "true"))

    seeds = [b"detail=rows", b"detail=units&blocks=1&binary=true", b"binary=0&blocks=false&detail=summary"]
    tokens = (b"%64", b"%00", b"%ff", b"+", b"&", b"=", b";", b"detail=", b"blocks=", b"true", b"rows", b"%")
    # a query of thousands of options takes a few hundred bytes for each
    return Decoder(read, seeds, (RequestError,), tokens, memory=(512, 1 << 20))
