"""Answers held against reference answers: what passes, and what each kind of wrong one is called."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadtest.errors import TargetError
from loadtest.plan import Plan, Wire
from loadtest.workload.answer_check import Judge
from loadtest.workload.http_client import Reply
from loadtest.workload.payloads import Body
from loadtest.workload.target import Target
from loadtest.workload.tensors import Tensor

URL = "http://127.0.0.1:8000"
LENGTH = "inference-header-content-length"
TARGET = Target(
    url=URL,
    server="turnpike",
    server_version="1",
    model="m",
    version="1",
    inputs=(Tensor("x", "FP32", (-1, 4)),),
    outputs=(Tensor("y", "FP32", (-1, 3)),),
)
VALUES = [[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]
Document = dict[str, Any]
Change = Callable[[Document], Any]


def body(wire: Wire = "json", rows: int = 2) -> Body:
    return Body(f"{wire}, {rows} rows", "/", b"", {}, rows, 1, wire)


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
    about = output(values, datatype=datatype) | {"parameters": {"binary_data_size": len(data)}} | changes
    del about["data"]
    text = json.dumps(infer(about)).encode()
    return Reply(200, {LENGTH: str(len(text))}, text + data)


def judged(
    reference: Reply, answer: Reply, wire: Wire = "json", target: Target = TARGET, **options: Any
) -> str | None:
    """What is said of an answer, and that a wrong one is told of in full."""
    judge, asked = Judge(target, Plan(URL, **options)), body(wire)
    judge.learn(asked, reference)
    fault = judge.fault(asked, answer.status, answer.headers, answer.body)
    wrong = fault is not None and fault.startswith("wrong: ")
    assert (judge.first_wrong is not None) == wrong
    return fault


def changed(document: Document, change: Change) -> Reply:
    copy = json.loads(json.dumps(document))
    change(copy)
    return reply(copy)


def test_the_same_bytes_are_good() -> None:
    """An answer as the reference is good, on every wire."""
    for wire, right in [
        ("json", reply(infer())),
        ("binary", binary()),
        ("v1", reply(predictions())),
        ("gates", reply(gates())),
        ("lesion", reply(lesion())),
    ]:
        assert judged(right, right, wire) is None  # type: ignore[arg-type]


def test_other_bytes_may_say_the_same() -> None:
    """Spaces, an id, another order or nested data make no answer wrong."""
    nested = infer(output() | {"data": VALUES})
    for other in (nested, infer() | {"id": "7"}, dict(reversed(infer().items()))):
        assert judged(reply(infer()), reply(other)) is None
    spaced = binary()
    spaced = Reply(200, {LENGTH: str(int(spaced.headers[LENGTH]) + 1)}, b" " + spaced.body)
    assert judged(binary(), spaced, "binary") is None
    assert judged(reply(infer()), binary(np.float32(VALUES).tolist())) is None


def test_any_other_status_is_a_fault() -> None:
    """A fault of status is counted by the number alone, and is not a wrong answer."""
    for status in (503, 429, 302, 204):
        assert judged(reply(infer()), reply({"error": f"busy {status}"}, status)) == str(status)


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
def test_wrong_answers(change: Change, fault: str) -> None:
    """Each way to be wrong has few words of its own."""
    said = judged(reply(infer()), changed(infer(), change))
    assert said is not None
    assert said.startswith(f"wrong: {fault}")


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"outputs":', b"\xff", b"[" * 100_000])
def test_no_answers_at_all(data: bytes) -> None:
    """What is no JSON object is wrong, and nothing worse comes of it."""
    said = judged(reply(infer()), Reply(200, {}, data))
    assert said in ("wrong: not JSON", "wrong: not a JSON object")


def test_the_first_wrong_answer_is_told_in_full() -> None:
    """Where it was, what was expected and what came; later ones do not replace it."""
    judge, asked = Judge(TARGET, Plan(URL)), body()
    judge.learn(asked, reply(infer()))
    for wrong in (0.9, 0.8):
        # the first number is near enough, and there are two that are not
        values = [[0.10001, 0.2, wrong], [0.5, 0.25, wrong]]
        assert judge.fault(asked, 200, {}, reply(infer(output(values))).body)
    assert (
        judge.first_wrong
        == "json, 2 rows: 'y' at [0, 2]: expected 0.699999988 within 0.0001, got 0.899999976"
    )


def test_tolerance() -> None:
    """Numbers may be off by as much as was said, of themselves and of 1."""
    far = infer(output([[0.1, 0.2, 0.7], [0.5, 0.25, 0.26]]))
    assert judged(reply(infer()), reply(far))
    assert judged(reply(infer()), reply(far), tolerance=0.01) is None
    right, near = ([[x, 0.0, 0.0]] * 2 for x in (100.0, 100.9))
    assert judged(reply(infer(output(right))), reply(infer(output(near))), tolerance=0.01) is None


def test_a_single_number() -> None:
    """An output without dimensions is compared as any other."""
    scalar = replace(TARGET, outputs=(Tensor("y", "FP32", ()),))
    right, wrong = reply(infer(output(0.5))), reply(infer(output(0.75)))
    assert judged(right, right, target=scalar) is None
    assert judged(right, wrong, target=scalar) == "wrong: y differs from the reference answer"


def test_whole_numbers_are_exact() -> None:
    """A class is the right one or it is not, however great its number and the tolerance."""
    whole = replace(TARGET, outputs=(Tensor("y", "INT64", (-1,)),))
    right, wrong = (reply(infer(output([10**6, last], datatype="INT64"))) for last in (10**6, 10**6 + 1))
    assert judged(right, right, target=whole) is None
    assert judged(right, wrong, target=whole, tolerance=0.5) == "wrong: y differs from the reference answer"
    half = reply(infer(output([10**6, 0.5], datatype="INT64")))
    assert judged(right, half, target=whole) == "wrong: values of another datatype"
    wide = reply(infer(output([300, 1], datatype="UINT8")))
    assert judged(right, wide, target=whole) == "wrong: values of another datatype"


def test_texts_are_exact() -> None:
    """Strings come as JSON or in the binary form, each after its length."""
    texts = replace(TARGET, outputs=(Tensor("y", "BYTES", (-1,)),))
    about = output(["one", "tü"], datatype="BYTES")
    right = reply(infer(about))
    assert judged(right, reply(infer(about | {"data": ["one", "two"]})), target=texts)
    tail = b"".join(len(text).to_bytes(4, "little") + text for text in (b"one", "tü".encode()))
    del about["data"]
    text = json.dumps(infer(about | {"parameters": {"binary_data_size": len(tail)}})).encode()
    assert judged(right, Reply(200, {LENGTH: str(len(text))}, text + tail), target=texts) is None
    cut = tail[:-1]
    text = json.dumps(infer(about | {"parameters": {"binary_data_size": len(cut)}})).encode()
    short = Reply(200, {LENGTH: str(len(text))}, text + cut)
    assert judged(right, short, target=texts) == "wrong: binary data of another length"


def test_binary_answers() -> None:
    """Bytes that differ, are too few or too many, or begin elsewhere than the header says, are wrong."""
    right = binary()
    size = int(right.headers[LENGTH])
    other = binary([[0.1, 0.2, 0.7], [0.5, 0.25, 0.5]])
    assert judged(right, other, "binary") == "wrong: y differs from the reference answer"
    short = Reply(200, right.headers, right.body[:-4])
    assert judged(right, short, "binary") == "wrong: binary data of another length"
    long = Reply(200, right.headers, right.body + b"\0\0\0\0")
    assert judged(right, long, "binary") == "wrong: binary data of another length"
    for lie in ("0", str(size - 1), str(size + 1), str(10**9), "-1", "many", "1" * 5000):
        assert judged(right, Reply(200, {LENGTH: lie}, right.body), "binary")
    assert judged(right, Reply(200, {}, right.body), "binary") == "wrong: not JSON"
    nan = binary([[0.1, 0.2, 0.7], [0.5, 0.25, float("nan")]])
    assert judged(right, nan, "binary") == "wrong: y is not finite"
    for size in (-1, 2.5, "24", True):
        assert judged(right, binary(parameters={"binary_data_size": size}), "binary")


def test_bfloat16() -> None:
    """BF16 is read as the upper half of a float32."""
    target = replace(TARGET, outputs=(Tensor("y", "BF16", (-1, 1)),))
    upper = [[0x3F80], [0xC000]]  # 1 and -2
    right = binary(upper, "BF16", "<u2")
    judge, asked = Judge(target, Plan(URL)), body("binary")
    judge.learn(asked, right)
    other = binary([[0x3F80], [0x4000]], "BF16", "<u2")
    assert judge.fault(asked, 200, other.headers, other.body)
    assert judge.first_wrong is not None
    assert judge.first_wrong.endswith("'y' at [1, 0]: expected -2 within 0.0001, got 2")


def test_predictions() -> None:
    """Rows of the first protocol are compared number by number, and their labels by letter."""
    right = reply(predictions())
    assert judged(right, reply(predictions("a")), "v1") == "wrong: label differs from the reference answer"
    renamed = reply(json.loads(json.dumps(predictions()).replace('"b":', '"bb":')))
    assert judged(right, renamed, "v1") == "wrong: label differs from the reference answer"
    figures = [[max(row), *row] for row in VALUES]
    bare = reply(predictions() | {"predictions": figures})
    assert judged(right, bare, "v1") == judged(bare, right, "v1") == "wrong: outputs"
    fewer = changed(predictions(), lambda d: d["predictions"].pop())
    assert judged(right, fewer, "v1") == "wrong: shape of prediction"
    lower = changed(predictions(), lambda d: d["predictions"][0].update(probability=0.1))
    assert judged(right, lower, "v1") == "wrong: prediction differs from the reference answer"
    uneven = changed(predictions(), lambda d: d["predictions"].__setitem__(0, {"label": "c"}))
    assert judged(right, uneven, "v1") == "wrong: predictions of several shapes"
    assert judged(right, reply({"predictions": []}), "v1") == "wrong: no predictions"
    deep = Reply(200, {}, b'{"predictions": [' + b"[" * 900 + b"]" * 900 + b"]}")
    assert judged(right, deep, "v1") == "wrong: model"
    huge = changed(predictions(), lambda d: d["predictions"][0].update(probability=10**400))
    assert judged(right, huge, "v1") == "wrong: values of another datatype"


def test_a_label_follows_from_numbers() -> None:
    """Where numbers differ within the tolerance, another of two classes that are as good may be the best."""
    tied = changed(predictions("b"), lambda d: d["predictions"][0].update(probability=0.70001))
    assert judged(reply(predictions()), tied, "v1") is None


def test_gates() -> None:
    """The outputs beside a summary of gates are checked, and so is each gate's mean."""
    assert (
        judged(reply(gates()), reply(gates(0.5)), "gates")
        == "wrong: mean of gates differs from the reference answer"
    )
    assert judged(reply(gates()), reply(infer()), "gates") == "wrong: no means of gates"
    assert judged(reply(gates()), reply(gates() | infer(output([[0, 0, 0]] * 2))), "gates")


