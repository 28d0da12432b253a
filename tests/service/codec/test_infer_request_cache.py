"""Tests of the caching decoder: its result equals that of `decode_infer`, whatever it has cached."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

from tests.support.infer_bodies import IDS, ROWS, binary, signature
from tests.support.text_models import TEXTS
from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.codec import infer_request_cache
from turnpike.service.codec.infer_request import decode_infer
from turnpike.service.codec.infer_request_cache import CachingDecoder
from turnpike.service.codec.request_templates import MAX_TEMPLATE_BYTES, MAX_TEMPLATES
from turnpike.service.errors import RequestError
from turnpike.service.inference_types import InferenceRequest

LIMITS = RequestLimits(max_rows=50, max_depth=8, max_json_bytes=1500)
EXTRA = frozenset({"more"})
HALF = signature(Tensor("x", "float16", ("batch", 2)))
DOUBLE = signature(Tensor("x", "float64", ("batch", 2, 3)))
SMALL = signature(Tensor("x", "uint8", ("batch", 2, 3)))
PAIR = signature(Tensor("a", "float32", ("batch", 2)), Tensor("b", "int16", ("batch",)))
FLAGS = signature(Tensor("x", "bool", ("batch", 2)))

Mutation = Callable[[random.Random, bytes], bytes]


Model = tuple[Signature, int]


def model(signature: Signature, serial: int = 0) -> Model:
    """A model's signature and its serial number."""
    return signature, serial


def outcome(work: Callable[[], InferenceRequest]) -> tuple[Any, ...]:
    """The fields of a request, or the error."""
    try:
        request = work()
    except RequestError as error:
        return type(error), str(error)
    feeds = [(name, array.dtype, array.shape, array.tobytes()) for name, array in request.feeds.items()]
    form = request.form
    return feeds, form.rows, form.outputs, form.id, form.timeout_us, form.parameters


class Pair:
    """The caching decoder, compared with `decode_infer`."""

    def __init__(self, limits: RequestLimits = LIMITS) -> None:
        self.limits = limits
        self.decoder = CachingDecoder(limits, EXTRA)

    def agree(self, body: bytes, header: int | None, model_and_serial: Model) -> bool:
        """Whether the body is valid; both decoders must agree on the result."""
        got = outcome(lambda: self.decoder.decode(body, header, *model_and_serial))
        expected = outcome(lambda: decode_infer(body, header, model_and_serial[0], self.limits, EXTRA))
        assert got == expected, body
        return len(got) > 2

    @property
    def cached(self) -> int:
        return len(self.decoder._templates)


def text(
    data: str = "[1,2,3,4,5,6]", shape: str = "[1,2,3]", datatype: str = "FP32", more: str = ""
) -> bytes:
    """A request in JSON."""
    return (
        f'{{"inputs":[{{"name":"x","shape":{shape},"datatype":"{datatype}","data":{data}}}]{more}}}'.encode()
    )


NUMBERS = ["1", "-0.0", "2.5e3", "1e39", "1e400", "1e-320", "-7", "255", "256", "9223372036854775808"]
NUMBERS += ["18446744073709551616", "true", "null", '"1"', '"]"', "NaN", "Infinity", "01", "+1", ".5", ""]
NUMBERS += ["[1]", "[[1,2],[3]]", "{}", '{"a":[1]}', "1]", "[1", "]", '"\\u005d"', "\\", "\x00", "\xff"]
NUMBERS += ["1 2", " 3 "]
WORDS = ['"data":[9]', '"data":', '"d\\u0061ta":[7,7,7,7,7,7]', '"shape":[1,2,3]', '"id":"a"', '"id":"[]"']
WORDS += ['"more":[1,2]', '"more":"\\"data\\":["', '"data" :[1]', '"parameters":{"timeout":3}']
WORDS += ["{", "}", "[", "]"]


def change_numbers(generator: random.Random, body: bytes) -> bytes:
    start, stop = body.find(b"[", body.find(b'"data"')), body.find(b"]", body.find(b'"data"'))
    some = [
        repr(generator.uniform(-9, 9)) if generator.random() < 0.95 else generator.choice(NUMBERS)
        for _ in range(6)
    ]
    some += ["3"] * (generator.random() < 0.1)
    return body[: start + 1] + generator.choice([",", ", ", " ,\n"]).join(some).encode() + body[stop:]


def change_number(generator: random.Random, body: bytes) -> bytes:
    start, stop = body.find(b"[", body.find(b'"data"')), body.find(b"]", body.find(b'"data"'))
    some = body[start + 1 : stop].split(b",")
    some[generator.randrange(len(some))] = generator.choice(NUMBERS).encode("latin-1")
    return body[: start + 1] + b",".join(some) + body[stop:]


