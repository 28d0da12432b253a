"""gRPC: health, metadata, inference with raw and typed tensors, streams, and errors."""

from __future__ import annotations

from typing import Any

from tests.conformance.grpc_case import GrpcCase
from tests.conformance.models import SAME, SUMS, Array, Model, values
from tests.conformance.pattern import ABSENT, Numbers, Where
from tests.conformance.rest_cases import A, B

CONTENTS = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
INVALID, NOT_FOUND = "INVALID_ARGUMENT", "NOT_FOUND"


def entry(name: str, array: Array, datatype: str = "FP32", /, **changes: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(array.shape), **changes}


def typed(array: Array, datatype: str = "FP32") -> dict[str, Any]:
    return {CONTENTS[datatype]: array.ravel().tolist()}


def raw_request(datatype: str = "", **changes: Any) -> dict[str, Any]:
    """A request with raw tensors: for `same-TYPE`, or for both sums."""
    if datatype:
        array = values(datatype)
        name, inputs, raw = SAME[datatype].name, [entry("x", array, datatype)], [array.tobytes()]
    else:
        name, inputs, raw = "sums", [entry("a", A), entry("b", B)], [A.tobytes(), B.tobytes()]
    return {"model_name": name, "inputs": inputs, "raw_input_contents": raw, **changes}


def typed_request(datatype: str = "", **changes: Any) -> dict[str, Any]:
    """The same with typed tensors."""
    if datatype:
        array = values(datatype)
        name, inputs = SAME[datatype].name, [entry("x", array, datatype, contents=typed(array, datatype))]
    else:
        name = "sums"
        inputs = [entry("a", A, contents=typed(A)), entry("b", B, contents=typed(B))]
    return {"model_name": name, "inputs": inputs, **changes}


def wrong(**changes: Any) -> dict[str, Any]:
    """A typed request whose first input has these changes."""
    first, second = typed_request()["inputs"]
    return typed_request(inputs=[first | changes, second])


def raw_answer(*pairs: tuple[str, Array], datatype: str = "FP32", **more: Any) -> dict[str, Any]:
    outputs = [entry(name, array, datatype, contents=ABSENT) for name, array in pairs]
    return {"outputs": outputs, "raw_output_contents": [array.tobytes() for _, array in pairs], **more}


def typed_answer(*pairs: tuple[str, Array], datatype: str = "FP32", **more: Any) -> dict[str, Any]:
    outputs = [
        entry(name, array, datatype, contents={CONTENTS[datatype]: Numbers(array)}) for name, array in pairs
    ]
    return {"outputs": outputs, "raw_output_contents": ABSENT, **more}


BOTH = (("sum", A + B), ("difference", A - B))


def metadata(model: Model) -> dict[str, Any]:
    def tensors(names: tuple[str, ...]) -> list[dict[str, Any]]:
        return [{"name": name, "datatype": model.datatype, "shape": [-1, model.width]} for name in names]

    return {
        "name": model.name,
        "platform": str,
        "versions": Where("digits", lambda value: bool(value) and all(map(str.isdigit, value))),
        "inputs": tensors(model.inputs),
        "outputs": tensors(model.outputs),
    }


def infers(name: str, request: Any, answer: Any, **more: Any) -> GrpcCase:
    return GrpcCase(f"grpc.infer.{name}", "ModelInfer", request, answer=answer, **more)


def refuses(name: str, request: Any, code: str = INVALID, method: str = "ModelInfer") -> GrpcCase:
    return GrpcCase(f"grpc.error.{name}", method, request, code)


SERVER = [
    GrpcCase("grpc.live", "ServerLive", answer={"live": True}),
    GrpcCase("grpc.ready", "ServerReady", answer={"ready": True}),
    GrpcCase("grpc.server", "ServerMetadata", answer={"name": str, "version": str}),
    GrpcCase("grpc.model", "ModelMetadata", {"name": "sums"}, answer=metadata(SUMS)),
    GrpcCase("grpc.model.version", "ModelMetadata", {"name": "sums", "version": "1"}, answer=metadata(SUMS)),
    GrpcCase("grpc.model.ready", "ModelReady", {"name": "sums"}, answer={"ready": True}),
    GrpcCase(
        "grpc.model.ready.version", "ModelReady", {"name": "sums", "version": "1"}, answer={"ready": True}
    ),
    # as Triton answers; the protocol leaves it open
    GrpcCase("grpc.model.ready.absent", "ModelReady", {"name": "absent"}, answer={"ready": False}),
    GrpcCase(
        "grpc.index",
        "RepositoryIndex",
        {"ready": True},
        answer={
            "models": Where(
                "the ready models",
                lambda value: (
                    {"same-fp32", "sums"} <= {item["name"] for item in value if item["state"] == "READY"}
                ),
            )
        },
    ),
    GrpcCase(
        "grpc.config",
        "ModelConfig",
        {"name": "sums"},
        answer={"config": {"name": "sums", "input": Where("two", lambda value: len(value) == 2)}},
    ),
    GrpcCase(
        "grpc.statistics",
        "ModelStatistics",
        {"name": "sums"},
        answer={
            "model_stats": [
                {"name": "sums", "version": "1", "inference_stats": {"success": dict, "fail": dict}}
            ]
        },
    ),
    # an empty HealthCheckRequest, and the answer SERVING
    GrpcCase("grpc.health", "/grpc.health.v1.Health/Check", b"", answer=b"\x08\x01"),
]

