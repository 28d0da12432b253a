"""The servers that are compared: turnpike, its rivals with their best settings, and some limits."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from benchmarks.contestants import environments
from benchmarks.contestants.networks import BenchmarkNetwork
from benchmarks.contestants.wire_formats import WireFormat
from benchmarks.errors import BenchmarkError
from benchmarks.folders import LIMITS, RIVALS, ROOT


@dataclass(frozen=True)
class Contestant:
    """A server and how to start it.

    Arguments:
        name: its name in results
        arguments: command that starts it, with fields such as {port} and {grpc_port} that `command` fills in
        paths: path for predictions, by each wire format that it knows
        workers: number of processes that answer
        threads: threads of onnxruntime in each process; 0 lets the server choose
        rival: its folder in `rivals/` and the name of its environment; None runs it in ours
        base_python: the Python that its environment is created with, if not the running one
        folder: the folder that it is started in
        networks: names of the networks that it serves in the comparison
        precision: precision of the file that it serves
        returns_logits: whether its answers are those of the network
        computes_in_fp32: False if it computes in less, so that its answers differ more from the network's
        variables: more environment variables
    """

    name: str
    arguments: tuple[str, ...]
    paths: Mapping[WireFormat, str]
    workers: int = 2
    threads: int = 1
    rival: str | None = None
    base_python: str | None = None
    folder: Path = ROOT
    networks: tuple[str, ...] = ("S", "L")
    precision: str = "fp32"
    returns_logits: bool = True
    computes_in_fp32: bool = True
    variables: Mapping[str, str] = field(default_factory=dict)

    def python(self) -> Path:
        """Its Python, in an environment that is created if necessary."""
        if self.rival is None:
            return Path(sys.executable)
        return environments.ensure_environment(self.rival, self.base_python)

    def command(self, network: BenchmarkNetwork, port: int, grpc_port: int) -> list[str]:
        """The command that starts it."""
        python = self.python()
        fields = {
            "python": python,
            "programs": python.parent,
            "port": port,
            "grpc_port": grpc_port,
            "workers": self.workers,
            "threads": self.threads,
            "models": network.model_repository(self.precision),
        }
        return [argument.format(**fields) for argument in self.arguments]

    def with_models(self, repository: Path) -> Self:
        """The same server with another model repository."""
        arguments = (str(repository) if argument == "{models}" else argument for argument in self.arguments)
        return replace(self, arguments=tuple(arguments))

    def environment(
        self, network: BenchmarkNetwork, port: int, grpc_port: int, scratch: Path
    ) -> dict[str, str]:
        """The environment variables that rivals read their settings from."""
        return {
            "NET": network.name,
            "FILE": str(network.bare_file),
            "INPUTS": str(network.inputs),
            "PORT": str(port),
            "GRPC_PORT": str(grpc_port),
            "WORKERS": str(self.workers),
            "THREADS": str(self.threads),
            "SCRATCH": str(scratch),
            # threads of NumPy's libraries would compete with those of onnxruntime
            "OMP_NUM_THREADS": "1",
            **{
                name: value.format(models=network.model_repository(self.precision))
                for name, value in self.variables.items()
            },
        }


INFER_PATH = "/v2/models/{network}/infer"
PROTOCOL_PATHS: Mapping[WireFormat, str] = {"v2 JSON": INFER_PATH, "v2 binary": INFER_PATH}
UVICORN_OPTIONS = (
    *("--lifespan", "off", "--loop", "uvloop", "--http", "httptools"),
    *("--no-access-log", "--log-level", "warning"),
)


def turnpike(name: str, *options: str, **fields: Any) -> Contestant:
    """turnpike with everything on that is on by default, and as many workers as it chooses unless given."""
    serve = ("{python}", "-m", "turnpike", "serve", "--models", "{models}", "--port", "{port}")
    fixed_workers = ("--workers", "{workers}", "--threads", "{threads}")
    workers = fixed_workers if "workers" in fields else ("--workers", "auto")
    return Contestant(name, (*serve, *workers, "--drain-wait", "0", *options), PROTOCOL_PATHS, **fields)


def uvicorn(name: str, app: str, path: str, **fields: Any) -> Contestant:
    """An ASGI application in several processes of uvicorn."""
    command = ("{python}", "-m", "uvicorn", app, "--port", "{port}", "--workers", "{workers}")
    return Contestant(name, (*command, *UVICORN_OPTIONS), {"rows": path}, **fields)


def rival(name: str, folder: str, *arguments: str, **fields: Any) -> Contestant:
    return Contestant(name, arguments, rival=folder, folder=RIVALS / folder, **fields)


def triton(workers: int, threads: int, *networks: str) -> Contestant:
    """Triton; its Python stub ships a standard library of its own that works with Debian's Python 3.11."""
    return rival(
        f"Triton {workers} x {threads}",
        "triton",
        "{python}",
        "start.py",
        paths=PROTOCOL_PATHS,
        workers=workers,
        threads=threads,
        networks=networks,
        base_python="/usr/bin/python3.11",
    )


