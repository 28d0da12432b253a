"""What a route declares for the OpenAPI document, in addition to its method, its path and its key.

Schemas are only named here, because `schemas.py` and `document.py` are not imported before the document is
requested.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

JSON = "application/json"
RAW_BYTES = "application/octet-stream"
CSV = "text/csv"
BINARY_DATA = (
    "\n\nTensors can also be sent as raw bytes (little-endian, row-major). The body then has the JSON first, "
    "whose length is in the header `Inference-Header-Content-Length`, and after it the bytes of each input "
    "with a parameter `binary_data_size`. Outputs are returned in the same way if the parameter "
    "`binary_data_output` of the request, or `binary_data` of an output, is true."
)

ERRORS = {
    400: "The request is invalid. The sentence says where.",
    401: "No key, or an unknown one.",
    403: "The key is not valid for this route, or admin routes are disabled.",
    404: "There is no such model or version.",
    408: "The body took too long to arrive.",
    413: "The body, its rows or its response would be too large.",
    415: "The encoding of the body is not supported.",
    421: "The header Host names a host that the service does not answer for: see `--allowed-hosts`.",
    422: "The result has NaN or infinity, which JSON cannot represent.",
    431: "The headers are too large.",
    500: "The service failed. Its log says why.",
    503: "Not ready, or the queue is full. `Retry-After` has the seconds to wait.",
    504: "The deadline passed before the run began.",
}
BODY_ERRORS = (408, 413, 415)
RUN_ERRORS = (422, 504)

# description and example of each name in a path
PATH_PARAMETERS = {
    "model": ("A model's name, as /v2/models lists it.", "digits-10"),
    "version": ("One of the model's versions.", "1"),
}

# a handwritten 2 from the data of the bundled model, 8 x 8 pixels from 0 to 16: the input of all examples
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
DIGIT_TENSOR = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": list(DIGIT)}]}


def parameter(name: str, place: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    """An optional parameter. `place` is "header" or "query"."""
    return {"name": name, "in": place, "required": False, "description": description, "schema": schema}


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
DRIFT = parameter(
    "X-Turnpike-Drift",
    "header",
    "`skip` leaves the request out of the drift of gates.",
    {"type": "string", "enum": ["skip"]},
)


def operation(
    response: str,
    summary: str,
    tag: str,
    description: str = "",
    *,
    body: str | None = None,
    body_required: bool = True,
    binary: bool = False,
    csv: bool = False,
    runs_model: bool = False,
    unready_response: bool = False,
    examples: dict[str, Any] | None = None,
    parameters: Iterable[dict[str, Any]] = (),
    media_type: str = JSON,
) -> dict[str, Any]:
    """An OpenAPI operation, without what `document.py` adds from the route itself.

    Args:
        response: Name of the schema of a response with status 200.
        summary: A few words for lists of operations.
        tag: The group that it belongs to on the page /docs.
        description: Longer text in Markdown.
        body: Name of the schema of the request body, None if it has no body.
        body_required: Whether a request without a body is an error.
        binary: Whether bodies may also be raw bytes.
        csv: Whether bodies may also be CSV.
        runs_model: Whether it runs a model, so it takes a timeout and can fail in the ways that runs do.
        unready_response: Whether status 503 has a body of the same schema as 200, instead of an error.
        examples: Example request bodies by name.
        parameters: More parameters in the query or the headers.
        media_type: Of the request and the response. `binary` and `csv` add more.
    """

    def content(schema: str, examples: dict[str, Any] | None = None) -> dict[str, Any]:
        media: dict[str, Any] = {media_type: {"schema": ref(schema)}}
        if examples:
            media[media_type]["examples"] = examples
        if binary:
            media[RAW_BYTES] = {"schema": {"type": "string", "format": "binary"}}
        if csv:
            media[CSV] = {"schema": {"type": "string"}}
        return media

    declared: dict[str, Any] = {"tags": [tag], "summary": summary}
    if description:
        declared["description"] = description
    declared["parameters"] = [
        *([JSON_LENGTH] if binary else ()),
        *([TIMEOUT, DRIFT] if runs_model else ()),
        *parameters,
    ]
    responses = declared["responses"] = {"200": {"description": "The result", "content": content(response)}}
    if unready_response:
        responses["503"] = {"description": "Not ready", "content": content(response)}
    for status in (*(BODY_ERRORS if body else ()), *(RUN_ERRORS if runs_model else ())):
        responses[str(status)] = error(status)
    if body is not None:
        declared["requestBody"] = {"required": body_required, "content": content(body, examples)}
    return declared


def example(summary: str, value: Any) -> dict[str, Any]:
    """An example of a request body."""
    return {"summary": summary, "value": value}


def ref(schema: str) -> dict[str, Any]:
    """A reference to one of the SCHEMAS in `schemas.py`."""
    return {"$ref": f"#/components/schemas/{schema}"}


def error(status: int) -> dict[str, Any]:
    """The response for a status that is an error."""
    response: dict[str, Any] = {"description": ERRORS[status], "content": {JSON: {"schema": ref("Error")}}}
    if status == 503:
        response["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
    return response
