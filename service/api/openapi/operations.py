"""What each route asks for and answers, for the OpenAPI document; examples fit the bundled digits model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from service.api.openapi.schemas import Schema

# a handwritten 2, as the bundled model was taught to read: 8 x 8 pixels from 0 to 16
DIGIT = (
    0, 0, 0, 4, 15, 12, 0, 0,
    0, 0, 3, 16, 15, 14, 0, 0,
    0, 0, 8, 13, 8, 16, 0, 0,
    0, 0, 1, 6, 15, 11, 0, 0,
    0, 1, 8, 13, 15, 1, 0, 0,
    0, 9, 16, 16, 5, 0, 0, 0,
    0, 3, 13, 16, 16, 11, 5, 0,
    0, 0, 0, 3, 11, 16, 9, 0,
)  # fmt: skip
TENSORS = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": list(DIGIT)}]}

OIP = "Open Inference Protocol"
GATES = "Gates"
FILE = "Model file"

HOW_BINARY = (
    "\n\nTensors may also come as raw bytes: the JSON first, its length in the header "
    "`Inference-Header-Content-Length`, then the bytes of each input that says how many they are in its "
    "parameter `binary_data_size`; little-endian, row-major. Outputs are answered so where the request's "
    "parameter `binary_data_output`, or an output's `binary_data`, is true."
)
HEADER: Schema = {
    "name": "Inference-Header-Content-Length",
    "in": "header",
    "required": False,
    "description": "How many bytes of the body are JSON; 0 for a body that is one raw tensor.",
    "schema": {"type": "integer", "minimum": 0},
}
TIMEOUT: Schema = {
    "name": "X-Request-Timeout-Ms",
    "in": "header",
    "required": False,
    "description": "How long the request may wait for its run.",
    "schema": {"type": "integer", "minimum": 1, "maximum": 9_999_999_999},
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One verb of one route. `asks` and `answers` name schemas; `runs` where a model is run for it."""

    answers: str
    summary: str = ""
    tag: str = ""
    description: str = ""
    asks: str | None = None
    must_ask: bool = True
    binary: bool = False
    runs: bool = False
    # a 503 of its own, of the same form as its 200
    also_unready: bool = False
    examples: dict[str, Any] = field(default_factory=dict)
    parameters: tuple[Schema, ...] = ()
    media: str = "application/json"


# by verb and path, of which `/versions/{version}` may be left out
OPERATIONS: dict[tuple[str, str], Operation] = {
    ("get", "/v2"): Operation("Server"),
    ("get", "/v2/health/live"): Operation("Health"),
    ("get", "/v2/health/ready"): Operation("Health", also_unready=True),
    ("get", "/v2/models"): Operation("Models"),
    ("get", "/v2/models/stats"): Operation("Statistics"),
    ("get", "/v2/models/{model}"): Operation("Model"),
    ("get", "/v2/models/{model}/ready"): Operation("Ready", also_unready=True),
    ("get", "/v2/models/{model}/config"): Operation("Config"),
    ("get", "/v2/models/{model}/stats"): Operation("Statistics"),
    ("get", "/metrics"): Operation("Metrics", media="text/plain"),
    ("get", "/v1/models"): Operation("Models"),
    ("get", "/v1/models/{model}"): Operation("Ready"),
    ("post", "/v2/repository/index"): Operation("Index", asks="IndexRequest", must_ask=False),
    ("post", "/v2/repository/models/{model}/load"): Operation("Nothing", asks="Nothing", must_ask=False),
    ("post", "/v2/repository/models/{model}/unload"): Operation("Nothing", asks="Nothing", must_ask=False),
    ("post", "/v2/models/{model}/infer"): Operation(
        "InferAnswer",
        "Run a model",
        OIP,
        "Tensors in, tensors out." + HOW_BINARY,
        asks="InferRequest",
        binary=True,
        runs=True,
        parameters=(HEADER, TIMEOUT),
        examples={
            "digit": {"summary": "One handwritten digit", "value": TENSORS},
            "classes": {
                "summary": "Its three best classes",
                "value": TENSORS | {"outputs": [{"name": "output", "parameters": {"classification": 3}}]},
            },
            "gate": {
                "summary": "A gate, asked for by name",
                "value": TENSORS | {"outputs": [{"name": "layer00.transform_gate"}]},
            },
        },
    ),
    ("post", "/v1/models/{model}:predict"): Operation(
        "PredictAnswer",
        "Run a model on rows",
        "Predict",
        "Rows in, predictions out, with labels and probabilities where the model has labels.",
        asks="PredictRequest",
        runs=True,
        parameters=(TIMEOUT,),
        examples={"digit": {"summary": "One handwritten digit", "value": {"instances": [list(DIGIT)]}}},
    ),
    ("post", "/v2/models/{model}/gates"): Operation(
        "GatesAnswer",
        "Run a model and read its gates",
        GATES,
        "The same body as for infer; answers the outputs, and what every transform gate did." + HOW_BINARY,
        asks="InferRequest",
        binary=True,
        runs=True,
        parameters=(
            HEADER,
            TIMEOUT,
            {
                "name": "detail",
                "in": "query",
                "required": False,
                "description": "Statistics only, the mean of each unit, or T itself for every row.",
                "schema": {"type": "string", "enum": ["summary", "units", "rows"], "default": "summary"},
            },
            {
                "name": "blocks",
                "in": "query",
                "required": False,
                "description": "The layers' outputs, too.",
                "schema": {"type": "boolean", "default": False},
            },
            {
                "name": "binary",
                "in": "query",
                "required": False,
                "description": "Tensors as raw bytes.",
                "schema": {"type": "boolean", "default": False},
            },
        ),
        examples={"digit": {"summary": "One handwritten digit", "value": TENSORS}},
    ),
    ("post", "/v2/models/{model}/lesion"): Operation(
        "LesionAnswer",
        "Run a model with gates closed or opened",
        GATES,
        "The same body as for infer, and which gates to close, open or shift; answers the outputs with and "
        "without, and what changed. A `curve` closes each layer in its turn.",
        asks="LesionRequest",
        binary=True,
        runs=True,
        parameters=(HEADER, TIMEOUT),
        examples={
            "close": {"summary": "Two layers closed", "value": TENSORS | {"close": [3, 4]}},
            "curve": {"summary": "Each layer in its turn", "value": TENSORS | {"curve": True}},
        },
    ),
    ("get", "/v2/models/{model}/gates/profile"): Operation(
        "Profile", "How a model's gates behaved at export", GATES
    ),
    ("get", "/v2/models/{model}/gates/drift"): Operation(
        "Drift", "How far live traffic has moved a model's gates", GATES
    ),
    ("get", "/v2/models/{model}/certificate"): Operation(
        "Certificate", "What was proved of a model's file, and what it was made from", FILE
    ),
    ("get", "/v2/models/{model}/samples"): Operation(
        "Samples", "Rows to try a model with", FILE, "The inputs of each may be posted to infer as they are."
    ),
}