def test_faults_are_few() -> None:
    """Names that a server makes up as it goes are in no fault, which would be counted one by one."""
    for odd in (infer(output(), output([float("nan")], "x1")), infer(output([float("nan")], "x1"))):
        assert judged(reply(infer()), reply(odd)) == "wrong: outputs"
        assert judged(reply(infer()), reply(odd | {"model_version": "2"})) == "wrong: outputs"
    renamed = gates() | {"gates": [{"name": "x1", "mean": float("nan")}]}
    assert judged(reply(gates()), reply(renamed), "gates") == "wrong: mean of gates is not finite"
    other = gates() | {"gates": [{"name": "x1", "mean": 0.25}]}
    assert judged(reply(gates()), reply(other), "gates") == "wrong: gate differs from the reference answer"


def test_numbers_far_apart() -> None:
    """A difference that no number can hold is a difference."""
    wide = replace(TARGET, outputs=(Tensor("y", "FP64", (-1,)),))
    right, wrong = (reply(infer(output([value] * 2, datatype="FP64"))) for value in (1.7e308, -1.7e308))
    assert judged(right, wrong, target=wide) == "wrong: y differs from the reference answer"


def test_lesions() -> None:
    """The outputs with a layer closed are checked as those without."""
    moved = lesion() | {"lesioned": infer(output([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]))}
    assert judged(reply(lesion()), reply(moved), "lesion") == (
        "wrong: lesioned y differs from the reference answer"
    )
    short = lesion() | {"lesioned": infer(output(VALUES[:1]))}
    assert judged(reply(lesion()), reply(short), "lesion") == "wrong: shape of lesioned y"
    assert judged(reply(lesion()), reply(infer()), "lesion") == "wrong: no outputs"


