"""Runs a model on rows for `turnpike predict`: a model on disk, or one of a running service."""

from __future__ import annotations

import contextlib
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
from pydantic import ValidationError

from turnpike.common.datatypes import DATATYPES, DTYPE_BY_DATATYPE
from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.manifest import Feature, PictureInput
from turnpike.service.artifact.signature import Column, Signature, cell_columns, target_column
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.artifact.text_encoder import TextEncoder
from turnpike.service.artifact.text_records import TextInput
from turnpike.service.cli.model_argument import find_model
from turnpike.service.codec.infer_request import JSON_LENGTH_HEADER
from turnpike.service.codec.predict_json import decode_instances
from turnpike.service.codec.tables.cell_warnings import CellWarnings, row_warnings
from turnpike.service.codec.tables.predictions import encode_predictions
from turnpike.service.config.settings import Settings
from turnpike.service.errors import RequestError, ServiceError, SettingError
from turnpike.service.inference_types import Array, InferAnswer
from turnpike.service.registry.loader import load
from turnpike.service.telemetry.counters import RequestCounters

# from rows, and whether gates are wanted, to predictions, and the mean of each gate for each row
Predict = Callable[[list[Any], bool], tuple[list[Any], dict[str, Array]]]
HTTP_SECONDS = 60


class PredictError(ServiceError):
    """A service gave no predictions."""


def local_model(path: Path) -> tuple[Signature, Predict]:
    """The inputs and outputs of a model on disk, and how to run it: as the service does, with its checks."""
    loaded = load(find_model(path), Settings(), RequestCounters(), 1)

    def predict(instances: list[Any], gates: bool) -> tuple[list[Any], dict[str, Array]]:
        body = json.dumps({"instances": instances}).encode()
        request = decode_instances(body, loaded.signature, RequestLimits())
        names = [gate.name for gate in loaded.gates] if gates else []
        if gates and not names:
            raise RequestError("--gates: expected a model with gates, and it has none")
        form = request.form
        arrays = loaded.runtime.run(request.feeds, [*form.output_names, *names])
        outputs, values = arrays[: len(form.output_names)], arrays[len(form.output_names) :]
        answer = InferAnswer(loaded.name, loaded.version, form, outputs, loaded.labels)
        content = encode_predictions(
            answer, loaded.distribution, is_number=loaded.predicts_number, interval=loaded.interval
        )
        means = {name: _row_means(name, array, form.rows) for name, array in zip(names, values, strict=True)}
        return json.loads(content)["predictions"], means

    return loaded.signature, predict


def served_model(url: str, key: str | None) -> tuple[Signature, Predict]:
    """The inputs and outputs of a model of a running service, and how to ask it."""
    base, _, name = url.partition("/models/")
    base = base.rstrip("/").removesuffix("/v1").removesuffix("/v2")
    if not urlsplit(base).hostname:
        raise SettingError(f"MODEL: expected a URL such as http://127.0.0.1:8000, got {url!r}")
    name = name.strip("/").removesuffix(":predict")
    if not name and urlsplit(base).path and not _is_service(base, key):
        base, _, name = base.rpartition("/")
    if not name:
        names = _ask(f"{base}/v1/models", key)["models"]
        if len(names) != 1:
            listed = ", ".join(f"{base}/v2/models/{quote(name, safe='')}" for name in names) or "none"
            raise SettingError(f"MODEL: expected a service with one model, got {listed}")
        name = quote(names[0], safe="")
    model = f"{base}/v2/models/{name}"
    signature = _signature(_ask(model, key), _ask(f"{model}/certificate", key))

    def predict(instances: list[Any], gates: bool) -> tuple[list[Any], dict[str, Array]]:
        body = {"instances": instances}
        predictions = _ask(f"{base}/v1/models/{name}:predict", key, body)["predictions"]
        if not gates:
            return predictions, {}
        feeds = decode_instances(json.dumps(body).encode(), signature, RequestLimits()).feeds
        answer = _ask(f"{base}/v2/models/{name}/gates?detail=rows", key, feeds=feeds)
        values = {tensor["name"]: tensor for tensor in answer["tensors"]}
        means = {}
        for gate in (gate["name"] for gate in answer["gates"]):
            array = np.asarray(values[gate]["data"], np.float32).reshape(values[gate]["shape"])
            means[gate] = _row_means(gate, array, len(instances))
        return predictions, means

    return signature, predict


