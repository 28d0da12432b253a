"""Requests made from metadata alone, or of the user's own rows."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.errors import TargetError, UsageError
from loadtest.plan import Plan, Wire
from loadtest.workload.payloads import Body, bodies
from loadtest.workload.target import Target
from loadtest.workload.tensors import DTYPES, Tensor, numbers

URL = "http://127.0.0.1:8000"
PLAIN = Target(
    url=URL,
    server="turnpike",
    server_version="1",
    model="m",
    version="1",
    inputs=(Tensor("x", "FP32", (-1, 2, 3)),),
    outputs=(Tensor("y", "FP32", (-1, 4)),),
    binary=True,
    v1=True,
    gates=True,
    lesions=(3, 5),
)


def made(target: Target = PLAIN, **options: Any) -> tuple[Body, ...]:
    return bodies(target, Plan(URL, **{"samples": 3, **options}))


def taking(*inputs: Tensor, outputs: tuple[Tensor, ...] = PLAIN.outputs) -> Target:
    return replace(PLAIN, inputs=inputs, outputs=outputs)


def entries(body: Body) -> dict[str, Any]:
    return {entry["name"]: entry for entry in json.loads(body.data)["inputs"]}


def test_json() -> None:
    """Each request names its tensors, their shapes and all values; no two of a kind are the same."""
    all_of_them = made(rows=(1, 4))
    assert Counter(body.kind for body in all_of_them) == {"json, 1 row": 3, "json, 4 rows": 3}
    assert len({body.data for body in all_of_them}) == 6
    body = all_of_them[-1]
    assert (body.path, body.rows, body.wire) == ("/v2/models/m/infer", 4, "json")
    (entry,) = json.loads(body.data)["inputs"]
    assert (entry["name"], entry["datatype"], entry["shape"]) == ("x", "FP32", [4, 2, 3])
    assert len(entry["data"]) == 24
    assert all(0 <= value < 1 for value in entry["data"])


def test_binary_is_json_in_other_words() -> None:
    """Both wires carry the same values, to the last bit."""
    for text, raw in zip(made(rows=(5,)), made(rows=(5,), wire="binary"), strict=True):
        length = int(raw.headers["Inference-Header-Content-Length"])
        head = json.loads(raw.data[:length])
        assert head["parameters"] == {"binary_data_output": True}
        assert head["inputs"][0]["parameters"]["binary_data_size"] == len(raw.data) - length == 120
        values = np.array(entries(text)["x"]["data"]).astype("<f4")
        assert values.tobytes() == raw.data[length:]


def test_v1() -> None:
    """Rows are nested as the model has them; those of several inputs have names."""
    (body, *_) = made(rows=(2,), wire="v1")
    assert body.path == "/v1/models/m:predict"
    assert np.array(json.loads(body.data)["instances"]).shape == (2, 2, 3)
    both = taking(Tensor("x", "FP32", (-1, 2)), Tensor("n", "INT64", (-1,)))
    (body, *_) = made(both, rows=(2,), wire="v1")
    first, second = json.loads(body.data)["instances"]
    assert (len(first["x"]), type(second["n"])) == (2, int)


def test_a_model_without_rows() -> None:
    """An input whose shape is fixed is sent whole, and no other number of rows is taken."""
    whole = taking(Tensor("x", "FP32", (3, 2)))
    assert entries(made(whole)[0])["x"]["shape"] == [3, 2]
    assert np.array(json.loads(made(whole, wire="v1")[0].data)["instances"]).shape == (1, 3, 2)
    with pytest.raises(UsageError, match=r"--rows: expected 1, since no input of 'm' has rows"):
        made(whole, rows=(1, 8))


def test_gates_and_lesions() -> None:
    """A lesion closes one layer after the other of those that can be closed."""
    assert made(wire="gates")[0].path == "/v2/models/m/gates"
    lesions = made(wire="lesion")
    assert {body.path for body in lesions} == {"/v2/models/m/lesion"}
    assert [json.loads(body.data)["close"] for body in lesions] == [[3], [5], [3]]


def test_a_version_that_was_asked_for_is_in_every_path() -> None:
    """Each wire has the version in its address."""
    pinned = replace(PLAIN, pinned=True, version="7")
    assert {body.path for body in made(pinned, wire="mixed")} == {
        "/v2/models/m/versions/7/infer",
        "/v1/models/m/versions/7:predict",
        "/v2/models/m/versions/7/gates",
        "/v2/models/m/versions/7/lesion",
    }


def test_a_mix_takes_what_there_is() -> None:
    """Wires go as often as they are said to, and those that a server has not are left out."""
    weights: Counter[Wire] = Counter()
    for body in made(wire="mixed"):
        weights[body.wire] += body.weight  # type: ignore[assignment]
    assert dict(weights) == pytest.approx({"json": 6, "binary": 2, "v1": 1, "gates": 0.8, "lesion": 0.2})
    poor = replace(PLAIN, binary=False, v1=False, gates=False, lesions=())
    assert {body.wire for body in made(poor, wire="mixed")} == {"json"}


@pytest.mark.parametrize("wire", ["v1", "gates", "lesion"])
def test_a_wire_that_the_server_has_not(wire: Wire) -> None:
    """What is asked for by name must be there."""
    poor = replace(PLAIN, server="triton", v1=False, gates=False, lesions=())
    with pytest.raises(UsageError, match=f"--wire {wire}: expected .* triton"):
        made(poor, wire=wire)


def test_the_binary_form_is_tried_where_it_is_asked_for() -> None:
    """Some servers speak it without saying so."""
    assert made(replace(PLAIN, binary=False), wire="binary")


def test_half_precision_goes_by_the_binary_form() -> None:
    """JSON has no form for FP16, so gates are asked for in binary, and JSON is refused."""
    half = taking(Tensor("x", "FP16", (-1, 2)))
    for wire in ("json", "v1"):
        with pytest.raises(UsageError, match=f"--wire {wire}: expected a model without FP16.*got 'x'"):
            made(half, wire=wire)
    assert {body.wire for body in made(half, wire="mixed")} == {"binary", "gates", "lesion"}
    body = made(half, wire="lesion")[0]
    head = json.loads(body.data[: int(body.headers["Inference-Header-Content-Length"])])
    assert head["close"] == [3]
    assert head["inputs"][0]["parameters"] == {"binary_data_size": 4}
    with pytest.raises(UsageError, match="--wire mixed: expected a wire that can be spoken"):
        made(replace(half, binary=False, gates=False, lesions=()), wire="mixed")


@pytest.mark.parametrize("datatype", DTYPES)
def test_every_datatype(datatype: str) -> None:
    """Values are such as any datatype holds: whole numbers are 0 and 1, which every vocabulary has."""
    target = taking(Tensor("x", datatype, (-1, 50)))
    body = made(target, wire="binary")[0]
    length = int(body.headers["Inference-Header-Content-Length"])
    values = np.frombuffer(body.data[length:], DTYPES[datatype])
    assert len(values) == 50
    if DTYPES[datatype].kind == "f":
        assert len(set(values.tolist())) > 40
        assert all(0 <= value <= 1 for value in values)
    else:
        assert set(values.tolist()) == {0, 1}
    if datatype == "BOOL":
        assert {type(value) for value in entries(made(target)[0])["x"]["data"]} == {bool}


@pytest.mark.parametrize("datatype", ["BYTES", "BF16"])
def test_what_cannot_be_made(datatype: str) -> None:
    """Texts mean something to a model that no number of ours would."""
    with pytest.raises(UsageError, match=f"input 'x': expected one of .*, got {datatype}"):
        made(taking(Tensor("x", datatype, (-1,))))


def test_free_dimensions() -> None:
    """A dimension that is free beside the rows is as long as was asked for."""
    target = taking(Tensor("x", "INT64", (-1, -1)), Tensor("mask", "BOOL", (-1, -1, 4)))
    sent = entries(made(target, rows=(2,), length=7)[0])
    assert (sent["x"]["shape"], sent["mask"]["shape"]) == ([2, 7], [2, 7, 4])


def test_the_same_plan_makes_the_same_requests() -> None:
    """The seed, and nothing else, decides on the values."""
    assert [body.data for body in made(seed=1)] == [body.data for body in made(seed=1)]
    assert not {body.data for body in made(seed=1)} & {body.data for body in made(seed=2)}


def test_large_requests_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests of a kind together fit into memory, and there is one however large it is."""
    monkeypatch.setattr("loadtest.workload.payloads.MOST_BYTES", 800)
    assert [len(made(taking(Tensor("x", "FP32", (-1, width))))) for width in (60, 100, 300)] == [3, 2, 1]