def test_another_version() -> None:
    """A version that came during the load may answer otherwise, but not in another shape, and not NaN."""
    other = infer(output([[0.9, 0.0, 0.1]] * 2)) | {"model_version": "2"}
    assert judged(reply(infer()), reply(other)) is None
    for values in ([[0.9, 0.1]] * 2, [[0.9, 0.0, 0.1]], [[0.9, 0.0, float("inf")]] * 2):
        wrong = infer(output(values)) | {"model_version": "2"}
        assert judged(reply(infer()), reply(wrong))
    pinned = replace(TARGET, pinned=True)
    assert judged(reply(infer()), reply(other), target=pinned) == "wrong: version"


@pytest.mark.parametrize(
    ("answer", "wire", "complaint"),
    [
        (
            reply({"error": "too busy"}, 503),
            "json",
            "expected an answer to hold others against, got 503: too busy",
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
        (reply(infer()), "binary", "expected an answer in the binary form, got one in JSON"),
        (reply({"predictions": VALUES[:1]}), "v1", r"expected shape \[2, -1\], got \[1, 3\]"),
    ],
)
def test_references_that_are_none(answer: Reply, wire: Wire, complaint: str) -> None:
    """An answer that is not what the metadata says is no reference for others."""
    with pytest.raises(TargetError, match=complaint):
        Judge(TARGET, Plan(URL)).learn(body(wire), answer)


def test_a_server_that_does_not_tell_of_outputs() -> None:
    """The reference answer alone decides on names and shapes."""
    silent = replace(TARGET, outputs=())
    assert judged(reply(infer()), reply(infer()), target=silent) is None
    assert judged(reply(infer()), reply(infer(output(VALUES[:1]))), target=silent) == "wrong: shape of y"


def test_answers_that_are_all_alike() -> None:
    """Where all answers are the same, a wrong one may pass for right, and that is told."""
    judge = Judge(TARGET, Plan(URL))
    for wire, values in (("json", VALUES), ("json", VALUES), ("gates", VALUES), ("gates", VALUES[::-1])):
        document = infer(output(values)) | {"gates": []}
        judge.learn(body(wire), reply(document))  # type: ignore[arg-type]
    judge.learn(body("v1"), reply(predictions()))
    assert judge.alike == ("json, 2 rows",)