def _binary_body(feeds: Mapping[str, Array]) -> tuple[bytes, int]:
    """Tensors as bytes, and the length of the JSON before them. JSON has no NaN, which stands for a blank."""
    tensors = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": DATATYPES[array.dtype.name],
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in feeds.items()
    ]
    head = json.dumps({"inputs": tensors}).encode()
    return b"".join([head, *(array.tobytes() for array in feeds.values())]), len(head)


def instance_warnings(instances: list[Any], signature: Signature) -> list[str]:
    """For each row the warnings of cells that the training did not have, empty for most."""
    body = json.dumps({"instances": instances}).encode()
    request = decode_instances(body, signature, RequestLimits())
    (numbers,) = request.feeds.values()
    cells = request.warnings.cells if isinstance(request.warnings, CellWarnings) else ()
    return row_warnings(numbers, signature, cells)


def _is_service(base: str, key: str | None) -> bool:
    """Whether a service answers below this URL, whose path may be the prefix of a proxy or a model's name."""
    try:
        _ask(f"{base}/v2", key)
    except (PredictError, RequestError):
        return False
    return True


def _signature(metadata: dict[str, Any], certificate: dict[str, Any]) -> Signature:
    """The inputs and outputs of a served model; sizes that vary have names."""
    batched = all(tensor["shape"][:1] == [-1] for tensor in metadata["inputs"])
    inputs, outputs = (
        {
            tensor["name"]: Tensor(
                tensor["name"],
                DTYPE_BY_DATATYPE[tensor["datatype"]].name,
                tuple(f"axis{axis}" if size < 0 else size for axis, size in enumerate(tensor["shape"])),
            )
            for tensor in metadata[part]
        }
        for part in ("inputs", "outputs")
    )
    names = tuple(feature["name"] for feature in certificate["features"])
    columns: tuple[Column, ...] = ()
    # a newer service may have kinds of columns that are not known here
    with contextlib.suppress(ValidationError):
        columns = cell_columns([Feature.model_validate(feature) for feature in certificate["features"]])
    encoder = None
    # the service may be older and take no texts, or newer and convert them in ways that are not known here
    with contextlib.suppress(ValidationError):
        text = TextInput.model_validate(certificate.get("text"))
        encoder = TextEncoder(text, certificate["alphabet"], inputs[text.input].dtype)
    picture = None
    with contextlib.suppress(ValidationError):
        if certificate.get("picture") is not None:
            picture = PictureInput.model_validate(certificate["picture"])
    # an older service does not say what is predicted
    target = target_column(certificate.get("target", ""), certificate.get("task", "classes"))
    batch = "axis0" if batched else None
    return Signature(
        inputs, outputs, {}, batch, frozenset(), names, columns, encoder, picture=picture, target=target
    )


def _row_means(gate: str, values: Array, rows: int) -> Array:
    """The mean of a gate for each row."""
    if values.shape[:1] != (rows,):
        raise RequestError(f"--gates: the values of {gate!r} cannot be separated by rows")
    means: Array = values.reshape(rows, -1).mean(1, dtype=np.float64)
    return means


def read_key(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        lines = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"--api-key-file: expected a file that can be read, got {str(path)!r}") from error
    if not lines:
        raise SettingError(f"--api-key-file: expected a key, got an empty file, {str(path)!r}")
    return lines[0]


def _ask(
    url: str, key: str | None, body: dict[str, Any] | None = None, feeds: Mapping[str, Array] | None = None
) -> Any:
    """The JSON of an answer, to JSON or to tensors, or to neither."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    if feeds is not None:
        data, head_length = _binary_body(feeds)
        headers = {JSON_LENGTH_HEADER: str(head_length)}
    request = urllib.request.Request(url, data, headers)  # noqa: S310, the scheme was checked
    if key is not None:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=HTTP_SECONDS) as response:  # noqa: S310
            return json.loads(response.read())
    except urllib.error.HTTPError as error:
        try:
            reason = json.loads(error.read())["error"]
        except (ValueError, KeyError, TypeError):
            reason = error.reason
        if error.code == 400:
            raise RequestError(reason) from error
        hint = "; pass a key with --api-key-file" if error.code == 401 else ""
        raise PredictError(f"{url}: {error.code}: {reason}{hint}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        # the reason inside of urllib's own error
        reason = getattr(error, "reason", error)
        raise PredictError(f"{url}: expected the answer of a service, got {reason}") from error
