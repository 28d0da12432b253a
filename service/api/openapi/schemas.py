"""JSON schemas of request and response bodies, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from turnpike.common.columns import KINDS
from turnpike.common.datatypes import BYTES, DATATYPES
from turnpike.service.api.openapi.operation import ref

Schema = dict[str, Any]


def record(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """An object with these fields, which may have others too."""
    schema: Schema = {"type": "object", "properties": properties}
    return schema | {"required": list(required)} if required else schema


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


STRING: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
INTEGER: Schema = {"type": "integer"}
NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
BOOLEAN: Schema = {"type": "boolean"}
ANYTHING: Schema = {}
OBJECT: Schema = {"type": "object"}
SHAPE = array({"type": "integer", "minimum": 0})
PARAMETERS: Schema = {
    "type": "object",
    "additionalProperties": {"anyOf": [STRING, NUMBER, BOOLEAN]},
}
MODEL_RESULT = {
    "model_name": STRING,
    "model_version": STRING,
    "id": STRING,
    "outputs": array(ref("OutputTensor")),
}
DURATION = record(("count", "ns"), count=INTEGER, ns=INTEGER)
INFER_FIELDS = {
    "id": STRING,
    "parameters": PARAMETERS,
    "inputs": array(ref("InputTensor")),
    "outputs": array(ref("WantedOutput")),
}
# gates by name, or the number of a layer for all of its gates
GATES = array({"anyOf": [STRING, {"type": "integer", "minimum": 0}]})
MOVE_FIELDS = {"close": GATES, "open": GATES, "shift": {"type": "object", "additionalProperties": NUMBER}}

SCHEMAS: dict[str, Schema] = {
    "Error": record(("error",), error=STRING | {"description": "What was expected, what came, and where."}),
    "Health": record(
        ("live", "ready"),
        live=BOOLEAN,
        ready=BOOLEAN,
        reason=STRING | {"description": "Why the server is not ready."},
    ),
    "Server": record(
        ("name", "version", "extensions"), name=STRING, version=STRING, extensions=array(STRING)
    ),
    "Models": record(("models",), models=array(STRING)),
    "Ready": record(("name", "ready"), name=STRING, ready=BOOLEAN),
    "TensorMetadata": record(
        ("name", "datatype", "shape"),
        name=STRING,
        datatype=STRING,
        shape=array(INTEGER) | {"description": "-1 for a size that may vary."},
        parameters=PARAMETERS
        | {"description": "`text` is true if the input also takes texts: BYTES of shape [texts]."},
    ),
    "Model": record(
        ("name", "versions", "platform", "inputs", "outputs"),
        name=STRING,
        versions=array(STRING),
        platform=STRING,
        inputs=array(ref("TensorMetadata")),
        outputs=array(ref("TensorMetadata")),
    ),
    "Config": record(
        ("name", "platform", "max_batch_size"), name=STRING, platform=STRING, max_batch_size=INTEGER
    ),
    "Statistics": record(
        ("model_stats",),
        model_stats=array(
            record(
                ("name", "version", "inference_stats", "batch_stats"),
                name=STRING,
                version=STRING,
                last_inference=INTEGER | {"description": "Milliseconds since 1970."},
                inference_count=INTEGER | {"description": "Rows."},
                execution_count=INTEGER | {"description": "Runs."},
                inference_stats={"type": "object", "additionalProperties": DURATION},
                batch_stats=array(OBJECT),
            )
        ),
    ),
    "IndexRequest": record(ready=BOOLEAN | {"description": "Only versions that are served now."}),
    "Index": array(
        record(
            ("name", "version", "state", "reason"),
            name=STRING,
            version=STRING,
            state={"type": "string", "enum": ["READY", "LOADING", "UNAVAILABLE"]},
            reason=STRING,
        )
    ),
    "InputTensor": record(
        ("name", "shape", "datatype"),
        name=STRING,
        shape=SHAPE,
        datatype={"type": "string", "enum": [*DATATYPES.values(), BYTES]},
        parameters=PARAMETERS,
        data=array(ANYTHING) | {"description": "Row-major, flat or nested. Missing if the data is binary."},
    ),
    "WantedOutput": record(("name",), name=STRING, parameters=PARAMETERS),
    "OutputTensor": record(
        ("name", "shape", "datatype"),
        name=STRING,
        shape=SHAPE,
        datatype=STRING,
        parameters=PARAMETERS,
        data=array(ANYTHING),
    ),
    "InferRequest": record(("inputs",), **INFER_FIELDS),
    "InferAnswer": record(("model_name", "model_version", "outputs"), **MODEL_RESULT),
    "PredictRequest": record(
        ("instances",),
        instances=array(ANYTHING)
        | {"description": "Rows, texts, or for each row an object with one value per input or feature."},
    ),
    "PredictAnswer": record(
        ("predictions", "model", "version"),
        predictions=array(
            record(
                outputs=OBJECT | {"description": "The values of each output, by its name."},
                label=STRING | {"description": "The most probable label, if the model has labels."},
                probability=NUMBER,
                probabilities=OBJECT,
                value=NUMBER | {"description": "The predicted number, if the model predicts one."},
            )
        ),
        model=STRING,
        version=STRING,
        summary=OBJECT
        | {
            "description": "How the predictions compare with the column that is predicted, if a table in CSV "
            "has it: `target`, `rows`, and `accuracy`, or `r2` and `mae`."
        },
        warnings=array(
            record(
                ("row", "column", "value", "what"), row=INTEGER, column=STRING, value=ANYTHING, what=STRING
            )
        )
        | {"description": "Cells that the training did not have, at most 20. Missing if there are none."},
        more_warnings=INTEGER,
    ),
    "GatesRequest": record(("inputs",), **INFER_FIELDS, **MOVE_FIELDS),
    "GatesAnswer": record(
        ("model_name", "model_version", "outputs", "gates"),
        **MODEL_RESULT,
        gates=array(OBJECT) | {"description": "Statistics of T and of the carry for each gate."},
        route=ANYTHING,
        tensors=array(ref("OutputTensor")),
    ),
    "LesionRequest": record(
        ("inputs",),
        **INFER_FIELDS,
        **MOVE_FIELDS,
        curve=BOOLEAN | {"description": "Close each layer alone."},
    ),
    "LesionAnswer": record(
        ("model_name", "model_version", "outputs"),
        **MODEL_RESULT,
        lesion=OBJECT | {"description": "Which gates were changed, and the effect on each row."},
        lesioned=OBJECT | {"description": "The outputs with the changed gates."},
        curve=OBJECT | {"description": "The effect of closing each layer."},
    ),
    "LoadRequest": record(
        parameters={
            "type": "object",
            "maxProperties": 0,
            "description": "None: the model's files and configuration are those in the repository.",
        }
    ),
    "UnloadRequest": record(
        parameters={
            "type": "object",
            "properties": {
                "unload_dependents": {"description": "Has no effect: no model is a part of another."}
            },
            "additionalProperties": False,
        }
    ),
    "Change": record(warning=STRING | {"description": "Which worker hangs and misses the change."}),
    "Metrics": STRING,
    "Traffic": record(
        ("started", "moment_seconds", "history_seconds", "moments", "refused", "failed"),
        started=NUMBER | {"description": "Seconds since 1970."},
        moment_seconds=NUMBER,
        history_seconds=NUMBER,
        moments=array(
            record(
                ("at", "workers", "total", "models"),
                at=NUMBER | {"description": "Seconds since the service started."},
                workers=INTEGER,
                total=ref("Figures"),
                models={"type": "object", "additionalProperties": ref("Figures")},
            )
        ),
        refused=OBJECT | {"description": "Error responses since the start, by reason."},
        failed=OBJECT | {"description": "The same by `name/version` of a model."},
    ),
    "Figures": record(
        ("requests_per_s", "rows_per_s", "waiting"),
        requests_per_s=NUMBER,
        rows_per_s=NUMBER,
        p50_s=NUMBER_OR_NULL,
        p99_s=NUMBER_OR_NULL,
        mean_s=NUMBER_OR_NULL,
        rows_per_run=NUMBER_OR_NULL,
        waiting=INTEGER | {"description": "Requests in the queue."},
        queue_p99_s=NUMBER_OR_NULL,
        run_p50_s=NUMBER_OR_NULL,
        failed_per_s={"type": "object", "additionalProperties": NUMBER},
    ),
    "Profile": record(
        ("model_name", "model_version"),
        model_name=STRING,
        model_version=STRING,
        gates=array(OBJECT),
        profile={"type": ["object", "null"]},
        lesion={"type": ["object", "null"]},
        biases=OBJECT | {"description": "The bias of each unit by gate; null for a gate without a lever."},
    ),
    "Certificate": record(
        ("model_name", "model_version", "verified", "bytes", "digest", "batched", "samples", "gates"),
        model_name=STRING,
        model_version=STRING,
        verified=BOOLEAN
        | {"description": "Whether turnpike exported the file, and compared it with its network."},
        bytes=INTEGER,
        digest=STRING | {"description": "SHA-256 of the file."},
        batched=BOOLEAN,
        distribution={"enum": ["probabilities", "logits", None]},
        precision={"enum": ["fp32", "fp16", "int8", None], "description": "Precision of the file's weights."},
        device={"enum": ["cpu", "cuda", "openvino"], "description": "Where the model runs."},
        device_precision={
            "enum": ["fp32", "bf16"],
            "description": "Precision in which the device computes numbers that the file has in fp32.",
        },
        source={"type": ["string", "null"]},
        labels=array(STRING),
        picture={
            "type": ["object", "null"],
            "description": "How a picture becomes a row: its size, and the numbers of black and white.",
        },
        alphabet=STRING | {"description": "For networks that read characters: the character of each id."},
        text={
            "type": ["object", "null"],
            "description": "For networks that read characters: the input that takes texts, and its ids.",
        },
        features=array(
            record(
                (
                    "name",
                    "unit",
                    "low",
                    "high",
                    "mean",
                    "sd",
                    "kind",
                    "categories",
                    "date_format",
                    "decimal_comma",
                    "affix",
                    "blanks",
                ),
                name=STRING,
                unit=STRING,
                low=NUMBER,
                high=NUMBER,
                mean=NUMBER,
                sd=NUMBER | {"description": "Standard deviation."},
                kind={"enum": list(KINDS)},
                categories=array(STRING)
                | {"description": "The words of a category; none if they are not published."},
                date_format=STRING,
                decimal_comma=BOOLEAN,
                affix=STRING | {"description": "What stands before or behind each number."},
                blanks=BOOLEAN | {"description": "Whether cells may be blank."},
            )
        )
        | {"description": "For networks that read tables: the columns of their input."},
        batch_coupled=BOOLEAN,
        ranges=OBJECT | {"description": "The smallest and largest value of real rows, by input."},
        samples=INTEGER,
        gates=INTEGER,
        proved=BOOLEAN
        | {"description": "Whether it was decided to be the network's function of every input."},
        verdict={"type": ["string", "null"], "description": "What is proved, or why not, in a sentence."},
        identity={"type": ["object", "null"], "description": "The decision."},
        parity={
            "type": ["object", "null"],
            "description": "Rounding, as it was measured on batches of rows.",
        },
        variant={"type": ["object", "null"]},
        compression={"type": ["object", "null"]},
        tools=OBJECT,
        weights={"type": ["string", "null"]},
        random_weights=BOOLEAN,
    ),
    "Samples": record(
        ("model_name", "model_version", "samples"),
        model_name=STRING,
        model_version=STRING,
        samples=array(
            record(("label", "text", "inputs"), label=STRING, text=STRING, inputs=array(ref("InputTensor")))
        ),
    ),
    "Drift": record(
        ("model_name", "model_version", "rows", "layers"),
        model_name=STRING,
        model_version=STRING,
        rows=INTEGER,
        level={"enum": ["ok", "watch", "alarm", None]},
        worst={"type": ["string", "null"]},
        reason={"type": ["string", "null"], "description": "Why there is no index yet."},
        layers=array(OBJECT),
    ),
}
