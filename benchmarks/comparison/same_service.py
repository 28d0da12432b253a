"""Checks that the programs in `services/` are the same service, in turnpike, in FastAPI alone, and in rivals.

    python -m benchmarks.comparison.same_service [NAME ...]

Each program is started, and gets predictions and probes. The table shows its answers and its length. The
programs of rivals run in their pinned environments.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import psutil

from benchmarks.contestants.environments import ensure_environment
from benchmarks.errors import BenchmarkError
from benchmarks.folders import BENCHMARKS, ROOT
from benchmarks.measurement.server_process import free_ports, rival_variables
from benchmarks.measurement.wrk import HOST
from benchmarks.results.tables import markdown_table

SERVICES = BENCHMARKS / "comparison" / "services"
MODEL = ROOT / "service" / "default" / "digits-10" / "1" / "model.onnx"
KEY = "of-the-check"
MAX_BODY = 64 * 1024
CONNECTIONS = 16
REQUESTS_OF_A_CONNECTION = 20
REQUESTS = CONNECTIONS * REQUESTS_OF_A_CONNECTION
READY_SECONDS = 60
TERMINATION_SECONDS = 10
# status of FastAPI for the path of a mounted application without its last slash
REDIRECT = 307


@dataclass(frozen=True)
class Service:
    """A program in `services/`.

    Arguments:
        name: what it is written with
        file: the program
        arguments: the command that starts it, with fields such as {port}
        predict: path of predictions; turnpike's takes the Open Inference Protocol, the others {"x": rows}
        ready: path of the readiness probe
        runs: metric that counts the runs of the model
        rival: name of its environment; None runs it in ours
    """

    name: str
    file: str
    arguments: tuple[str, ...]
    predict: str
    ready: str
    runs: str
    rival: str | None = None

    @property
    def source(self) -> str:
        return (SERVICES / self.file).read_text(encoding="utf-8")

    def line_count(self) -> int:
        """Lines that are neither empty nor comments."""
        return sum(
            bool(line.strip()) and not line.strip().startswith("#") for line in self.source.splitlines()
        )

    def command(self, port: int) -> list[str]:
        python = ensure_environment(self.rival) if self.rival else Path(sys.executable)
        fields = {"python": python, "programs": python.parent, "port": port}
        return [argument.format(**fields) for argument in self.arguments]


UVICORN = ("{python}", "-m", "uvicorn", "--host", HOST, "--port", "{port}")
TURNPIKE = Service(
    "turnpike",
    "turnpike_service.py",
    (*UVICORN, "turnpike_service:app"),
    predict="/v2/models/digits-10/infer",
    ready="/v2/health/ready",
    runs="turnpike_model_batch_rows_count",
)
FASTAPI = Service(
    "FastAPI alone",
    "fastapi_service.py",
    (*UVICORN, "fastapi_service:app"),
    predict="/predict",
    ready="/ready",
    runs="batch_rows_count",
)
LITSERVE = Service(
    "LitServe",
    "litserve_service.py",
    ("{python}", "litserve_service.py"),
    predict="/predict",
    ready="/health",
    runs="batch_rows_count",
    rival="litserve",
)
BENTOML = Service(
    "BentoML",
    "bentoml_service.py",
    ("{programs}/bentoml", "serve", "bentoml_service:Digits", "--host", HOST, "--port", "{port}"),
    predict="/predict",
    ready="/readyz",
    runs="bentoml_service_adaptive_batch_size_count",
    rival="bentoml",
)
ALL_SERVICES = (TURNPIKE, FASTAPI, LITSERVE, BENTOML)


@dataclass(frozen=True)
class Behaviour:
    """What a service did.

    Arguments:
        scores: the scores of the concurrent requests
        runs: runs of the model for these requests
        statuses: the status of each other request
    """

    scores: np.ndarray
    runs: int
    statuses: Mapping[str, int]


def rows_of_requests() -> np.ndarray:
    """A row for each of the requests that are sent at the same time as others."""
    return np.random.default_rng(0).integers(0, 17, (REQUESTS, 64)).astype(np.float32)


def encode(service: Service, row: np.ndarray) -> bytes:
    if service is TURNPIKE:
        tensor = {"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": row.tolist()}
        return json.dumps({"inputs": [tensor], "outputs": [{"name": "output"}]}).encode()
    return json.dumps({"x": [row.tolist()]}).encode()


def decode(service: Service, body: bytes) -> np.ndarray:
    """The scores of a request's row."""
    answer = json.loads(body)
    if service is TURNPIKE:
        answer = answer["outputs"][0]["data"]
    elif isinstance(answer, dict):
        (answer,) = answer["scores"]
    return np.array(answer, np.float32).ravel()


def send(
    port: int, path: str, body: bytes | None = None, key: str | None = None, *, in_chunks: bool = False
) -> tuple[int, bytes]:
    """Status and body of the answer to a request: a POST if it has a body, otherwise a GET."""
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers["X-Api-Key"] = key
    connection = HTTPConnection(HOST, port, timeout=30)
    with contextlib.closing(connection):
        connection.request(
            "GET" if body is None else "POST", path, iter([body]) if body and in_chunks else body, headers
        )
        response = connection.getresponse()
        return response.status, response.read()


