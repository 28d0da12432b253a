"""Payloads made from metadata, or from the user's own rows."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turnpike.common.datatypes import DTYPE_BY_DATATYPE
from turnpike.loadtest.errors import TargetError, UsageError
from turnpike.loadtest.plan import LoadPlan, Wire
from turnpike.loadtest.workload.payloads import Payload, make_payloads
from turnpike.loadtest.workload.target import Target
from turnpike.loadtest.workload.tensors import TensorSpec, json_numbers

URL = "http://127.0.0.1:8000"
PLAIN = Target(
    url=URL,
    server="turnpike",
    server_version="1",
    model="m",
    version="1",
    inputs=(TensorSpec("x", "FP32", (-1, 2, 3)),),
    outputs=(TensorSpec("y", "FP32", (-1, 4)),),
    binary=True,
    v1=True,
    gates=True,
    lesion_layers=(3, 5),
)


def payloads(target: Target = PLAIN, **options: Any) -> tuple[Payload, ...]:
    return make_payloads(target, LoadPlan(URL, **{"samples": 3, **options}))


def target_with(*inputs: TensorSpec, outputs: tuple[TensorSpec, ...] = PLAIN.outputs) -> Target:
    return replace(PLAIN, inputs=inputs, outputs=outputs)


def entries(payload: Payload) -> dict[str, Any]:
    return {entry["name"]: entry for entry in json.loads(payload.data)["inputs"]}


def test_json_payloads_have_the_requested_rows() -> None:
    everything = payloads(rows=(1, 4))
    assert Counter(payload.kind for payload in everything) == {"json, 1 row": 3, "json, 4 rows": 3}
    assert len({payload.data for payload in everything}) == 6
    payload = everything[-1]
    assert (payload.path, payload.rows, payload.wire) == ("/v2/models/m/infer", 4, "json")
    (entry,) = json.loads(payload.data)["inputs"]
    assert (entry["name"], entry["datatype"], entry["shape"]) == ("x", "FP32", [4, 2, 3])
    assert len(entry["data"]) == 24
    assert all(0 <= value < 1 for value in entry["data"])


def test_binary_and_json_hold_the_same_values() -> None:
    texts = payloads(rows=(5,))
    assert texts
    for text, binary in zip(texts, payloads(rows=(5,), wire="binary"), strict=True):
        length = int(binary.headers["Inference-Header-Content-Length"])
        head = json.loads(binary.data[:length])
        assert head["parameters"] == {"binary_data_output": True}
        assert head["inputs"][0]["parameters"]["binary_data_size"] == len(binary.data) - length == 120
        values = np.array(entries(text)["x"]["data"]).astype("<f4")
        assert values.tobytes() == binary.data[length:]


def test_v1_payloads_have_instances() -> None:
    (payload, *_) = payloads(rows=(2,), wire="v1")
    assert payload.path == "/v1/models/m:predict"
    assert np.array(json.loads(payload.data)["instances"]).shape == (2, 2, 3)
    both = target_with(TensorSpec("x", "FP32", (-1, 2)), TensorSpec("n", "INT64", (-1,)))
    (payload, *_) = payloads(both, rows=(2,), wire="v1")
    first, second = json.loads(payload.data)["instances"]
    assert (len(first["x"]), type(second["n"])) == (2, int)


def test_a_model_without_a_batch_axis_gets_whole_inputs() -> None:
    whole = target_with(TensorSpec("x", "FP32", (3, 2)))
    assert entries(payloads(whole)[0])["x"]["shape"] == [3, 2]
    assert np.array(json.loads(payloads(whole, wire="v1")[0].data)["instances"]).shape == (1, 3, 2)
    with pytest.raises(
        UsageError, match=r"--rows: expected 1, because no input of 'm' has a variable number of rows"
    ):
        payloads(whole, rows=(1, 8))


def test_gates_and_lesions_have_their_paths() -> None:
    assert payloads(wire="gates")[0].path == "/v2/models/m/gates"
    lesions = payloads(wire="lesion")
    assert {payload.path for payload in lesions} == {"/v2/models/m/lesion"}
    assert [json.loads(payload.data)["close"] for payload in lesions] == [[3], [5], [3]]


def test_a_chosen_version_is_in_every_path() -> None:
    pinned = replace(PLAIN, pinned=True, version="7")
    assert {payload.path for payload in payloads(pinned, wire="mixed")} == {
        "/v2/models/m/versions/7/infer",
        "/v1/models/m/versions/7:predict",
        "/v2/models/m/versions/7/gates",
        "/v2/models/m/versions/7/lesion",
    }


def test_a_mix_has_what_the_server_supports() -> None:
    weights: Counter[Wire] = Counter()
    for payload in payloads(wire="mixed"):
        weights[payload.wire] += payload.weight  # type: ignore[assignment]
    assert dict(weights) == pytest.approx({"json": 6, "binary": 2, "v1": 1, "gates": 0.8, "lesion": 0.2})
    basic = replace(PLAIN, binary=False, v1=False, gates=False, lesion_layers=())
    assert {payload.wire for payload in payloads(basic, wire="mixed")} == {"json"}


@pytest.mark.parametrize("wire", ["v1", "gates", "lesion"])
def test_an_unsupported_wire_is_rejected(wire: Wire) -> None:
    basic = replace(PLAIN, server="triton", v1=False, gates=False, lesion_layers=())
    with pytest.raises(UsageError, match=f"--wire {wire}: expected .* triton"):
        payloads(basic, wire=wire)


def test_binary_is_tried_if_it_is_chosen() -> None:
    """Some servers support it without saying so."""
    assert payloads(replace(PLAIN, binary=False), wire="binary")


def test_half_precision_needs_binary() -> None:
    """JSON cannot hold FP16, so gates are requested with binary tensors and JSON is rejected."""
    half = target_with(TensorSpec("x", "FP16", (-1, 2)))
    for wire in ("json", "v1"):
        with pytest.raises(UsageError, match=f"--wire {wire}: expected a model without FP16.*got 'x'"):
            payloads(half, wire=wire)
    assert {payload.wire for payload in payloads(half, wire="mixed")} == {"binary", "gates", "lesion"}
    payload = payloads(half, wire="lesion")[0]
    head = json.loads(payload.data[: int(payload.headers["Inference-Header-Content-Length"])])
    assert head["close"] == [3]
    assert head["inputs"][0]["parameters"] == {"binary_data_size": 4}
    with pytest.raises(UsageError, match="--wire mixed: expected a target that supports at least one format"):
        payloads(replace(half, binary=False, gates=False, lesion_layers=()), wire="mixed")


@pytest.mark.parametrize("datatype", DTYPE_BY_DATATYPE)
def test_every_datatype_is_generated(datatype: str) -> None:
    """Whole numbers are 0 and 1, which every vocabulary contains."""
    target = target_with(TensorSpec("x", datatype, (-1, 50)))
    payload = payloads(target, wire="binary")[0]
    length = int(payload.headers["Inference-Header-Content-Length"])
    values = np.frombuffer(payload.data[length:], DTYPE_BY_DATATYPE[datatype])
    assert len(values) == 50
    if DTYPE_BY_DATATYPE[datatype].kind == "f":
        assert len(set(values.tolist())) > 40
        assert all(0 <= value <= 1 for value in values)
    else:
        assert set(values.tolist()) == {0, 1}
    if datatype == "BOOL":
        assert {type(value) for value in entries(payloads(target)[0])["x"]["data"]} == {bool}


@pytest.mark.parametrize("datatype", ["BYTES", "BF16"])
def test_datatypes_that_cannot_be_generated_are_rejected(datatype: str) -> None:
    with pytest.raises(UsageError, match=f"input 'x': expected one of .*, got {datatype}"):
        payloads(target_with(TensorSpec("x", datatype, (-1,))))


def test_free_dimensions_get_the_requested_length() -> None:
    target = target_with(TensorSpec("x", "INT64", (-1, -1)), TensorSpec("mask", "BOOL", (-1, -1, 4)))
    sent = entries(payloads(target, rows=(2,), length=7)[0])
    assert (sent["x"]["shape"], sent["mask"]["shape"]) == ([2, 7], [2, 7, 4])


def test_the_same_plan_makes_the_same_requests() -> None:
    assert [payload.data for payload in payloads(seed=1)] == [payload.data for payload in payloads(seed=1)]
    assert not {payload.data for payload in payloads(seed=1)} & {payload.data for payload in payloads(seed=2)}


def test_large_requests_are_fewer() -> None:
    plan = LoadPlan(URL, samples=3)
    targets = [target_with(TensorSpec("x", "FP32", (-1, width))) for width in (60, 100, 300)]
    assert [len(make_payloads(target, plan, max_kind_bytes=800)) for target in targets] == [3, 2, 1]


def test_a_float32_in_json_is_exact() -> None:
    random = np.random.default_rng(0)
    values = random.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    values = values[np.isfinite(values)]
    decoded = json.loads(json.dumps(json_numbers(values)))
    assert np.array(decoded).astype(np.float32).tobytes() == values.tobytes()
    assert json_numbers(np.array([0.1], np.float32)) == [0.1]


def test_own_rows_are_sent_in_order(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(30).reshape(5, 2, 3))
    sent = [entries(payload)["x"]["data"] for payload in payloads(rows=(2,), data=tmp_path / "x.npy")]
    assert [data[::6] for data in sent] == [[0, 6], [12, 18], [24, 0]]
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 2, 3)), other=np.zeros(7))
    assert entries(payloads(data=tmp_path / "x.npz")[0])["x"]["data"] == [0] * 6


def test_own_rows_set_free_dimensions(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", tokens=np.ones((2, 9), int), scale=np.array([0.5, 0.25]))
    target = target_with(TensorSpec("tokens", "INT64", (-1, -1)), TensorSpec("scale", "FP32", ()))
    first, second, _ = (entries(payload) for payload in payloads(target, data=tmp_path / "x.npz"))
    assert first["tokens"]["shape"] == [1, 9]
    assert (first["scale"]["data"], second["scale"]["data"], first["scale"]["shape"]) == ([0.5], [0.25], [])


def test_own_rows_replace_missing_metadata(tmp_path: Path) -> None:
    silent = replace(PLAIN, inputs=(), outputs=())
    np.savez(tmp_path / "x.npz", a=np.zeros((3, 2), "f4"), b=np.ones((3,), "i8"))
    sent = entries(payloads(silent, rows=(2,), data=tmp_path / "x.npz")[0])
    assert [(name, entry["datatype"], entry["shape"]) for name, entry in sent.items()] == [
        ("a", "FP32", [2, 2]),
        ("b", "INT64", [2]),
    ]
    with pytest.raises(TargetError, match=r"does not describe the inputs of 'm': pass --data FILE.npz"):
        payloads(silent)
    np.savez(tmp_path / "text.npz", a=np.array(["a"]))
    with pytest.raises(UsageError, match="--data: 'a': expected numbers, got <U1"):
        payloads(silent, data=tmp_path / "text.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.zeros((1, 2, 3))}, r"to be .npz with an array for 'x', got 'y'"),
        ({"x": np.zeros((1, 3, 2))}, r"'x': expected rows of shape \[2, 3\], got \[3, 2\]"),
        ({"x": np.zeros((0, 2, 3))}, r"expected rows for 'x', got shape \[0, 2, 3\]"),
        ({"x": np.zeros(())}, r"expected rows for 'x', got shape \[\]"),
        ({"x": np.full((1, 2, 3), 1e300)}, "'x': expected values of FP32, got float64"),
        ({"x": np.full((1, 2, 3), 1j)}, "'x': expected values of FP32, got complex128"),
    ],
)
def test_own_rows_of_another_shape_are_rejected(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(UsageError, match=f"--data: .*{message}"):
        payloads(data=tmp_path / "x.npz")


@pytest.mark.parametrize("value", [300, -1, 0.5])
def test_values_that_an_integer_cannot_hold_are_rejected(tmp_path: Path, value: float) -> None:
    np.save(tmp_path / "x.npy", np.full((1, 2), value))
    with pytest.raises(UsageError, match="--data: 'x': expected values of UINT8"):
        payloads(target_with(TensorSpec("x", "UINT8", (-1, 2))), data=tmp_path / "x.npy")


def test_nan_needs_binary(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((1, 2, 3), np.nan))
    with pytest.raises(UsageError, match="--data: expected finite numbers"):
        payloads(data=tmp_path / "x.npy")
    assert payloads(data=tmp_path / "x.npy", wire="binary")


def test_an_unnamed_array_for_several_inputs_is_rejected(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 2)))
    target = target_with(TensorSpec("a", "FP32", (-1, 2)), TensorSpec("b", "FP32", (-1, 2)))
    with pytest.raises(UsageError, match=r"with an array for 'a', 'b', got one without a name"):
        payloads(target, data=tmp_path / "x.npy")
    with pytest.raises(UsageError, match=r"with an array for each input, because the server does not list"):
        payloads(replace(PLAIN, inputs=(), outputs=()), data=tmp_path / "x.npy")


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04broken"])
def test_files_without_arrays_are_rejected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npz"
    with pytest.raises(UsageError, match=r"expected arrays of numbers in .*x.npz .*: No such file"):
        payloads(data=path)
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"expected arrays of numbers in .*x.npz .*: it holds something"):
        payloads(data=path)


def test_pickled_files_are_rejected(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(UsageError, match="expected arrays of numbers in"):
        payloads(data=tmp_path / "x.npy")
