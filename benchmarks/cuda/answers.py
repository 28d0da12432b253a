"""Compares the answers of the service on the device with those on the CPU: predictions, gates and lesions.

Both services have the same repository and get the same requests. The bound is that of `--check-parity`,
with which the service on the device starts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cuda.device_python import DevicePython
from benchmarks.cuda.families import PRECISIONS, FamilyNetwork, model_file, model_name
from benchmarks.errors import BenchmarkError
from benchmarks.measurement.our_server import OurServer, running_turnpike
from benchmarks.measurement.wrk import ANSWER_TIMEOUT_SECONDS
from benchmarks.results.results_file import ResultLine, ResultsWriter
from turnpike.common.datatypes import DTYPE_BY_DATATYPE
from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.runtime import open_model
from turnpike.service.registry.device_agreement import allowed_difference, max_difference

Array = np.ndarray[Any, np.dtype[Any]]
# request, and the name of a tensor in its answer
TensorKey = tuple[str, str]

REQUESTS = ("predictions", "gates", "lesions")
# rows of a request, of those that each file has to try it with
MAX_ROWS = 8
# the first runs on a GPU compile and choose kernels, for every model
LOADING_SECONDS = 600


def compare_answers(
    writer: ResultsWriter, python: DevicePython, networks: Sequence[FamilyNetwork], repository: Path
) -> None:
    """Ask both services for predictions, gates and lesions of every file, and write a line for each."""
    models = ("--models", repository, "--workers", 1, "--threads", 1, "--drain-wait", 0)
    with (
        running_turnpike(*models) as cpu,
        running_turnpike(
            *models,
            *("--device", python.device, "--check-parity"),
            python=python.executable,
            variables=python.variables,
            start_seconds=LOADING_SECONDS,
        ) as device,
    ):
        for network in networks:
            for precision in PRECISIONS:
                name = model_name(network, precision)
                fields: ResultLine = {"kind": "answers", "net": network.family, "precision": precision}
                manifest = open_model(model_file(repository, network, precision)).manifest
                try:
                    lines = list(
                        differences(answer_tensors(cpu, name), answer_tensors(device, name), manifest)
                    )
                except BenchmarkError as error:
                    lines = [{"failed": f"{name}: {error}{refusal(device.log, name)}"}]
                for line in lines:
                    writer.write(fields | line)


def answer_tensors(server: OurServer, name: str) -> dict[TensorKey, Array]:
    """The tensors of the answers to one request of each kind, by request and name."""
    path = f"/v2/models/{name}"
    samples = ask(server, f"{path}/samples")["samples"][:MAX_ROWS]
    body = {"inputs": joined([sample["inputs"] for sample in samples])}
    gates = ask(server, f"{path}/gates?detail=rows", body)
    first_gate = gates["gates"][0]["name"]
    lesion = ask(server, f"{path}/lesion", body | {"close": [first_gate]})
    found = {
        "predictions": ask(server, f"{path}/infer", body)["outputs"],
        "gates": [*gates["outputs"], *gates["tensors"]],
        "lesions": [
            *lesion["outputs"],
            *({**tensor, "name": f"{tensor['name']} after it"} for tensor in lesion["lesioned"]["outputs"]),
        ],
    }
    return {
        (request, tensor["name"]): array_of(tensor)
        for request, tensors in found.items()
        for tensor in tensors
    }


def differences(
    expected: dict[TensorKey, Array], actual: dict[TensorKey, Array], manifest: Manifest | None
) -> Iterator[ResultLine]:
    """For each kind of request: the tensor that differs most, as a share of what is allowed."""
    if expected.keys() != actual.keys():
        raise BenchmarkError(f"answers: expected tensors {sorted(expected)}, got {sorted(actual)}")
    for request in REQUESTS:
        shares = {}
        for (kind, tensor), array in expected.items():
            if kind == request:
                # a lesion changes the values of an output, but not how exactly it is computed
                name = tensor.removesuffix(" after it")
                allowed = allowed_difference(manifest, name, array)
                shares[tensor] = max_difference(actual[kind, tensor], array) / allowed
        worst = max(shares, key=lambda tensor: shares[tensor])
        line: ResultLine = {
            "request": request,
            "tensors": len(shares),
            "tensor": worst,
            "share": shares[worst],
        }
        if not shares[worst] <= 1:
            line["failed"] = f"{request}: {worst} differs by {shares[worst]:.2g} times what parity allows"
        yield line


def joined(samples: Sequence[Sequence[Any]]) -> list[Any]:
    """The inputs of one request with the rows of all samples."""
    return [
        {
            **tensors[0],
            "shape": [sum(tensor["shape"][0] for tensor in tensors), *tensors[0]["shape"][1:]],
            "data": [value for tensor in tensors for value in tensor["data"]],
        }
        for tensors in zip(*samples, strict=True)
    ]


def array_of(tensor: Any) -> Array:
    return np.array(tensor["data"], DTYPE_BY_DATATYPE[tensor["datatype"]]).reshape(tensor["shape"])


def ask(server: OurServer, path: str, body: Any = None) -> Any:
    """The answer of a route, which must have status 200."""
    connection = HTTPConnection(*server.address, timeout=ANSWER_TIMEOUT_SECONDS)
    try:
        connection.request("GET" if body is None else "POST", path, body and json.dumps(body))
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise BenchmarkError(f"{path}: expected 200, got {response.status} {content[:200]!r}")
    return json.loads(content)


def refusal(log: Path, name: str) -> str:
    """Why a service does not serve a model, as its log says; empty if it says nothing about the model."""
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if name in line]
    return f"; the log says {lines[-1][-300:]}" if lines else ""
