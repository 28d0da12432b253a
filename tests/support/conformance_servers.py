"""Servers with the models of the conformance suite: ours, KServe's and MLServer."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper

from tests.conformance.models import MODELS, Model
from tests.support.clients import client_programs
from tests.support.live_server import ROOT, environment, free_port, serving
from tests.support.onnx_sources import model_of, value
from tests.support.python_path import python_path
from turnpike.service.repository.scan import MODEL_FILE

ONNX_TYPES = {"FP16": "FLOAT16", "FP32": "FLOAT", "FP64": "DOUBLE"}
START_SECONDS = 120


@dataclass(frozen=True)
class Addresses:
    """Host and port of REST, and of gRPC."""

    http: str
    grpc: str


def put_models(root: Path) -> None:
    """Put the models into a repository, as files of ONNX."""
    for model in MODELS:
        kind = getattr(TensorProto, ONNX_TYPES.get(model.datatype, model.datatype))
        if model.outputs == ("y",):
            nodes = [helper.make_node("Identity", ["x"], ["y"])]
        else:
            nodes = [
                helper.make_node("Add", ["a", "b"], ["sum"]),
                helper.make_node("Sub", ["a", "b"], ["difference"]),
            ]
        graph = model_of(
            nodes,
            [value(name, "batch", model.width, dtype=kind) for name in model.inputs],
            [value(name, "batch", model.width, dtype=kind) for name in model.outputs],
            initializers=(),
        )
        file = root / model.name / "1" / MODEL_FILE
        file.parent.mkdir(parents=True)
        file.write_bytes(graph.SerializeToString())


@contextlib.contextmanager
def turnpike_server(folder: Path) -> Iterator[Addresses]:
    put_models(folder)
    with serving("--models", folder, "--allow-unverified", "--grpc-port", 0) as server:
        yield Addresses(server.url.removeprefix("http://"), server.grpc_address)


@contextlib.contextmanager
def kserve_server(folder: Path) -> Iterator[Addresses]:
    http, grpc = free_port(), free_port()
    command: list[str | Path] = [
        client_programs("kserve") / "python",
        ROOT / "tests/clients/kserve_server.py",
        str(http),
        str(grpc),
    ]
    with _running(command, folder, http, grpc) as addresses:
        yield addresses


@contextlib.contextmanager
def mlserver(folder: Path) -> Iterator[Addresses]:
    http, grpc, metrics = free_port(), free_port(), free_port()
    settings = {
        "host": "127.0.0.1",
        "http_port": http,
        "grpc_port": grpc,
        "metrics_port": metrics,
        "parallel_workers": 0,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    for model in MODELS:
        (folder / model.name).mkdir()
        (folder / model.name / "model-settings.json").write_text(json.dumps(_mlserver_settings(model)))
    command: list[str | Path] = [client_programs("mlserver") / "mlserver", "start", folder]
    with _running(command, folder, http, grpc) as addresses:
        yield addresses


def _mlserver_settings(model: Model) -> dict[str, Any]:
    def tensors(names: Sequence[str]) -> list[dict[str, Any]]:
        return [{"name": name, "datatype": model.datatype, "shape": [-1, model.width]} for name in names]

    return {
        "name": model.name,
        "implementation": "tests.clients.mlserver_models.ConformanceModel",
        "parameters": {"version": "1"},
        "platform": "python",
        "versions": ["1"],
        "inputs": tensors(model.inputs),
        "outputs": tensors(model.outputs),
    }


@contextlib.contextmanager
def triton_server(folder: Path) -> Iterator[Addresses]:
    """Triton, as nvidia-pytriton ships it, with models of its Python backend."""
    http, grpc, metrics = free_port(), free_port(), free_port()
    programs = client_programs("tritonserver")
    (packages,) = programs.parent.glob("lib/python*/site-packages")
    shipped, backends = packages / "pytriton/tritonserver", folder / "backends"
    shutil.copytree(shipped / "backends", backends)
    stub = backends / "python/triton_python_backend_stub"
    shutil.copy(shipped / "python_backend_stubs/3.11" / stub.name, stub)
    stub.chmod(0o755)
    for model in MODELS:
        version = folder / "models" / model.name / "1"
        version.mkdir(parents=True)
        shutil.copy(ROOT / "tests/clients/triton_model.py", version / "model.py")
        (version.parent / "config.pbtxt").write_text(_triton_config(model))
    options = [
        f"--model-repository={folder}/models",
        f"--backend-directory={backends}",
        "--http-address=127.0.0.1",
        f"--http-port={http}",
        "--grpc-address=127.0.0.1",
        f"--grpc-port={grpc}",
        "--metrics-address=127.0.0.1",
        f"--metrics-port={metrics}",
        "--exit-timeout-secs=2",
    ]
    variables = {
        "SUITE": str(ROOT),
        "LD_LIBRARY_PATH": ":".join(map(str, packages.glob("nvidia_pytriton.libs"))),
        # the stub takes its packages from the environment of the first python3 on the PATH
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    with _running([shipped / "bin/tritonserver", *options], folder, http, grpc, **variables) as addresses:
        yield addresses


def _triton_config(model: Model) -> str:
    def tensors(kind: str, names: Sequence[str]) -> str:
        entry = f"data_type: TYPE_{model.datatype} dims: [ {model.width} ]"
        return f"{kind} [ {', '.join(f'{{ name: {json.dumps(name)} {entry} }}' for name in names)} ]\n"

    return (
        f'name: "{model.name}"\nbackend: "python"\nmax_batch_size: 128\n'
        + tensors("input", model.inputs)
        + tensors("output", model.outputs)
        + "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
    )


@contextlib.contextmanager
def _running(
    command: Sequence[str | Path], folder: Path, http: int, grpc: int, **variables: str
) -> Iterator[Addresses]:
    """A server that is ready. It is killed at the end, as nothing is left to lose."""
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(PYTHONPATH=python_path(ROOT), **variables),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _is_ready(http):
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.2)
            yield Addresses(f"127.0.0.1:{http}", f"127.0.0.1:{grpc}")
        finally:
            process.kill()
            process.wait()


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
