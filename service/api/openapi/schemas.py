"""What bodies look like, in the words of the OpenAPI document."""

from __future__ import annotations

from typing import Any

from service.artifact.datatypes import DATATYPES

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """A schema of those below, by name."""
    return {"$ref": f"#/components/schemas/{name}"}


def record(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """An object with these fields; others may be there, too."""
    found: Schema = {"type": "object", "properties": properties}
    return found | {"required": list(required)} if required else found


def listed(items: Schema) -> Schema:
    return {"type": "array", "items": items}


TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
WHOLE: Schema = {"type": "integer"}
YES_NO: Schema = {"type": "boolean"}
ANYTHING: Schema = {}
OBJECT: Schema = {"type": "object"}
SHAPE = listed({"type": "integer", "minimum": 0})
PARAMETERS: Schema = {
    "type": "object",
    "additionalProperties": {"anyOf": [TEXT, NUMBER, YES_NO]},
}
MODEL_ANSWER = {"model_name": TEXT, "model_version": TEXT, "id": TEXT, "outputs": listed(ref("OutputTensor"))}
TIMES = record(("count", "ns"), count=WHOLE, ns=WHOLE)
INFER_FIELDS = {
    "id": TEXT,
    "parameters": PARAMETERS,
    "inputs": listed(ref("InputTensor")),
    "outputs": listed(ref("WantedOutput")),
}
# gates, by name or all of one layer by its number
GATES = listed({"anyOf": [TEXT, {"type": "integer", "minimum": 0}]})

SCHEMAS: dict[str, Schema] = {
    "Error": record(("error",), error=TEXT | {"description": "What was expected, what came, and where."}),
    "Health": record(("live", "ready"), live=YES_NO, ready=YES_NO),
    "Server": record(("name", "version", "extensions"), name=TEXT, version=TEXT, extensions=listed(TEXT)),
    "Models": record(("models",), models=listed(TEXT)),
    "Ready": record(("name", "ready"), name=TEXT, ready=YES_NO),
    "TensorMetadata": record(
        ("name", "datatype", "shape"),
        name=TEXT,
        datatype=TEXT,
        shape=listed(WHOLE) | {"description": "-1 where the size may vary."},
    ),
    "Model": record(
        ("name", "versions", "platform", "inputs", "outputs"),
        name=TEXT,
        versions=listed(TEXT),
        platform=TEXT,
        inputs=listed(ref("TensorMetadata")),
        outputs=listed(ref("TensorMetadata")),
    ),
    "Config": record(("name", "platform", "max_batch_size"), name=TEXT, platform=TEXT, max_batch_size=WHOLE),
    "Statistics": record(
        ("model_stats",),
        model_stats=listed(
            record(
                ("name", "version", "inference_stats", "batch_stats"),
                name=TEXT,
                version=TEXT,
                last_inference=WHOLE | {"description": "Milliseconds since 1970."},
                inference_count=WHOLE | {"description": "Rows."},
                execution_count=WHOLE | {"description": "Runs."},
                inference_stats={"type": "object", "additionalProperties": TIMES},
                batch_stats=listed(OBJECT),
            )
        ),
    ),
    "IndexRequest": record(ready=YES_NO | {"description": "Only what is served now."}),
    "Index": listed(
        record(
            ("name", "version", "state", "reason"),
            name=TEXT,
            version=TEXT,
            state={"type": "string", "enum": ["READY", "LOADING", "UNAVAILABLE"]},
            reason=TEXT,
        )
    ),
    "InputTensor": record(
        ("name", "shape", "datatype"),
        name=TEXT,
        shape=SHAPE,
        datatype={"type": "string", "enum": list(DATATYPES.values())},
        parameters=PARAMETERS,
        data=listed(ANYTHING) | {"description": "Row-major, flat or nested; left out where it is binary."},
    ),
    "WantedOutput": record(("name",), name=TEXT, parameters=PARAMETERS),
    "OutputTensor": record(
        ("name", "shape", "datatype"),
        name=TEXT,
        shape=SHAPE,
        datatype=TEXT,
        parameters=PARAMETERS,
        data=listed(ANYTHING),
    ),
    "InferRequest": record(("inputs",), **INFER_FIELDS),
    "InferAnswer": record(("model_name", "model_version", "outputs"), **MODEL_ANSWER),
    "PredictRequest": record(
        ("instances",), instances=listed(ANYTHING) | {"description": "Rows, or for each an object by input."}
    ),
    "PredictAnswer": record(
        ("predictions", "model", "version"), predictions=listed(ANYTHING), model=TEXT, version=TEXT
    ),
    "GatesAnswer": record(
        ("model_name", "model_version", "outputs", "gates"),
        **MODEL_ANSWER,
        gates=listed(OBJECT) | {"description": "For each gate the statistics of T and of what it carries."},
        route=ANYTHING,
        tensors=listed(ref("OutputTensor")),
    ),
    "LesionRequest": record(
        ("inputs",),
        **INFER_FIELDS,
        close=GATES,
        open=GATES,
        shift={"type": "object", "additionalProperties": NUMBER},
        curve=YES_NO | {"description": "Close each layer in its turn."},
    ),
    "LesionAnswer": record(
        ("model_name", "model_version", "outputs"),
        **MODEL_ANSWER,
        lesion=OBJECT | {"description": "What was moved, and what became of each row."},
        lesioned=OBJECT | {"description": "The outputs with gates moved."},
        curve=OBJECT | {"description": "For each layer what closing it did."},
    ),
    "Nothing": OBJECT,
    "Metrics": TEXT,
    "Profile": record(
        ("model_name", "model_version"),
        model_name=TEXT,
        model_version=TEXT,
        gates=listed(OBJECT),
        profile={"type": ["object", "null"]},
        lesion={"type": ["object", "null"]},
        biases=OBJECT | {"description": "By gate the bias of each unit; null where nobody may move it."},
    ),
    "Certificate": record(
        ("model_name", "model_version", "verified", "bytes", "digest", "batched", "samples", "gates"),
        model_name=TEXT,
        model_version=TEXT,
        verified=YES_NO | {"description": "Whether the file holds a proof of parity."},
        bytes=WHOLE,
        digest=TEXT | {"description": "SHA-256 of the file."},
        batched=YES_NO,
        distribution={"enum": ["probabilities", "logits", None]},
        precision={"enum": ["fp32", "fp16", "int8", None]},
        source={"type": ["string", "null"]},
        labels=listed(TEXT),
        alphabet=TEXT | {"description": "Of networks that read letters: id i stands for the i-th."},
        batch_coupled=YES_NO,
        ranges=OBJECT | {"description": "By input the least and the greatest value of real rows."},
        samples=WHOLE,
        gates=WHOLE,
        parity={"type": ["object", "null"]},
        variant={"type": ["object", "null"]},
        tools=OBJECT,
        weights={"type": ["string", "null"]},
    ),
    "Samples": record(
        ("model_name", "model_version", "samples"),
        model_name=TEXT,
        model_version=TEXT,
        samples=listed(record(("label", "inputs"), label=TEXT, inputs=listed(ref("InputTensor")))),
    ),
    "Drift": record(
        ("model_name", "model_version", "rows", "layers"),
        model_name=TEXT,
        model_version=TEXT,
        rows=WHOLE,
        level={"enum": ["ok", "watch", "alarm", None]},
        worst={"type": ["string", "null"]},
        reason={"type": ["string", "null"], "description": "Why there is no index yet."},
        layers=listed(OBJECT),
    ),
}
