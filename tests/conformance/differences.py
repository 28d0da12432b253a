"""Where other servers are known to differ from the suite. docs/protocol.md lists the same differences."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.conformance.suite import NAMES


@dataclass(frozen=True)
class Difference:
    """What servers do instead, and the cases that show it, by the name of the server; * matches any text."""

    text: str
    triton: tuple[str, ...] = ()
    kserve: tuple[str, ...] = ()
    mlserver: tuple[str, ...] = ()


# of the first model in a server of Python; a runtime may check more
MODEL_CHECKS = (
    "rest.error.missing-input",
    "rest.error.unknown-input",
    "rest.error.input-twice",
    "rest.error.other-datatype",
    "rest.error.rank",
    "rest.error.dimension",
    "rest.error.fewer-values",
    "rest.error.more-values",
    "rest.error.negative-dimension",
    "rest.error.uneven-values",
    "rest.error.text-for-numbers",
    "rest.error.other-rows",
    "rest.error.out-of-range",
    "rest.error.fraction-for-integers",
    "grpc.error.no-inputs",
    "grpc.error.missing-input",
    "grpc.error.unknown-input",
    "grpc.error.input-twice",
    "grpc.error.other-datatype",
    "grpc.error.rank",
    "grpc.error.dimension",
    "grpc.error.negative-dimension",
    "grpc.error.fewer-values",
    "grpc.error.more-values",
    "grpc.error.no-values",
    "grpc.error.other-contents",
    "grpc.error.raw-size",
    "grpc.error.unknown-output",
    "grpc.error.out-of-range",
    "grpc.error.fp16-typed",
)
# what FastAPI refuses before the server sees it
FASTAPI_CHECKS = (
    "rest.error.unknown-path",
    "rest.error.method",
    "rest.error.empty-body",
    "rest.error.not-an-object",
    "rest.error.no-inputs",
    "rest.error.no-name",
    "rest.error.no-shape",
    "rest.error.no-datatype",
    "rest.error.no-data",
    "rest.encoding.damaged",
)

DIFFERENCES = (
    Difference(
        "leaves the checks of inputs and outputs to the model, and answers 500 or `INTERNAL`, or runs it",
        kserve=MODEL_CHECKS,
        mlserver=(
            *MODEL_CHECKS,
            "rest.error.unknown-output",
            "grpc.error.no-datatype",
            "grpc.error.raw-and-contents",
            "grpc.error.fewer-raw-tensors",
            "grpc.error.more-raw-tensors",
        ),
    ),
    Difference(
        "answers 422 to JSON of a wrong form, and errors have the key `detail`",
        kserve=FASTAPI_CHECKS,
        mlserver=(*FASTAPI_CHECKS, "rest.error.cut-json", "rest.error.unknown-datatype"),
    ),
    Difference(
        "makes an id for a request that has none",
        kserve=("rest.infer.no-id", "grpc.infer.no-id"),
        mlserver=("rest.infer.no-id",),
    ),
    Difference(
        "knows only `/v2`, and not `/v2/`",
        triton=("rest.server.slash",),
        kserve=("rest.server.slash",),
        mlserver=("rest.server.slash",),
    ),
    Difference(
        "answers 500 to JSON of a wrong form, and to values of a wrong number or kind",
        triton=(
            "rest.error.cut-json",
            "rest.error.not-an-object",
            "rest.error.no-inputs",
            "rest.error.no-name",
            "rest.error.no-shape",
            "rest.error.no-datatype",
            "rest.error.fewer-values",
            "rest.error.more-values",
            "rest.error.negative-dimension",
            "rest.error.uneven-values",
            "rest.error.text-for-numbers",
            "rest.error.fraction-for-integers",
        ),
    ),
    Difference(
        "takes numbers that are out of range modulo the size of the datatype",
        triton=("rest.error.out-of-range", "grpc.error.out-of-range"),
    ),
    Difference(
        "answers over gRPC with raw tensors, whatever the request has",
        triton=("grpc.infer.typed", "grpc.infer.typed.*"),
    ),
    Difference(
        "returns outputs in the order of the model",
        triton=("rest.infer.requested-outputs", "grpc.infer.requested-outputs"),
    ),
    Difference("decodes no escapes in the names of models", triton=("rest.infer.percent-escaped-name",)),
    Difference(
        "answers 400 to the readiness of an unknown model, and 501 to an unknown `Content-Encoding`",
        triton=("rest.error.ready-unknown-model", "rest.encoding.unknown"),
    ),
    Difference("ignores raw tensors beyond those of the inputs", triton=("grpc.error.more-raw-tensors",)),
    Difference(
        "answers ModelReady of an unknown model with an error",
        kserve=("grpc.model.ready.absent",),
        mlserver=("grpc.model.ready.absent",),
    ),
    Difference(
        "has no configuration and no statistics",
        kserve=("*.config", "*.statistics"),
        mlserver=("*.config", "*.statistics"),
    ),
    Difference("has no health checks of gRPC", kserve=("grpc.health",), mlserver=("grpc.health",)),
    Difference(
        "ignores `classification`",
        kserve=("*.infer.classification",),
        mlserver=("*.infer.classification",),
    ),
    Difference("has no index of the repository", kserve=("rest.index", "grpc.index")),
    Difference("writes the state `READY` as `State.READY` over gRPC", mlserver=("grpc.index",)),
    Difference("has no streams", kserve=("grpc.stream", "grpc.stream.error")),
    Difference(
        "streams ModelInferResponse, without the message around it",
        mlserver=("grpc.stream", "grpc.stream.error"),
    ),
    Difference(
        "knows no versions: it answers 501 over REST, and ignores them over gRPC",
        kserve=(
            "rest.model",
            "rest.model.version",
            "rest.model.ready.version",
            "rest.infer.version",
            "rest.infer.version-named",
            "rest.error.unknown-version",
            "rest.error.metadata-unknown-version",
            "grpc.infer.version",
            "grpc.infer.version-named",
            "grpc.error.unknown-version",
            "grpc.error.metadata-unknown-version",
        ),
    ),
    Difference("names no platform over gRPC", kserve=("grpc.model", "grpc.model.version")),
    Difference(
        "returns all outputs over gRPC, whatever is requested",
        kserve=("grpc.infer.requested-outputs", "grpc.infer.one-output"),
    ),
    Difference(
        "has no bodies in the answers of health",
        triton=("rest.live.body", "rest.ready.body", "rest.model.ready.body"),
        mlserver=("rest.live.body", "rest.ready.body", "rest.model.ready.body"),
    ),
    Difference("has no extension for binary tensors", mlserver=("rest.binary.*",)),
    Difference("accepts FP16 in JSON", mlserver=("rest.error.fp16-in-json",)),
    Difference(
        "sends binary tensors without `Content-Type`, and has no raw requests",
        kserve=("rest.binary.content-type", "rest.binary.raw"),
    ),
    Difference(
        "forgets `binary_data_output` for outputs that are requested by name",
        triton=("rest.binary.all-but-one-output",),
        kserve=("rest.binary.all-but-one-output",),
    ),
    Difference(
        "answers 500 to binary tensors of a wrong size, or ignores the rest",
        kserve=(
            "rest.binary.error.size",
            "rest.binary.error.missing-bytes",
            "rest.binary.error.left-over-bytes",
            "rest.binary.error.header-not-a-number",
            "rest.binary.error.data-and-size",
        ),
    ),
    Difference("refuses JSON without `Content-Type`", kserve=("rest.infer.no-content-type",)),
    Difference(
        "reads only some compressed requests, or none, and ignores an unknown `Content-Encoding`",
        kserve=("rest.encoding.gzip", "rest.encoding.deflate", "rest.encoding.unknown"),
        mlserver=("rest.encoding.deflate", "rest.encoding.unknown"),
    ),
)


def known(server: str) -> set[str]:
    """The names of all cases in which a server is known to differ: `triton`, `kserve` or `mlserver`."""
    patterns = [pattern for one in DIFFERENCES for pattern in getattr(one, server)]
    return {name for name in NAMES for pattern in patterns if fnmatchcase(name, pattern)}