def test_a_float32_in_json_is_exact() -> None:
    """The shortest digits of a float32 give the same float32 back, whatever its size."""
    random = np.random.default_rng(0)
    values = random.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    values = values[np.isfinite(values)]
    told = json.loads(json.dumps(numbers(values)))
    assert np.array(told).astype(np.float32).tobytes() == values.tobytes()
    assert numbers(np.array([0.1], np.float32)) == [0.1]


def test_rows_of_the_users_own(tmp_path: Path) -> None:
    """The file's rows are sent in their order, from the start again after the last."""
    np.save(tmp_path / "x.npy", np.arange(30).reshape(5, 2, 3))
    sent = [entries(body)["x"]["data"] for body in made(rows=(2,), data=tmp_path / "x.npy")]
    assert [data[::6] for data in sent] == [[0, 6], [12, 18], [24, 0]]
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 2, 3)), other=np.zeros(7))
    assert entries(made(data=tmp_path / "x.npz")[0])["x"]["data"] == [0] * 6


def test_rows_decide_on_free_dimensions(tmp_path: Path) -> None:
    """The user's rows are as long as they are; an input without rows takes one whole array a request."""
    np.savez(tmp_path / "x.npz", tokens=np.ones((2, 9), int), scale=np.array([0.5, 0.25]))
    target = taking(Tensor("tokens", "INT64", (-1, -1)), Tensor("scale", "FP32", ()))
    first, second, _ = (entries(body) for body in made(target, data=tmp_path / "x.npz"))
    assert first["tokens"]["shape"] == [1, 9]
    assert (first["scale"]["data"], second["scale"]["data"], first["scale"]["shape"]) == ([0.5], [0.25], [])