def mosec(*networks: str, wait_ms: int, workers: int = 2, threads: int = 1) -> Contestant:
    """mosec; a batch waits `wait_ms` for more requests, 0 turns batching off."""
    batching = f"{workers} x {threads}" if wait_ms else "without batching"
    command = ("{python}", "app.py", "--address", "127.0.0.1", "--port", "{port}")
    return rival(
        f"mosec {batching}",
        "mosec",
        *command,
        paths={"rows": "/inference"},
        workers=workers,
        threads=threads,
        networks=networks,
        variables={"WAIT_MS": str(wait_ms)},
    )


TURNPIKE = turnpike("turnpike")
TURNPIKE_INT8 = turnpike("turnpike int8", networks=("L",), precision="int8")
FLOOR = uvicorn("floor of HTTP", "floor:app", "/", folder=LIMITS, returns_logits=False)
INLINE = uvicorn("run inline", "inline:app", "/", folder=LIMITS)
BARE = Contestant("bare protocol", ("{python}", "bare_protocol.py", "{port}"), {"rows": "/"}, folder=LIMITS)
NAIVE = uvicorn("naive FastAPI", "app:app", "/predict", rival="naive", folder=RIVALS / "naive")

# in the names of Triton and mosec, "2 x 1" means two instances of one thread each
CONTESTANTS = (
    FLOOR,
    INLINE,
    BARE,
    TURNPIKE,
    TURNPIKE_INT8,
    NAIVE,
    triton(2, 1, "S", "L"),
    triton(1, 2, "L"),
    mosec("S", "L", wait_ms=1),
    mosec("S", "L", wait_ms=0),
    mosec("L", wait_ms=1, workers=1, threads=2),
    rival(
        "granian",
        "granian",
        *("{programs}/granian", "--interface", "rsgi", "--no-ws", "--workers", "{workers}"),
        *("--host", "127.0.0.1", "--port", "{port}", "--log-level", "warning", "app:app"),
        paths={"rows": "/predict"},
    ),
    rival("LitServe", "litserve", "{python}", "app.py", paths={"rows": "/predict"}),
    rival(
        "BentoML",
        "bentoml",
        *("{programs}/bentoml", "serve", "app:Logits", "--host", "127.0.0.1", "--port", "{port}"),
        paths={"rows, bare answer": "/predict"},
        variables={"BATCH": "1"},
    ),
)

# KServe and MLServer serve gRPC in one process, whatever their settings
GRPC_PATHS: Mapping[WireFormat, str] = {"v2 gRPC": "/inference.GRPCInferenceService/ModelInfer"}
GRPC_CONTESTANTS = (
    Contestant(
        "floor of grpc.aio",
        ("{python}", "grpc_floor.py", "{grpc_port}"),
        GRPC_PATHS,
        folder=LIMITS,
        returns_logits=False,
    ),
    replace(
        turnpike("turnpike", "--grpc-port", "{grpc_port}"), paths={**GRPC_PATHS, "v2 binary": INFER_PATH}
    ),
    replace(triton(2, 1), paths=GRPC_PATHS),
    rival(
        "KServe",
        "kserve",
        "{python}",
        "app.py",
        paths=GRPC_PATHS,
        workers=1,
        # by default, it writes a line for each call
        variables={"KSERVE_LOGLEVEL": "WARNING"},
    ),
    rival("MLServer", "mlserver", "{python}", "start.py", paths=GRPC_PATHS, workers=1),
)


def select_contestants(names: str) -> tuple[Contestant, ...]:
    """turnpike, the limits, and the rivals whose names begin with one of these names; "all" selects all."""
    if names == "all":
        return CONTESTANTS
    prefixes = [name.strip().casefold() for name in names.split(",")]
    for prefix in prefixes:
        if not any(contestant.name.casefold().startswith(prefix) for contestant in CONTESTANTS):
            known = ", ".join(contestant.name for contestant in CONTESTANTS if contestant.rival)
            raise BenchmarkError(f"--rivals: expected all, or some of {known}, got {prefix!r}")
    return tuple(
        contestant
        for contestant in CONTESTANTS
        if not contestant.rival or contestant.name.casefold().startswith(tuple(prefixes))
    )
