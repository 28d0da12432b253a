"""Answers compared with reference answers: what passes, and the fault for each kind of wrong answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from turnpike.loadtest.errors import TargetError
from turnpike.loadtest.plan import LoadPlan, Wire
from turnpike.loadtest.workload.answer_check import AnswerChecker
from turnpike.loadtest.workload.http_client import Reply
from turnpike.loadtest.workload.payloads import Payload
from turnpike.loadtest.workload.target import Target
from turnpike.loadtest.workload.tensors import TensorSpec

URL = "http://127.0.0.1:8000"
LENGTH = "inference-header-content-length"
TARGET = Target(
    url=URL,
    server="turnpike",
    server_version="1",
    model="m",
    version="1",
    inputs=(TensorSpec("x", "FP32", (-1, 4)),),
    outputs=(TensorSpec("y", "FP32", (-1, 3)),),
)
VALUES = [[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]
Document = dict[str, Any]
Change = Callable[[Document], Any]


def make_payload(wire: Wire = "json", rows: int = 2) -> Payload:
    return Payload(f"{wire}, {rows} rows", "/", b"", {}, rows, 1, wire)


def output(values: Any = VALUES, name: str = "y", datatype: str = "FP32") -> Document:
    return {
        "name": name,
        "datatype": datatype,
        "shape": list(np.array(values).shape),
        "data": np.array(values).ravel().tolist(),
    }


def infer(*outputs: Document) -> Document:
    return {"model_name": "m", "model_version": "1", "outputs": list(outputs or (output(),))}


def gates(mean: float = 0.25) -> Document:
    return infer() | {"gates": [{"name": "g", "mean": mean}], "route": {}}


def lesion() -> Document:
    return infer() | {"lesion": {"flipped": 0}, "lesioned": infer()}


def predictions(first: str = "c") -> Document:
    rows = [
        {"label": label, "probability": max(row), "probabilities": dict(zip("abc", row, strict=True))}
        for label, row in zip((first, "a"), VALUES, strict=True)
    ]
    return {"predictions": rows, "model": "m", "version": "1"}


def reply(document: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(status, headers, json.dumps(document).encode())


def binary(values: Any = VALUES, datatype: str = "FP32", dtype: str = "<f4", **changes: Any) -> Reply:
    data = np.array(values, dtype).tobytes()
    entry = output(values, datatype=datatype) | {"parameters": {"binary_data_size": len(data)}} | changes
    del entry["data"]
    text = json.dumps(infer(entry)).encode()
    return Reply(200, {LENGTH: str(len(text))}, text + data)


def check(
    reference: Reply, answer: Reply, wire: Wire = "json", target: Target = TARGET, **options: Any
) -> str | None:
    """The fault of an answer; checks that `first_wrong` describes a wrong one."""
    checker, payload = AnswerChecker(target, LoadPlan(URL, **options)), make_payload(wire)
    checker.learn(payload, reference)
    fault = checker.check(payload, answer.status, answer.headers, answer.body)
    wrong = fault is not None and fault.startswith("wrong: ")
    assert (checker.first_wrong is not None) == wrong
    return fault


def changed(document: Document, change: Change) -> Reply:
    copy = json.loads(json.dumps(document))
    change(copy)
    return reply(copy)


def test_equal_responses_are_good() -> None:
    for wire, right in [
        ("json", reply(infer())),
        ("binary", binary()),
        ("v1", reply(predictions())),
        ("gates", reply(gates())),
        ("lesion", reply(lesion())),
    ]:
        assert check(right, right, wire) is None  # type: ignore[arg-type]


def test_responses_of_equal_meaning_are_good() -> None:
    nested = infer(output() | {"data": VALUES})
    for other in (nested, infer() | {"id": "7"}, dict(reversed(infer().items()))):
        assert check(reply(infer()), reply(other)) is None
    spaced = binary()
    spaced = Reply(200, {LENGTH: str(int(spaced.headers[LENGTH]) + 1)}, b" " + spaced.body)
    assert check(binary(), spaced, "binary") is None
    assert check(reply(infer()), binary(np.float32(VALUES).tolist())) is None


def test_other_statuses_are_faults() -> None:
    for status in (503, 429, 302, 204):
        assert check(reply(infer()), reply({"error": f"busy {status}"}, status)) == str(status)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda d: d["outputs"][0]["data"].__setitem__(4, 0.2511), "y differs from the reference answer"),
        (lambda d: d["outputs"][0].update(shape=[3, 2]), "shape of y"),
        (lambda d: d["outputs"][0].update(shape=[1, 3], data=[0.1, 0.2, 0.7]), "shape of y"),
        (lambda d: d["outputs"][0].update(shape=[2], data=[0.1, 0.5]), "shape of y"),
        (lambda d: d["outputs"][0].update(datatype="FP64"), "datatype of y"),
        (lambda d: d["outputs"][0].update(name="z"), "outputs"),
        (lambda d: d["outputs"].append(output(name="z")), "outputs"),
        (lambda d: d["outputs"][0]["data"].__setitem__(0, float("nan")), "y is not finite"),
        (lambda d: d["outputs"][0]["data"].__setitem__(0, 1e39), "y is not finite"),
        (lambda d: d["outputs"][0]["data"].__setitem__(0, None), "values of another datatype"),
        (lambda d: d["outputs"][0]["data"].__setitem__(0, "0.1"), "values of another datatype"),
        (lambda d: d["outputs"][0]["data"].pop(), "an output without name"),
        (lambda d: d["outputs"][0].update(shape=[-1, 3]), "an output without name"),
        (lambda d: d["outputs"][0].pop("shape"), "an output without name"),
        (lambda d: d.update(outputs=None), "no outputs"),
        (lambda d: d.update(model_name="n"), "model"),
    ],
)
def test_wrong_responses_are_found(change: Change, fault: str) -> None:
    fault_text = check(reply(infer()), changed(infer(), change))
    assert fault_text is not None
    assert fault_text.startswith(f"wrong: {fault}")


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"outputs":', b"\xff", b"[" * 100_000])
def test_responses_that_are_no_json_objects_are_faults(data: bytes) -> None:
    fault_text = check(reply(infer()), Reply(200, {}, data))
    assert fault_text in ("wrong: not JSON", "wrong: not a JSON object")


def test_the_first_wrong_answer_is_described_in_full() -> None:
    checker, payload = AnswerChecker(TARGET, LoadPlan(URL)), make_payload()
    checker.learn(payload, reply(infer()))
    for wrong in (0.9, 0.8):
        # the first number is within the tolerance, and two others are not
        values = [[0.10001, 0.2, wrong], [0.5, 0.25, wrong]]
        assert checker.check(payload, 200, {}, reply(infer(output(values))).body)
    assert (
        checker.first_wrong
        == "json, 2 rows: 'y' at [0, 2]: expected 0.699999988 within 0.0001, got 0.899999976"
    )


def test_differences_within_the_tolerance_are_good() -> None:
    """The allowed difference is absolute plus relative."""
    far = infer(output([[0.1, 0.2, 0.7], [0.5, 0.25, 0.26]]))
    assert check(reply(infer()), reply(far))
    assert check(reply(infer()), reply(far), tolerance=0.01) is None
    right, near = ([[x, 0.0, 0.0]] * 2 for x in (100.0, 100.9))
    assert check(reply(infer(output(right))), reply(infer(output(near))), tolerance=0.01) is None


def test_single_numbers_are_compared() -> None:
    scalar = replace(TARGET, outputs=(TensorSpec("y", "FP32", ()),))
    right, wrong = reply(infer(output(0.5))), reply(infer(output(0.75)))
    assert check(right, right, target=scalar) is None
    assert check(right, wrong, target=scalar) == "wrong: y differs from the reference answer"


def test_integers_are_compared_exactly() -> None:
    whole = replace(TARGET, outputs=(TensorSpec("y", "INT64", (-1,)),))
    right, wrong = (reply(infer(output([10**6, last], datatype="INT64"))) for last in (10**6, 10**6 + 1))
    assert check(right, right, target=whole) is None
    assert check(right, wrong, target=whole, tolerance=0.5) == "wrong: y differs from the reference answer"
    half = reply(infer(output([10**6, 0.5], datatype="INT64")))
    assert check(right, half, target=whole) == "wrong: values of another datatype"
    wide = reply(infer(output([300, 1], datatype="UINT8")))
    assert check(right, wide, target=whole) == "wrong: values of another datatype"


def test_texts_are_compared_exactly() -> None:
    texts = replace(TARGET, outputs=(TensorSpec("y", "BYTES", (-1,)),))
    entry = output(["one", "tü"], datatype="BYTES")
    right = reply(infer(entry))
    assert check(right, reply(infer(entry | {"data": ["one", "two"]})), target=texts)
    tail = b"".join(len(text).to_bytes(4, "little") + text for text in (b"one", "tü".encode()))
    del entry["data"]
    text = json.dumps(infer(entry | {"parameters": {"binary_data_size": len(tail)}})).encode()
    assert check(right, Reply(200, {LENGTH: str(len(text))}, text + tail), target=texts) is None
    cut = tail[:-1]
    text = json.dumps(infer(entry | {"parameters": {"binary_data_size": len(cut)}})).encode()
    short = Reply(200, {LENGTH: str(len(text))}, text + cut)
    assert check(right, short, target=texts) == "wrong: binary data of another length"


def test_binary_responses_are_compared() -> None:
    right = binary()
    size = int(right.headers[LENGTH])
    other = binary([[0.1, 0.2, 0.7], [0.5, 0.25, 0.5]])
    assert check(right, other, "binary") == "wrong: y differs from the reference answer"
    short = Reply(200, right.headers, right.body[:-4])
    assert check(right, short, "binary") == "wrong: binary data of another length"
    long = Reply(200, right.headers, right.body + b"\0\0\0\0")
    assert check(right, long, "binary") == "wrong: binary data of another length"
    for length in ("0", str(size - 1), str(size + 1), str(10**9), "-1", "many", "1" * 5000):
        assert check(right, Reply(200, {LENGTH: length}, right.body), "binary")
    assert check(right, Reply(200, {}, right.body), "binary") == "wrong: not JSON"
    nan = binary([[0.1, 0.2, 0.7], [0.5, 0.25, float("nan")]])
    assert check(right, nan, "binary") == "wrong: y is not finite"
    for size in (-1, 2.5, "24", True):
        assert check(right, binary(parameters={"binary_data_size": size}), "binary")


def test_bfloat16_is_compared() -> None:
    target = replace(TARGET, outputs=(TensorSpec("y", "BF16", (-1, 1)),))
    upper = [[0x3F80], [0xC000]]  # 1 and -2
    right = binary(upper, "BF16", "<u2")
    checker, payload = AnswerChecker(target, LoadPlan(URL)), make_payload("binary")
    checker.learn(payload, right)
    other = binary([[0x3F80], [0x4000]], "BF16", "<u2")
    assert checker.check(payload, 200, other.headers, other.body)
    assert checker.first_wrong is not None
    assert checker.first_wrong.endswith("'y' at [1, 0]: expected -2 within 0.0001, got 2")


def test_predictions_are_compared() -> None:
    right = reply(predictions())
    assert check(right, reply(predictions("a")), "v1") == "wrong: label differs from the reference answer"
    renamed = reply(json.loads(json.dumps(predictions()).replace('"b":', '"bb":')))
    assert check(right, renamed, "v1") == "wrong: label differs from the reference answer"
    figures = [[max(row), *row] for row in VALUES]
    bare = reply(predictions() | {"predictions": figures})
    assert check(right, bare, "v1") == check(bare, right, "v1") == "wrong: outputs"
    fewer = changed(predictions(), lambda d: d["predictions"].pop())
    assert check(right, fewer, "v1") == "wrong: shape of prediction"
    lower = changed(predictions(), lambda d: d["predictions"][0].update(probability=0.1))
    assert check(right, lower, "v1") == "wrong: prediction differs from the reference answer"
    uneven = changed(predictions(), lambda d: d["predictions"].__setitem__(0, {"label": "c"}))
    assert check(right, uneven, "v1") == "wrong: predictions of several shapes"
    assert check(right, reply({"predictions": []}), "v1") == "wrong: no predictions"
    deep = Reply(200, {}, b'{"predictions": [' + b"[" * 900 + b"]" * 900 + b"]}")
    assert check(right, deep, "v1") == "wrong: model"
    huge = changed(predictions(), lambda d: d["predictions"][0].update(probability=10**400))
    assert check(right, huge, "v1") == "wrong: values of another datatype"


def test_a_label_may_differ_if_probabilities_tie() -> None:
    """If numbers differ within the tolerance, rounding may choose another of two equally good classes."""
    tied = changed(predictions("b"), lambda d: d["predictions"][0].update(probability=0.70001))
    assert check(reply(predictions()), tied, "v1") is None


def test_gate_responses_are_compared() -> None:
    assert (
        check(reply(gates()), reply(gates(0.5)), "gates")
        == "wrong: mean of gates differs from the reference answer"
    )
    assert check(reply(gates()), reply(infer()), "gates") == "wrong: no means of gates"
    assert check(reply(gates()), reply(gates() | infer(output([[0, 0, 0]] * 2))), "gates")


def test_faults_contain_no_names_of_the_server() -> None:
    """Faults are counted by their text, so names that a server invents must not be part of it."""
    for odd in (infer(output(), output([float("nan")], "x1")), infer(output([float("nan")], "x1"))):
        assert check(reply(infer()), reply(odd)) == "wrong: outputs"
        assert check(reply(infer()), reply(odd | {"model_version": "2"})) == "wrong: outputs"
    renamed = gates() | {"gates": [{"name": "x1", "mean": float("nan")}]}
    assert check(reply(gates()), reply(renamed), "gates") == "wrong: mean of gates is not finite"
    other = gates() | {"gates": [{"name": "x1", "mean": 0.25}]}
    assert check(reply(gates()), reply(other), "gates") == "wrong: gate differs from the reference answer"


def test_differences_that_overflow_are_faults() -> None:
    wide = replace(TARGET, outputs=(TensorSpec("y", "FP64", (-1,)),))
    right, wrong = (reply(infer(output([value] * 2, datatype="FP64"))) for value in (1.7e308, -1.7e308))
    assert check(right, wrong, target=wide) == "wrong: y differs from the reference answer"


def test_lesion_responses_are_compared() -> None:
    moved = lesion() | {"lesioned": infer(output([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]))}
    assert check(reply(lesion()), reply(moved), "lesion") == (
        "wrong: lesioned y differs from the reference answer"
    )
    short = lesion() | {"lesioned": infer(output(VALUES[:1]))}
    assert check(reply(lesion()), reply(short), "lesion") == "wrong: shape of lesioned y"
    assert check(reply(lesion()), reply(infer()), "lesion") == "wrong: no outputs"


def test_another_version_may_have_other_values() -> None:
    """A version that appears during the load may give other values, but not other shapes or NaN."""
    other = infer(output([[0.9, 0.0, 0.1]] * 2)) | {"model_version": "2"}
    assert check(reply(infer()), reply(other)) is None
    for values in ([[0.9, 0.1]] * 2, [[0.9, 0.0, 0.1]], [[0.9, 0.0, float("inf")]] * 2):
        wrong = infer(output(values)) | {"model_version": "2"}
        assert check(reply(infer()), reply(wrong))
    pinned = replace(TARGET, pinned=True)
    assert check(reply(infer()), reply(other), target=pinned) == "wrong: version"


@pytest.mark.parametrize(
    ("answer", "wire", "message"),
    [
        (
            reply({"error": "too busy"}, 503),
            "json",
            "expected a reference answer, got 503: too busy",
        ),
        (reply({"error": "NaN among values"}, 422), "json", "got 422: NaN among values"),
        (Reply(200, {}, b"<html>"), "json", "got not JSON"),
        (reply(infer(output(name="z"))), "json", "expected output 'y', which the answer lacks"),
        (reply(infer(output(VALUES[:1]))), "json", r"'y': expected shape \[2, 3\], got \[1, 3\]"),
        (reply(infer(output([[0, 0, float("nan")]] * 2))), "json", "'y': expected finite numbers"),
        (
            reply(lesion() | {"lesioned": infer(output(VALUES[:1]))}),
            "lesion",
            r"'lesioned y': expected shape",
        ),
        (reply(infer()), "binary", "expected an answer with binary tensors, got one in JSON"),
        (reply({"predictions": VALUES[:1]}), "v1", r"expected shape \[2, -1\], got \[1, 3\]"),
    ],
)
def test_invalid_reference_responses_are_errors(answer: Reply, wire: Wire, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        AnswerChecker(TARGET, LoadPlan(URL)).learn(make_payload(wire), answer)


def test_responses_are_compared_without_output_metadata() -> None:
    silent = replace(TARGET, outputs=())
    assert check(reply(infer()), reply(infer()), target=silent) is None
    assert check(reply(infer()), reply(infer(output(VALUES[:1]))), target=silent) == "wrong: shape of y"


def test_kinds_with_equal_answers_are_noted() -> None:
    """If all answers were the same, an answer to another request would not be noticed."""
    checker = AnswerChecker(TARGET, LoadPlan(URL))
    for wire, values in (("json", VALUES), ("json", VALUES), ("gates", VALUES), ("gates", VALUES[::-1])):
        document = infer(output(values)) | {"gates": []}
        checker.learn(make_payload(wire), reply(document))  # type: ignore[arg-type]
    checker.learn(make_payload("v1"), reply(predictions()))
    assert checker.kinds_with_equal_answers == ("json, 2 rows",)
