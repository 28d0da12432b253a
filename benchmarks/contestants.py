"""Who is measured: turnpike, its rivals in the shapes that suit them best, and two limits."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from benchmarks import environments
from benchmarks.bodies import Form
from benchmarks.errors import BenchmarkError
from benchmarks.nets import Net
from benchmarks.places import HERE, ROOT


@dataclass(frozen=True)
class Contestant:
    """`words` start it, with {port} and the like to be filled in; `forms` are its paths by wire form.

    `rival` names its folder of `rivals` and its environment; without one it runs in ours.
    """

    name: str
    words: tuple[str, ...]
    forms: Mapping[Form, str]
    workers: int = 2
    threads: int = 1
    rival: str | None = None
    base: str | None = None
    folder: Path = ROOT
    nets: tuple[str, ...] = ("S", "L")
    precision: str = "fp32"
    # whether it answers what the network answers
    answers: bool = True
    variables: Mapping[str, str] = field(default_factory=dict)

    def python(self) -> Path:
        """Its Python, in an environment that is made if need be."""
        return environments.python(self.rival, self.base) if self.rival else Path(sys.executable)

    def command(self, net: Net, port: int) -> list[str]:
        """What starts it for a network."""
        program = self.python()
        told = {
            "python": program,
            "programs": program.parent,
            "port": port,
            "workers": self.workers,
            "threads": self.threads,
            "models": net.repository(self.precision),
        }
        return [word.format(**told) for word in self.words]

    def serving(self, models: Path) -> Self:
        """It with another folder of models."""
        return replace(self, words=tuple(str(models) if word == "{models}" else word for word in self.words))

    def told(self, net: Net, port: int, scratch: Path) -> dict[str, str]:
        """What it is told by its environment's variables."""
        return {
            "NET": net.name,
            "FILE": str(net.bare),
            "INPUTS": str(net.inputs),
            "PORT": str(port),
            "WORKERS": str(self.workers),
            "THREADS": str(self.threads),
            "SCRATCH": str(scratch),
            # threads that NumPy's libraries start would only stand in the way
            "OMP_NUM_THREADS": "1",
            **self.variables,
        }


INFER = "/v2/models/{net}/infer"
PROTOCOL: Mapping[Form, str] = {"v2 JSON": INFER, "v2 binary": INFER}
UVICORN = (
    "--lifespan",
    "off",
    "--loop",
    "uvloop",
    "--http",
    "httptools",
    "--no-access-log",
    "--log-level",
    "warning",
)


def turnpike(name: str, *more: str, **fields: Any) -> Contestant:
    """With everything on that is on by default, and as many workers as it takes by itself or is given."""
    serve = ("{python}", "-m", "turnpike", "serve", "--models", "{models}", "--port", "{port}")
    given = ("--workers", "{workers}", "--threads", "{threads}")
    shape = given if "workers" in fields else ("--workers", "auto")
    return Contestant(name, (*serve, *shape, "--drain-wait", "0", *more), PROTOCOL, **fields)


def uvicorn(name: str, app: str, path: str, **fields: Any) -> Contestant:
    """An application of one file, in as many processes."""
    words = ("{python}", "-m", "uvicorn", app, "--port", "{port}", "--workers", "{workers}", *UVICORN)
    return Contestant(name, words, {"rows": path}, **fields)


def rival(name: str, folder: str, *words: str, **fields: Any) -> Contestant:
    return Contestant(name, words, rival=folder, folder=HERE / "rivals" / folder, **fields)


def triton(workers: int, threads: int, *nets: str) -> Contestant:
    """Its stub for Python has a standard library of its own, which Debian's 3.11 gets on with."""
    return rival(
        f"Triton {workers} x {threads}",
        "triton",
        "{python}",
        "start.py",
        forms=PROTOCOL,
        workers=workers,
        threads=threads,
        nets=nets,
        base="/usr/bin/python3.11",
    )


LIMITS = HERE / "limits"
OURS = turnpike("turnpike")
INT8 = turnpike("turnpike int8", nets=("L",), precision="int8")
FLOOR = uvicorn("floor of HTTP", "floor:app", "/", folder=LIMITS, answers=False)
INLINE = uvicorn("run inline", "inline:app", "/", folder=LIMITS)
NAIVE = uvicorn("naive FastAPI", "app:app", "/predict", rival="naive", folder=HERE / "rivals/naive")

# "2 x 1" is two processes of one thread each
CONTESTANTS = (
    FLOOR,
    INLINE,
    OURS,
    INT8,
    NAIVE,
    triton(2, 1, "S", "L"),
    triton(1, 2, "L"),
    rival("LitServe", "litserve", "{python}", "app.py", forms={"rows": "/predict"}),
    rival(
        "BentoML",
        "bentoml",
        *("{programs}/bentoml", "serve", "app:Logits", "--host", "127.0.0.1", "--port", "{port}"),
        forms={"rows, bare answer": "/predict"},
        variables={"BATCH": "1"},
    ),
)


def chosen(names: str) -> tuple[Contestant, ...]:
    """The limits, ours, and those rivals whose names begin with one of these; all of them by "all"."""
    if names == "all":
        return CONTESTANTS
    wanted = [name.strip().casefold() for name in names.split(",")]
    for name in wanted:
        if not any(one.name.casefold().startswith(name) for one in CONTESTANTS):
            known = ", ".join(one.name for one in CONTESTANTS if one.rival)
            raise BenchmarkError(f"--rivals: expected all, or some of {known}, got {name!r}")
    return tuple(one for one in CONTESTANTS if not one.rival or one.name.casefold().startswith(tuple(wanted)))