def change_byte(generator: random.Random, body: bytes) -> bytes:
    place = generator.randrange(len(body) + 1)
    written = generator.choice(
        [b"", b'"', b"[", b"]", b"{", b"}", b",", b":", b" ", b"\\", b"0", b"e", b"\xff"]
    )
    return body[:place] + written + body[place + generator.randrange(2) :]


def insert_word(generator: random.Random, body: bytes) -> bytes:
    place = 1 + generator.choice([-1] + [place for place, byte in enumerate(body) if byte in b",{["])
    return body[:place] + generator.choice(WORDS).encode() + generator.choice([b"", b","]) + body[place:]


def remove_or_repeat_part(generator: random.Random, body: bytes) -> bytes:
    first, last = sorted(generator.choices(range(len(body) + 1), k=2))
    return body[:first] + generator.choice([b"", 2 * body[first:last]]) + body[last:]


MUTATIONS: list[Mutation] = [
    change_numbers,
    change_numbers,
    change_number,
    change_number,
    change_byte,
    insert_word,
    remove_or_repeat_part,
]
# numbers of no tensor
ELSEWHERE = b'{"data":[1,2],' + text("[]", "[0,2,3]")[1:].replace(
    b'"data":[]', b'"parameters":{"binary_data_size":0}'
)
JSON = [
    (ROWS, text()),
    (ROWS, text(more=',"id":"mine","parameters":{"timeout":5,"mine":true},"more":[1]')),
    (ROWS, text("[]", "[0,2,3]")),
    (ROWS, text("[[[1,2,3],[4,5,6]]]")),
    (ROWS, text().replace(b'"data":', b'"data": ')),
    (ROWS, ELSEWHERE),
    (DOUBLE, text(datatype="FP64")),
    (SMALL, text(datatype="UINT8")),
    (IDS, text(shape="[2,3]", datatype="INT64").replace(b'"x"', b'"ids"')),
    (FLAGS, text("[true,false]", "[1,2]", "BOOL")),
    (
        PAIR,
        b'{"inputs":[{"name":"a","shape":[1,2],"datatype":"FP32","data":[1,2]},'
        b'{"name":"b","shape":[1],"datatype":"INT16","data":[3]}]}',
    ),
]


def test_cached_json_decoding_equals_uncached_decoding() -> None:
    """Numbers, bytes and words of requests are changed at random."""
    generator = random.Random(7)
    good = 0
    pair = Pair()
    models = [model(inputs, number) for number, (inputs, _) in enumerate(JSON)]
    for turn in range(3500):
        number = turn % len(JSON)
        base = JSON[number][1]
        # start again with an empty cache now and then
        if not turn % 500:
            pair = Pair()
        pair.agree(base, None, models[number])
        body = generator.choice(MUTATIONS)(generator, base)
        if generator.random() < 0.2:
            body = generator.choice(MUTATIONS)(generator, body)
        # a changed body may be cached, and then be found for a similar one
        good += pair.agree(body, None, models[number])
        good += pair.agree(
            change_numbers(generator, body) if b'"data"' in body else body, None, models[number]
        )
        assert pair.agree(base, None, models[number])
        # the same body for another model
        pair.agree(body, None, generator.choice(models))
    assert good > 1000
    assert pair.cached > 20


