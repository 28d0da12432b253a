"""What each route takes and returns, for the OpenAPI document. Examples fit the bundled digits model.

FastAPI derives its part of the document from the signatures of functions. Routes that run a model are not
FastAPI's (see `service.http.router`), and the others build their responses themselves, so this table has
all of them. `tests/service/api/openapi/test_document.py` checks that it has exactly the routes of the
application, and that every example and every GET gets a response that fits its schema.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from service.api.openapi.schemas import Schema

# a handwritten 2 from the data of the bundled model: 8 x 8 pixels from 0 to 16
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

# groups of operations on the page
OIP, PREDICT, GATES, MODEL_FILE = "Open Inference Protocol", "Predict", "Gates", "Model file"

BINARY_DATA = (
    "\n\nTensors can also be sent as raw bytes (little-endian, row-major). The body then has the JSON first, "
    "whose length is in the header `Inference-Header-Content-Length`, and after it the bytes of each input "
    "with a parameter `binary_data_size`. Outputs are returned in the same way if the parameter "
    "`binary_data_output` of the request, or `binary_data` of an output, is true."
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one route. FastAPI's own routes need only the schemas.

    Attributes:
        response: Name of the schema of a response with status 200.
        summary: A few words for lists of operations.
        tag: The group that it belongs to.
        description: Longer text in Markdown.
        body: Name of the schema of the request body, None if it has no body.
        body_required: Whether a request without a body is an error.
        binary: Whether bodies may also be raw bytes.
        runs_model: Whether it runs a model, and can fail in the ways that runs do.
        unready_response: Whether status 503 has a body of the same schema as 200, instead of an error.
        examples: Example request bodies by name.
        parameters: OpenAPI parameters beside those of the path.
        media_type: Of the response, and of the request if it is not binary.
    """

    response: str
    summary: str = ""
    tag: str = ""
    description: str = ""
    body: str | None = None
    body_required: bool = True
    binary: bool = False
    runs_model: bool = False
    unready_response: bool = False
    examples: dict[str, Any] = field(default_factory=dict)
    parameters: tuple[Schema, ...] = ()
    media_type: str = "application/json"


def parameter(name: str, place: str, description: str, schema: Schema) -> Schema:
    """An optional parameter. `place` is "header" or "query"."""
    return {"name": name, "in": place, "required": False, "description": description, "schema": schema}


def example(summary: str, value: Any) -> dict[str, Any]:
    return {"summary": summary, "value": value}


JSON_LENGTH = parameter(
    "Inference-Header-Content-Length",
    "header",
    "Bytes of JSON at the start of the body; 0 if the body is one raw tensor.",
    {"type": "integer", "minimum": 0},
)
TIMEOUT = parameter(
    "X-Request-Timeout-Ms",
    "header",
    "Milliseconds that the request may wait for its run.",
    {"type": "integer", "minimum": 1, "maximum": 9_999_999_999},
)
DETAIL = parameter(
    "detail",
    "query",
    "Only statistics, the mean of each unit, or T itself for every row.",
    {"type": "string", "enum": ["summary", "units", "rows"], "default": "summary"},
)
BLOCKS = parameter(
    "blocks", "query", "Also the outputs of the layers.", {"type": "boolean", "default": False}
)
BINARY = parameter("binary", "query", "Tensors as raw bytes.", {"type": "boolean", "default": False})

# By method and path. Paths of a model also exist with `/versions/{version}` after the model.
OPERATIONS: dict[tuple[str, str], Operation] = {
    # routes of FastAPI
    ("get", "/v2"): Operation("Server"),
    ("get", "/v2/health/live"): Operation("Health"),
    ("get", "/v2/health/ready"): Operation("Health", unready_response=True),
    ("get", "/v2/models"): Operation("Models"),
    ("get", "/v2/models/stats"): Operation("Statistics"),
    ("get", "/v2/models/{model}"): Operation("Model"),
    ("get", "/v2/models/{model}/ready"): Operation("Ready", unready_response=True),
    ("get", "/v2/models/{model}/config"): Operation("Config"),
    ("get", "/v2/models/{model}/stats"): Operation("Statistics"),
    ("get", "/metrics"): Operation("Metrics", media_type="text/plain"),
    ("get", "/v1/models"): Operation("Models"),
    ("get", "/v1/models/{model}"): Operation("Ready"),
    ("post", "/v2/repository/index"): Operation("Index", body="IndexRequest", body_required=False),
    ("post", "/v2/repository/models/{model}/load"): Operation("Nothing", body="Nothing", body_required=False),
    ("post", "/v2/repository/models/{model}/unload"): Operation(
        "Nothing", body="Nothing", body_required=False
    ),
    # our routes that run a model
    ("post", "/v2/models/{model}/infer"): Operation(
        "InferAnswer",
        "Run a model",
        OIP,
        "Takes tensors and returns tensors." + BINARY_DATA,
        body="InferRequest",
        binary=True,
        runs_model=True,
        parameters=(JSON_LENGTH, TIMEOUT),
        examples={
            "digit": example("One handwritten digit", TENSORS),
            "classes": example(
                "Its three most likely classes",
                TENSORS | {"outputs": [{"name": "output", "parameters": {"classification": 3}}]},
            ),
            "gate": example(
                "A gate, requested by name", TENSORS | {"outputs": [{"name": "layer00.transform_gate"}]}
            ),
        },
    ),
    ("post", "/v1/models/{model}:predict"): Operation(
        "PredictAnswer",
        "Run a model on rows",
        PREDICT,
        "Takes rows and returns predictions, with labels and probabilities if the model has labels.",
        body="PredictRequest",
        runs_model=True,
        parameters=(TIMEOUT,),
        examples={"digit": example("One handwritten digit", {"instances": [list(DIGIT)]})},
    ),
    ("post", "/v2/models/{model}/gates"): Operation(
        "GatesAnswer",
        "Run a model and read its gates",
        GATES,
        "Takes the same body as infer. Returns the outputs and statistics of every transform gate."
        + BINARY_DATA,
        body="InferRequest",
        binary=True,
        runs_model=True,
        parameters=(JSON_LENGTH, TIMEOUT, DETAIL, BLOCKS, BINARY),
        examples={"digit": example("One handwritten digit", TENSORS)},
    ),
    ("post", "/v2/models/{model}/lesion"): Operation(
        "LesionAnswer",
        "Run a model with gates closed or opened",
        GATES,
        "Takes the same body as infer, and the gates to close, open or shift. Returns the outputs with and "
        "without these changes, and what changed. `curve` closes each layer alone.",
        body="LesionRequest",
        binary=True,
        runs_model=True,
        parameters=(JSON_LENGTH, TIMEOUT),
        examples={
            "close": example("Two layers closed", TENSORS | {"close": [3, 4]}),
            "curve": example("Each layer closed alone", TENSORS | {"curve": True}),
        },
    ),
    # our routes that return facts about a model
    ("get", "/v2/models/{model}/gates/profile"): Operation(
        "Profile", "Gate statistics on the rows of the export", GATES
    ),
    ("get", "/v2/models/{model}/gates/drift"): Operation(
        "Drift", "Gate statistics of live traffic against those of the export", GATES
    ),
    ("get", "/v2/models/{model}/certificate"): Operation(
        "Certificate", "What was proved about a model's file, and its source", MODEL_FILE
    ),
    ("get", "/v2/models/{model}/samples"): Operation(
        "Samples",
        "Rows to try a model with",
        MODEL_FILE,
        "The inputs of each can be posted to infer unchanged.",
    ),
}