def test_rows_stand_in_for_metadata(tmp_path: Path) -> None:
    """Where a server does not tell of inputs, the file's names, datatypes and shapes are taken for them."""
    silent = replace(PLAIN, inputs=(), outputs=())
    np.savez(tmp_path / "x.npz", a=np.zeros((3, 2), "f4"), b=np.ones((3,), "i8"))
    sent = entries(made(silent, rows=(2,), data=tmp_path / "x.npz")[0])
    assert [(name, entry["datatype"], entry["shape"]) for name, entry in sent.items()] == [
        ("a", "FP32", [2, 2]),
        ("b", "INT64", [2]),
    ]
    with pytest.raises(TargetError, match=r"does not tell what inputs 'm' has: --data FILE.npz"):
        made(silent)
    np.savez(tmp_path / "text.npz", a=np.array(["a"]))
    with pytest.raises(UsageError, match="--data: 'a': expected numbers, got <U1"):
        made(silent, data=tmp_path / "text.npz")


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"y": np.zeros((1, 2, 3))}, r"to be .npz with an array for 'x', got 'y'"),
        ({"x": np.zeros((1, 3, 2))}, r"'x': expected rows of shape \[2, 3\], got \[3, 2\]"),
        ({"x": np.zeros((0, 2, 3))}, r"expected rows for 'x', got shape \[0, 2, 3\]"),
        ({"x": np.zeros(())}, r"expected rows for 'x', got shape \[\]"),
        ({"x": np.full((1, 2, 3), 1e300)}, "'x': expected values of FP32, got float64"),
        ({"x": np.full((1, 2, 3), 1j)}, "'x': expected values of FP32, got complex128"),
    ],
)
def test_rows_that_do_not_fit(tmp_path: Path, arrays: dict[str, Any], complaint: str) -> None:
    """Names, shapes and values of the file must be those of the model."""
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(UsageError, match=f"--data: .*{complaint}"):
        made(data=tmp_path / "x.npz")


@pytest.mark.parametrize("value", [300, -1, 0.5])
def test_whole_numbers_are_not_cut(tmp_path: Path, value: float) -> None:
    """A number that the input's datatype cannot hold is not made into another."""
    np.save(tmp_path / "x.npy", np.full((1, 2), value))
    with pytest.raises(UsageError, match="--data: 'x': expected values of UINT8"):
        made(taking(Tensor("x", "UINT8", (-1, 2))), data=tmp_path / "x.npy")


def test_not_a_number_needs_the_binary_form(tmp_path: Path) -> None:
    """JSON cannot carry NaN; binary does."""
    np.save(tmp_path / "x.npy", np.full((1, 2, 3), np.nan))
    with pytest.raises(UsageError, match="--data: expected finite numbers"):
        made(data=tmp_path / "x.npy")
    assert made(data=tmp_path / "x.npy", wire="binary")


def test_one_array_for_several_inputs(tmp_path: Path) -> None:
    """An array without a name is taken for the only input, and for no other."""
    np.save(tmp_path / "x.npy", np.zeros((1, 2)))
    target = taking(Tensor("a", "FP32", (-1, 2)), Tensor("b", "FP32", (-1, 2)))
    with pytest.raises(UsageError, match=r"with an array for 'a', 'b', got one without a name"):
        made(target, data=tmp_path / "x.npy")
    with pytest.raises(UsageError, match=r"with an array for each input, since the server does not tell"):
        made(replace(PLAIN, inputs=(), outputs=()), data=tmp_path / "x.npy")


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04broken"])
def test_files_that_hold_no_arrays(tmp_path: Path, content: bytes) -> None:
    """A file of another kind, or none, is named."""
    path = tmp_path / "x.npz"
    with pytest.raises(UsageError, match=r"expected arrays of numbers in .*x.npz .*: No such file"):
        made(data=path)
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"expected arrays of numbers in .*x.npz .*: it holds something"):
        made(data=path)


def test_a_file_is_never_run(tmp_path: Path) -> None:
    """Pickled objects are refused unread."""
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(UsageError, match="expected arrays of numbers in"):
        made(data=tmp_path / "x.npy")