INFERENCE = [
    *(
        infers(
            f"raw.{datatype}",
            raw_request(datatype),
            raw_answer(("y", values(datatype)), datatype=datatype, model_name=model.name),
        )
        for datatype, model in SAME.items()
    ),
    *(
        infers(
            f"typed.{datatype}",
            typed_request(datatype),
            typed_answer(("y", values(datatype)), datatype=datatype, model_name=SAME[datatype].name),
        )
        for datatype in CONTENTS
    ),
    infers("raw", raw_request(), raw_answer(*BOTH)),
    infers("typed", typed_request(), typed_answer(*BOTH)),
    infers("id", raw_request(id="seven"), raw_answer(*BOTH, id="seven")),
    infers("no-id", raw_request(), raw_answer(*BOTH, id=ABSENT)),
    infers("version", raw_request(model_version="1"), raw_answer(*BOTH, model_version="1")),
    infers("version-named", raw_request(), raw_answer(*BOTH, model_version="1")),
    infers(
        "inputs-in-any-order",
        raw_request(inputs=[entry("b", B), entry("a", A)], raw_input_contents=[B.tobytes(), A.tobytes()]),
        raw_answer(*BOTH),
    ),
    infers(
        "requested-outputs",
        raw_request(outputs=[{"name": "difference"}, {"name": "sum"}]),
        raw_answer(*BOTH[::-1]),
    ),
    infers("one-output", raw_request(outputs=[{"name": "difference"}]), raw_answer(BOTH[1])),
    infers(
        "unknown-parameter",
        raw_request(parameters={"mine": {"string_param": "a"}, "number": {"int64_param": 3}}),
        raw_answer(*BOTH),
    ),
    infers(
        "classification",
        raw_request(outputs=[{"name": "sum", "parameters": {"classification": {"int64_param": 1}}}]),
        {
            "outputs": [{"name": "sum", "datatype": "BYTES", "shape": [2, 1]}],
            # each string has its length before it
            "raw_output_contents": [b"\x0a\0\0\x002.000000:1\x0a\0\0\x004.000000:1"],
        },
    ),
    # field 1000, with two bytes
    infers("unknown-field", raw_request(), raw_answer(*BOTH), more=b"\xc2\x3e\x02ab"),
    infers("gzip", raw_request(), raw_answer(*BOTH), compression="Gzip"),
    infers("deflate", raw_request(), raw_answer(*BOTH), compression="Deflate"),
]

STREAMS = [
    GrpcCase(
        "grpc.stream",
        "ModelStreamInfer",
        [raw_request(id=f"n{number}") for number in range(3)],
        answer=[
            {"error_message": ABSENT, "infer_response": raw_answer(*BOTH, id=f"n{number}")}
            for number in range(3)
        ],
    ),
    GrpcCase(
        "grpc.stream.error",
        "ModelStreamInfer",
        [raw_request(), raw_request(model_name="absent"), raw_request()],
        answer=[
            {"infer_response": raw_answer(*BOTH)},
            {"error_message": str},
            {"infer_response": raw_answer(*BOTH)},
        ],
    ),
]

ERRORS = [
    refuses("unknown-model", raw_request(model_name="absent"), NOT_FOUND),
    refuses("unknown-version", raw_request(model_version="99"), NOT_FOUND),
    refuses("metadata-unknown-model", {"name": "absent"}, NOT_FOUND, "ModelMetadata"),
    refuses("metadata-unknown-version", {"name": "sums", "version": "99"}, NOT_FOUND, "ModelMetadata"),
    refuses("unknown-method", b"", "UNIMPLEMENTED", "/inference.GRPCInferenceService/Absent"),
    refuses("unknown-service", b"", "UNIMPLEMENTED", "/absent.Service/Method"),
    refuses("no-inputs", {"model_name": "sums"}),
    refuses("missing-input", typed_request(inputs=typed_request()["inputs"][:1])),
    refuses("unknown-input", wrong(name="c")),
    refuses("input-twice", typed_request(inputs=[typed_request()["inputs"][0]] * 2)),
    refuses("no-datatype", wrong(datatype="")),
    refuses("other-datatype", wrong(datatype="FP64")),
    refuses("rank", wrong(shape=[4])),
    refuses("dimension", wrong(shape=[1, 4])),
    refuses("negative-dimension", wrong(shape=[-2, -2])),
    refuses("fewer-values", wrong(contents={"fp32_contents": [1, 2, 3]})),
    refuses("more-values", wrong(contents={"fp32_contents": [1, 2, 3, 4, 5]})),
    refuses("no-values", wrong(contents={})),
    refuses("other-contents", wrong(contents={"int_contents": [1, 2, 3, 4]})),
    refuses("raw-and-contents", typed_request(raw_input_contents=[A.tobytes(), B.tobytes()])),
    refuses("fewer-raw-tensors", raw_request(raw_input_contents=[A.tobytes()])),
    refuses("more-raw-tensors", raw_request(raw_input_contents=[A.tobytes(), B.tobytes(), b""])),
    refuses("raw-size", raw_request(raw_input_contents=[A.tobytes()[:-4], B.tobytes()])),
    refuses("unknown-output", raw_request(outputs=[{"name": "product"}])),
    refuses(
        "out-of-range",
        typed_request("INT8")
        | {"inputs": [entry("x", values("INT8"), "INT8", contents={"int_contents": [1, 2, 3, 4, 5, 300]})]},
    ),
    # FP16 has no typed contents
    refuses(
        "fp16-typed",
        {
            "model_name": "same-fp16",
            "inputs": [entry("x", values("FP16"), "FP16", contents={"fp32_contents": [1.0] * 6})],
        },
    ),
]

CASES = [*SERVER, *INFERENCE, *STREAMS, *ERRORS]