@contextlib.contextmanager
def running(service: Service) -> Iterator[int]:
    """The port of the service while it runs; all processes that it started are ended afterwards."""
    (port,) = free_ports(1)
    variables = {"KEY": KEY, "LIT_SERVER_API_KEY": KEY, "FILE": str(MODEL), "PORT": str(port)}
    if service.rival is None:
        variables["PYTHONPATH"] = str(ROOT / "src")
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            service.command(port),
            cwd=SERVICES,
            env=rival_variables() | variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + READY_SECONDS
            while not is_ready(service, port):
                if process.poll() is not None or time.monotonic() > deadline:
                    output.seek(0)
                    log = output.read().decode(errors="replace")
                    raise BenchmarkError(f"{service.name}: expected to be ready, got:\n{log}")
                time.sleep(0.1)
            yield port
        finally:
            end(process)


def end(server: subprocess.Popen[bytes]) -> None:
    """End a server and the processes that it started, and no others."""
    started: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        started = psutil.Process(server.pid).children(recursive=True)
    server.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(TERMINATION_SECONDS)
    for process in psutil.wait_procs(started, TERMINATION_SECONDS)[1]:
        process.kill()
    server.kill()
    server.wait()


def is_ready(service: Service, port: int) -> bool:
    try:
        # LitServe requires a key for probes, too
        return send(port, service.ready, key=KEY)[0] == 200
    except OSError:
        return False


def get_metrics(port: int, key: str | None = None) -> tuple[int, bytes]:
    """Status and body of the answer to Prometheus, which follows redirects."""
    status, body = send(port, "/metrics", key=key)
    return send(port, "/metrics/", key=key) if status == REDIRECT else (status, body)


def runs_so_far(service: Service, port: int) -> int:
    """The runs of the model by the service's own metrics."""
    status, body = get_metrics(port, KEY)
    if status != 200:
        raise BenchmarkError(f"{service.name}: expected metrics, got status {status}")
    counts = re.findall(rf"^{service.runs}(?:{{.*}})? ([\d.e+]+)$", body.decode(), re.MULTILINE)
    return round(sum(map(float, counts)))


def ask(service: Service) -> Behaviour:
    """Start the service, and send it predictions and probes."""
    bodies = [encode(service, row) for row in rows_of_requests()]
    large = bodies[0] + b" " * MAX_BODY
    with running(service) as port:
        path = service.predict
        statuses = {
            "a prediction": send(port, path, bodies[0], KEY)[0],
            "no key": send(port, path, bodies[0])[0],
            "a wrong key": send(port, path, bodies[0], KEY + "0")[0],
            "no JSON": send(port, path, b"{", KEY)[0],
            "63 numbers": send(port, path, encode(service, rows_of_requests()[0][:63]), KEY)[0],
            "a body of more than 64 KiB": send(port, path, large, KEY)[0],
            "the same in chunks": send(port, path, large, KEY, in_chunks=True)[0],
            "readiness, without a key": send(port, service.ready)[0],
            "metrics, without a key": get_metrics(port)[0],
        }
        before = runs_so_far(service, port)
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            answers = list(pool.map(lambda body: send(port, path, body, KEY), bodies))
        if failed := [answer for answer in answers if answer[0] != 200]:
            raise BenchmarkError(f"{service.name}: expected answers to all requests, got {failed[0]}")
        scores = np.stack([decode(service, body) for _, body in answers])
        # some services count after they have answered
        time.sleep(1)
        return Behaviour(scores, runs_so_far(service, port) - before, statuses)


def tables(behaviours: Mapping[str, Behaviour]) -> str:
    """What each service answered; scores are compared with those of the first one."""
    first = next(iter(behaviours.values()))
    lines = {service.name: str(service.line_count()) for service in ALL_SERVICES}
    rows = [["lines", *(lines[name] for name in behaviours)]]
    rows += [
        [probe, *(str(behaviour.statuses[probe]) for behaviour in behaviours.values())]
        for probe in first.statuses
    ]
    rows.append(
        [
            f"runs for {REQUESTS} requests, {CONNECTIONS} at a time",
            *(str(behaviour.runs) for behaviour in behaviours.values()),
        ]
    )
    differences = [np.abs(behaviour.scores - first.scores).max() for behaviour in behaviours.values()]
    rows.append(["largest difference of a score", *(f"{difference:.2g}" for difference in differences)])
    return markdown_table(["", *behaviours], rows)


def main() -> None:
    names = [service.name for service in ALL_SERVICES]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison.same_service", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)} (default: all)")
    chosen = parser.parse_args().names or names
    if unknown := set(chosen) - set(names):
        parser.error(f"expected names of {', '.join(names)}, got {', '.join(sorted(unknown))}")
    print(tables({service.name: ask(service) for service in ALL_SERVICES if service.name in chosen}))


if __name__ == "__main__":
    main()
