"""REST: the extension for binary tensors, and compressed requests."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

from tests.conformance.models import SAME, values
from tests.conformance.pattern import ABSENT, ERROR
from tests.conformance.rest_case import LENGTH_HEADER, RestCase
from tests.conformance.rest_cases import DIFFERENCE, INFER, SUM, SUMS_ANSWER, A, B, entry, sums

SIZE = A.nbytes
ONE_ROW = values("FP32")[:1].tobytes()
ALL_BINARY = {"binary_data_output": True}


def binary_entry(name: str, array: Any, datatype: str = "FP32", size: int | None = None) -> dict[str, Any]:
    parameters = {"binary_data_size": array.nbytes if size is None else size}
    return entry(name, datatype, array, data=None, parameters=parameters)


def binary_sums(**more: Any) -> dict[str, Any]:
    return {"inputs": [binary_entry("a", A), binary_entry("b", B)], **more}


def binary_output(name: str, size: int = SIZE) -> dict[str, Any]:
    """The pattern of an output whose bytes follow."""
    return {"name": name, "parameters": {"binary_data_size": size}, "data": ABSENT}


BOTH = A.tobytes() + B.tobytes()
SUM_BYTES, DIFFERENCE_BYTES = (A + B).tobytes(), (A - B).tobytes()


def refuses(
    name: str, body: Any, tensors: bytes, headers: dict[str, str] | None = None, status: int = 400
) -> RestCase:
    return RestCase(
        f"rest.binary.error.{name}",
        INFER,
        body=body,
        tensors=tensors,
        headers=headers or {},
        status=status,
        answer=ERROR,
    )


def compressed(
    name: str, encoding: str, data: bytes, status: int = 200, answer: Any = SUMS_ANSWER
) -> RestCase:
    return RestCase(
        f"rest.encoding.{name}",
        INFER,
        body=data,
        headers={"Content-Encoding": encoding, "Content-Type": "application/json"},
        status=status,
        answer=answer,
    )


TEXT = json.dumps(sums()).encode()

CASES = [
    *(
        RestCase(
            f"rest.binary.{model.datatype}",
            f"/v2/models/{model.name}/infer",
            body={
                "inputs": [binary_entry("x", values(model.datatype), model.datatype)],
                "parameters": ALL_BINARY,
            },
            tensors=values(model.datatype).tobytes(),
            answer={
                "outputs": [
                    {
                        **binary_output("y", values(model.datatype).nbytes),
                        "datatype": model.datatype,
                        "shape": [2, 3],
                    }
                ]
            },
            answer_tensors=values(model.datatype).tobytes(),
        )
        for model in SAME.values()
    ),
    RestCase("rest.binary.inputs", INFER, body=binary_sums(), tensors=BOTH, answer=SUMS_ANSWER),
    RestCase(
        "rest.binary.outputs",
        INFER,
        body=sums(parameters=ALL_BINARY),
        answer={"outputs": [binary_output("sum"), binary_output("difference")]},
        answer_tensors=SUM_BYTES + DIFFERENCE_BYTES,
    ),
    RestCase(
        "rest.binary.content-type",
        INFER,
        body=sums(parameters=ALL_BINARY),
        answer_type="application/octet-stream",
    ),
    RestCase(
        "rest.binary.one-output",
        INFER,
        body=sums(outputs=[{"name": "sum"}, {"name": "difference", "parameters": {"binary_data": True}}]),
        answer={"outputs": [SUM, binary_output("difference")]},
        answer_tensors=DIFFERENCE_BYTES,
    ),
    RestCase(
        "rest.binary.all-but-one-output",
        INFER,
        body=sums(
            parameters=ALL_BINARY,
            outputs=[{"name": "difference", "parameters": {"binary_data": False}}, {"name": "sum"}],
        ),
        answer={"outputs": [DIFFERENCE, binary_output("sum")]},
        answer_tensors=SUM_BYTES,
    ),
    RestCase(
        "rest.binary.one-input",
        INFER,
        body={"inputs": [entry("a", "FP32", A), binary_entry("b", B)]},
        tensors=B.tobytes(),
        answer=SUMS_ANSWER,
    ),
    RestCase(
        "rest.binary.raw",
        "/v2/models/same-fp32/infer",
        body=ONE_ROW,
        headers={LENGTH_HEADER: "0"},
        answer={"outputs": [{**binary_output("y", len(ONE_ROW)), "shape": [1, 3]}]},
        answer_tensors=ONE_ROW,
    ),
    refuses("size", {"inputs": [binary_entry("a", A, size=12), binary_entry("b", B)]}, BOTH),
    refuses("missing-bytes", binary_sums(), BOTH[:-4]),
    refuses("left-over-bytes", binary_sums(), BOTH + b"more"),
    refuses("header-beyond-body", binary_sums(), BOTH, {LENGTH_HEADER: "100000"}),
    refuses("header-not-a-number", binary_sums(), BOTH, {LENGTH_HEADER: "many"}),
    refuses("data-and-size", {"inputs": [binary_entry("a", A) | {"data": [1]}, binary_entry("b", B)]}, BOTH),
    compressed("gzip", "gzip", gzip.compress(TEXT)),
    compressed("deflate", "deflate", zlib.compress(TEXT)),
    compressed("unknown", "br", TEXT, 415, ERROR),
    compressed("damaged", "gzip", b"no gzip at all", 400, ERROR),
]