def tensors(arrays: dict[str, np.ndarray[Any, Any]], **more: Any) -> tuple[bytes, int]:
    names = {"float32": "FP32", "int16": "INT16", "float16": "FP16", "bool": "BOOL"}
    entries = [
        {
            "name": name,
            "shape": array.shape,
            "datatype": names[array.dtype.name],
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in arrays.items()
    ]
    return binary({"inputs": entries, **more}, *(array.tobytes() for array in arrays.values()))


BINARY = [
    (ROWS, tensors({"x": np.arange(12, dtype=np.float32).reshape(2, 2, 3)})),
    (ROWS, tensors({"x": np.zeros((0, 2, 3), np.float32)})),
    (HALF, tensors({"x": np.ones((1, 2), np.float16)}, id="half")),
    (PAIR, tensors({"a": np.ones((2, 2), np.float32), "b": np.arange(2, dtype=np.int16)})),
    (PAIR, tensors({"b": np.arange(2, dtype=np.int16), "a": np.ones((2, 2), np.float32)}, more="[1]")),
    (FLAGS, tensors({"x": np.ones((1, 2), np.bool_)})),
]


def test_cached_binary_decoding_equals_uncached_decoding() -> None:
    """Bytes are changed, removed or added, and the JSON size may be wrong or missing."""
    generator = random.Random(8)
    good = 0
    pair = Pair()
    models = [model(inputs, number) for number, (inputs, _) in enumerate(BINARY)]
    for turn in range(3000):
        number = turn % len(BINARY)
        base, header = BINARY[number][1]
        assert pair.agree(base, header, models[number])
        others = generator.randbytes(len(base) - header)
        good += pair.agree(base[:header] + others, header, models[number])
        body = generator.choice(
            [
                base[: generator.randrange(len(base) + 1)],
                base + b"x" * generator.randrange(1, 3),
                change_byte(generator, base),
                change_byte(generator, base[:header]) + others,
                base[:header],
                base[:header] + b"[1,2]",
            ]
        )
        length = generator.choice(
            [header, header, header, None, 0, 1, header - 1, header + 1, len(base), 10**6]
        )
        good += pair.agree(body, length, models[number])
        pair.agree(body, length, generator.choice(models))
    assert good > 1000
    assert pair.cached > 4


def test_a_cached_request_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the cache would be useless."""
    decoder = CachingDecoder(LIMITS)
    body, header = BINARY[3][1]
    decoder.decode(text(), None, *model(ROWS, 1))
    decoder.decode(body, header, *model(PAIR, 2))
    monkeypatch.setattr(infer_request_cache, "decode_infer", None)
    request = decoder.decode(text("[6, 5,4,3,2,1.5]"), None, *model(ROWS, 1))
    assert request.feeds["x"].ravel().tolist() == [6, 5, 4, 3, 2, 1.5]
    request = decoder.decode(body[:header] + bytes(len(body) - header), header, *model(PAIR, 2))
    assert not request.feeds["a"].any()


def test_binary_and_json_templates_are_not_confused() -> None:
    """A template of a binary request must not match a JSON request."""
    first = b'{"name":"a","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}'
    second = b'{"name":"b","shape":[1],"datatype":"INT16","parameters":{"binary_data_size":2}}'
    head = b'{"inputs":[%b,%b],"data":0}' % (first, second)
    pair = Pair()
    assert pair.agree(head + bytes(10), len(head), model(PAIR))
    assert not pair.agree(head + b"[1,2]", None, model(PAIR))
    one = b'{"inputs":[%b],"data":0}' % first
    alone = signature(Tensor("a", "float32", ("batch", 2)))
    assert pair.agree(one + bytes(8), len(one), model(alone, 1))
    assert not pair.agree(one + b"[1,2]", None, model(alone, 1))


NONE = text("[]", "[0,2,3]").replace(b'"data":[]', b'"parameters":{"binary_data_size":0}')
GATE = b'"outputs":[{"name":"layer00.transform_gate"}]}'


@pytest.mark.parametrize(
    ("body", "other"),
    [
        (b'{"data":[0,0,0,0,0,0],' + text()[1:], b'{"data":[6,5,4,3,2,1],' + text()[1:]),
        (
            b'{"data":[0,0,0,0,0,0],' + text()[1:].replace(b'"data"', b'"d\\u0061ta"'),
            b'{"data":[6,5,4,3,2,1],' + text()[1:].replace(b'"data"', b'"d\\u0061ta"'),
        ),
        (NONE[:-1] + b',"data":0,' + GATE, NONE[:-1] + b',"data":0,"outputs":[]}'),
    ],
    ids=["twice", "escaped", "another array"],
)
def test_numbers_under_another_key_are_not_tensor_data(body: bytes, other: bytes) -> None:
    """The key only resembles the data key."""
    pair = Pair()
    assert pair.agree(body, None, model(ROWS))
    assert pair.agree(other, None, model(ROWS))


def test_a_length_beyond_the_body_is_refused_for_cached_requests() -> None:
    body, header = BINARY[1][1]
    pair = Pair()
    assert pair.agree(body, header, model(ROWS))
    assert not pair.agree(body, header + 1, model(ROWS))


def test_invalid_booleans_are_refused_for_cached_requests() -> None:
    """Bytes of booleans are checked in each request."""
    body, header = BINARY[5][1]
    pair = Pair()
    assert pair.agree(body, header, model(FLAGS))
    assert not pair.agree(body[:-1] + b"\2", header, model(FLAGS))


def test_models_with_different_inputs_share_a_decoder() -> None:
    """The same JSON may mean another dtype for another file."""
    pair = Pair()
    body, header = tensors({"x": np.arange(6, dtype=np.float32).reshape(1, 2, 3)})
    for _ in range(2):
        for number, inputs in enumerate(
            (ROWS, DOUBLE, SMALL, signature(Tensor("x", "float32", ("batch", 3, 2))))
        ):
            pair.agree(text(), None, model(inputs, number))
            pair.agree(body, header, model(inputs, number))
    assert pair.cached == 2


def test_the_json_size_limit_holds_for_cached_requests() -> None:
    pair = Pair(RequestLimits(max_json_bytes=200))
    assert pair.agree(text(), None, model(ROWS))
    assert not pair.agree(text("[1,2,3,4,5," + " " * 200 + "6]"), None, model(ROWS))


def test_requests_of_one_template_do_not_share_arrays() -> None:
    decoder = CachingDecoder(LIMITS)
    first = decoder.decode(text(), None, *model(ROWS))
    second = decoder.decode(text("[6,5,4,3,2,1]"), None, *model(ROWS))
    third = decoder.decode(text(), None, *model(ROWS))
    assert len({id(one.feeds) for one in (first, second, third)}) == 3
    assert not np.shares_memory(first.feeds["x"], third.feeds["x"])
    assert second.feeds["x"].ravel().tolist() == [6, 5, 4, 3, 2, 1]
    assert first.feeds["x"].tobytes() == third.feeds["x"].tobytes()


def test_the_template_cache_is_bounded() -> None:
    """Long templates and invalid requests are not cached."""
    decoder = CachingDecoder(RequestLimits())
    for number in range(2 * MAX_TEMPLATES + 1):
        decoder.decode(text(more=f',"parameters":{{"mine":{number}}}'), None, *model(ROWS))
        assert 0 < len(decoder._templates) <= MAX_TEMPLATES
    decoder = CachingDecoder(RequestLimits())
    long_parameters = {"mine": "x" * MAX_TEMPLATE_BYTES}
    decoder.decode(text(more=f',"parameters":{json.dumps(long_parameters)}'), None, *model(ROWS))
    body, header = tensors({"x": np.zeros((1, 2, 3), np.float32)}, parameters=long_parameters)
    decoder.decode(body, header, *model(ROWS))
    with pytest.raises(RequestError):
        decoder.decode(text("[1]"), None, *model(ROWS))
    with pytest.raises(RequestError):
        decoder.decode(body[:-1], header, *model(ROWS))
    assert not decoder._templates


def test_requests_with_an_id_leave_the_cache_alone() -> None:
    """Each has another id, so that they would displace the templates of all other clients."""
    decoder = CachingDecoder(RequestLimits())
    body, header = tensors({"x": np.zeros((1, 2, 3), np.float32)}, id="b")
    assert decoder.decode(text(more=',"id":"a"'), None, *model(ROWS)).form.id == "a"
    assert decoder.decode(body, header, *model(ROWS)).form.id == "b"
    assert not decoder._templates


def arrays_in(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    """The arrays that a value refers to, at any depth."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict):
        for entry in value.values():
            yield from arrays_in(entry)
    elif isinstance(value, tuple | list):
        for entry in value:
            yield from arrays_in(entry)
    elif is_dataclass(value):
        for field in fields(value):
            yield from arrays_in(getattr(value, field.name))


def test_templates_keep_no_request_data() -> None:
    decoder = CachingDecoder(RequestLimits())
    body, header = tensors({"x": np.zeros((40, 2, 3), np.float32)})
    decoder.decode(body, header, *model(ROWS, 1))
    decoder.decode(text(json.dumps([0] * 240), "[40,2,3]"), None, *model(ROWS))
    assert len(decoder._templates) == 2
    assert not list(arrays_in(vars(decoder)))


def texts_request(data: str, count: int = 1, datatype: str = "BYTES") -> bytes:
    """A request in JSON to the model that takes texts."""
    shape = f"[{count}]" if datatype == "BYTES" else f"[{count},2,3]"
    return f'{{"inputs":[{{"name":"ids","shape":{shape},"datatype":"{datatype}","data":{data}}}]}}'.encode()


def test_texts_are_never_taken_for_ids() -> None:
    """Neither in JSON that is the same besides them, nor in binary form of the size that their ids have."""
    pair, texts = Pair(), model(TEXTS)
    for _ in range(3):
        assert pair.agree(texts_request('["A]B C"]'), None, texts)
        assert pair.agree(texts_request('["AB"]'), None, texts)
        assert not pair.agree(texts_request("[1,2,3,1,2,3]"), None, texts)
        assert pair.agree(texts_request("[1,2,3,1,2,3]", datatype="INT64"), None, texts)
        assert not pair.agree(texts_request('["AB"]', datatype="INT64"), None, texts)
    # 4 bytes of length and 44 of text: as many as the 6 ids of 8 bytes
    head = {
        "inputs": [{"name": "ids", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 48}}]
    }
    for letters in (b"AB", b"CA", b"BB"):
        content = (44).to_bytes(4, "little") + letters + b" " * 42
        assert pair.agree(*binary(head, content), texts)
    assert not pair.agree(*binary(head, np.arange(6).tobytes()), texts)
    assert pair.cached == 1
