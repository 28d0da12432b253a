"""REST: health, metadata, inference in JSON, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.models import SAME, SUMS, Array, Model, values
from tests.conformance.pattern import ABSENT, ERROR, Where, tensor
from tests.conformance.rest_case import RestCase

A = np.array([[1, 2], [3.5, -4]], np.float32)
B = np.array([[0.5, 0], [-1, 8]], np.float32)
INFER = "/v2/models/sums/infer"


def entry(name: str, datatype: str, array: Array, /, *, flat: bool = False, **changes: Any) -> dict[str, Any]:
    """An input in JSON; `changes` replace its keys, and None leaves one out."""
    data = (array.ravel() if flat else array).tolist()
    record = {"name": name, "shape": list(array.shape), "datatype": datatype, "data": data, **changes}
    return {key: value for key, value in record.items() if value is not None}


def sums(*, flat: bool = False, **more: Any) -> dict[str, Any]:
    """A request for both sums."""
    return {"inputs": [entry("a", "FP32", A, flat=flat), entry("b", "FP32", B, flat=flat)], **more}


def wrong(**changes: Any) -> dict[str, Any]:
    """A request whose first input has these changes."""
    return {"inputs": [entry("a", "FP32", A, **changes), entry("b", "FP32", B)]}


SUM, DIFFERENCE = tensor("sum", "FP32", A + B), tensor("difference", "FP32", A - B)
SUMS_ANSWER = {"model_name": "sums", "outputs": [SUM, DIFFERENCE]}


def metadata(model: Model) -> dict[str, Any]:
    def tensors(names: tuple[str, ...]) -> list[dict[str, Any]]:
        return [{"name": name, "datatype": model.datatype, "shape": [-1, model.width]} for name in names]

    return {
        "name": model.name,
        "platform": str,
        "versions": Where("a list of digits", lambda value: bool(value) and all(map(str.isdigit, value))),
        "inputs": tensors(model.inputs),
        "outputs": tensors(model.outputs),
    }


def infers(name: str, body: Any, answer: Any = SUMS_ANSWER, path: str = INFER) -> RestCase:
    return RestCase(f"rest.infer.{name}", path, body=body, answer=answer)


def refuses(name: str, body: Any, status: int = 400, path: str = INFER, method: str = "POST") -> RestCase:
    return RestCase(f"rest.error.{name}", path, method, body=body, status=status, answer=ERROR)


SERVER = [
    RestCase("rest.live", "/v2/health/live", "GET"),
    RestCase("rest.live.body", "/v2/health/live", "GET", answer={"live": True}),
    RestCase("rest.ready", "/v2/health/ready", "GET"),
    RestCase("rest.ready.body", "/v2/health/ready", "GET", answer={"ready": True}),
    RestCase(
        "rest.server",
        "/v2",
        "GET",
        answer={
            "name": str,
            "version": str,
            "extensions": Where("a list", lambda value: isinstance(value, list)),
        },
    ),
    RestCase("rest.server.slash", "/v2/", "GET", answer={"name": str}),
    RestCase("rest.model", "/v2/models/sums", "GET", answer=metadata(SUMS)),
    RestCase("rest.model.version", "/v2/models/sums/versions/1", "GET", answer=metadata(SUMS)),
    RestCase("rest.model.ready", "/v2/models/sums/ready", "GET"),
    RestCase("rest.model.ready.body", "/v2/models/sums/ready", "GET", answer={"name": "sums", "ready": True}),
    RestCase("rest.model.ready.version", "/v2/models/sums/versions/1/ready", "GET"),
    RestCase(
        "rest.config",
        "/v2/models/sums/config",
        "GET",
        answer={"name": "sums", "input": Where("two", lambda value: len(value) == 2), "max_batch_size": int},
    ),
    RestCase(
        "rest.statistics",
        "/v2/models/sums/stats",
        "GET",
        answer={
            "model_stats": [{"name": "sums", "version": "1", "inference_stats": dict, "batch_stats": list}]
        },
    ),
    RestCase(
        "rest.index",
        "/v2/repository/index",
        body={"ready": True},
        answer=Where(
            "the ready models",
            lambda value: (
                {"same-fp32", "sums"} <= {item["name"] for item in value if item["state"] == "READY"}
            ),
        ),
    ),
]

INFERENCE = [
    *(
        infers(
            model.datatype,
            {"inputs": [entry("x", model.datatype, values(model.datatype))]},
            {"outputs": [tensor("y", model.datatype, values(model.datatype))]},
            f"/v2/models/{model.name}/infer",
        )
        for model in SAME.values()
        if model.datatype != "FP16"
    ),
    infers("nested", sums()),
    infers("flat", sums(flat=True)),
    infers("id", sums(id="seven"), {**SUMS_ANSWER, "id": "seven"}),
    infers("no-id", sums(), {**SUMS_ANSWER, "id": ABSENT}),
    infers("version", sums(), {**SUMS_ANSWER, "model_version": "1"}, "/v2/models/sums/versions/1/infer"),
    infers("version-named", sums(), {**SUMS_ANSWER, "model_version": "1"}),
    infers("inputs-in-any-order", {"inputs": sums()["inputs"][::-1]}),
    infers(
        "requested-outputs",
        sums(outputs=[{"name": "difference"}, {"name": "sum"}]),
        {"outputs": [DIFFERENCE, SUM]},
    ),
    infers("one-output", sums(outputs=[{"name": "difference"}]), {"outputs": [DIFFERENCE]}),
    infers("unknown-parameter", sums(parameters={"mine": "a", "number": 3, "flag": True})),
    infers("unknown-key", sums(mine={"any": [1]})),
    infers(
        "percent-escaped-name",
        {"inputs": [entry("x", "FP32", A.reshape(-1)[:3].reshape(1, 3))]},
        {"model_name": "same-fp32"},
        "/v2/models/same%2Dfp32/infer",
    ),
    infers(
        "classification",
        sums(outputs=[{"name": "sum", "parameters": {"classification": 1}}]),
        {
            "outputs": [
                {"name": "sum", "datatype": "BYTES", "shape": [2, 1], "data": ["2.000000:1", "4.000000:1"]}
            ]
        },
    ),
    RestCase("rest.infer.content-type", INFER, body=sums(), answer_type="application/json"),
    RestCase(
        "rest.infer.no-content-type",
        INFER,
        body=b'{"inputs":['
        + b",".join(
            [
                b'{"name":"a","shape":[1,2],"datatype":"FP32","data":[1,2]}',
                b'{"name":"b","shape":[1,2],"datatype":"FP32","data":[3,4]}',
            ]
        )
        + b"]}",
        answer={
            "outputs": [
                tensor("sum", "FP32", np.array([[4, 6]])),
                tensor("difference", "FP32", np.array([[-2, -2]])),
            ]
        },
    ),
]

ERRORS = [
    refuses("unknown-model", sums(), 404, "/v2/models/absent/infer"),
    refuses("unknown-version", sums(), 404, "/v2/models/sums/versions/99/infer"),
    refuses("metadata-unknown-model", None, 404, "/v2/models/absent", "GET"),
    refuses("metadata-unknown-version", None, 404, "/v2/models/sums/versions/99", "GET"),
    RestCase("rest.error.ready-unknown-model", "/v2/models/absent/ready", "GET", status=404),
    refuses("unknown-path", None, 404, "/v2/absent", "GET"),
    refuses("method", None, 405, INFER, "GET"),
    refuses("cut-json", b'{"inputs": ['),
    refuses("empty-body", b""),
    refuses("not-an-object", []),
    refuses("no-inputs", {}),
    refuses("missing-input", {"inputs": sums()["inputs"][:1]}),
    refuses("unknown-input", wrong(name="c")),
    refuses("input-twice", {"inputs": sums()["inputs"] + sums()["inputs"][:1]}),
    refuses("no-name", wrong(name=None)),
    refuses("no-shape", wrong(shape=None)),
    refuses("no-datatype", wrong(datatype=None)),
    refuses("no-data", wrong(data=None)),
    refuses("other-datatype", wrong(datatype="FP64")),
    refuses("unknown-datatype", wrong(datatype="FP33")),
    refuses("rank", wrong(shape=[4])),
    refuses("dimension", wrong(shape=[1, 4])),
    refuses("fewer-values", wrong(data=[1, 2, 3])),
    refuses("more-values", wrong(data=[1, 2, 3, 4, 5])),
    refuses("negative-dimension", wrong(shape=[-2, -2])),
    refuses("uneven-values", wrong(data=[[1, 2], [3]])),
    refuses("text-for-numbers", wrong(data=["1", "2", "3", "4"])),
    refuses("other-rows", {"inputs": [entry("a", "FP32", A), entry("b", "FP32", B[:1])]}),
    refuses("unknown-output", sums(outputs=[{"name": "product"}])),
    refuses(
        "out-of-range",
        {"inputs": [entry("x", "INT8", np.array([[1, 2, 300]]))]},
        path="/v2/models/same-int8/infer",
    ),
    refuses(
        "fraction-for-integers",
        {"inputs": [entry("x", "INT64", np.array([[1, 2, 0.5]]))]},
        path="/v2/models/same-int64/infer",
    ),
    # FP16 has no form in JSON
    refuses(
        "fp16-in-json", {"inputs": [entry("x", "FP16", values("FP16"))]}, path="/v2/models/same-fp16/infer"
    ),
]

CASES = [*SERVER, *INFERENCE, *ERRORS]
