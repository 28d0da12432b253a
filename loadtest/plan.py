"""The plan of a load test: all options, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from turnpike.loadtest.errors import UsageError
from turnpike.loadtest.slo import Slo

Wire = Literal["json", "binary", "v1", "gates", "lesion", "mixed"]
Shape = Literal["constant", "ramp", "spike", "soak", "step"]
WIRES: tuple[Wire, ...] = get_args(Wire)
SHAPES: tuple[Shape, ...] = get_args(Shape)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """One load test: an open loop if there is a `rate` or a search for the capacity, else a closed loop."""

    url: str
    model: str | None = None  # None: the only model of the server
    version: str | None = None  # None: the version that the server chooses
    wire: Wire = "json"
    rows: tuple[int, ...] = (1,)  # rows per request; several sizes are used equally often
    users: int = 50
    spawn_rate: float = 10  # users started per second
    duration: float = 60
    warmup: float = 3  # seconds at the start that the results leave out
    shape: Shape = "constant"
    rate: float | None = None  # requests per second of an open loop
    find_capacity: bool = False
    step_seconds: float = 10  # time for each rate of the capacity search
    slo: Slo | None = None
    processes: int | None = None  # None: as many as there are CPUs to spare
    samples: int = 16  # different payloads of each kind
    length: int = 16  # size of free dimensions other than the rows
    data: Path | None = None  # the user's own rows: .npy, or .npz with one array per input
    seed: int = 0
    tolerance: float = 1e-4  # allowed difference from the reference answer, absolute and relative
    timeout: float = 30
    api_key: str | None = None
    insecure: bool = False
    report: Path | None = None

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise UsageError(f"URL: expected http://... or https://..., got {self.url!r}")
        if self.wire not in WIRES:
            raise UsageError(f"--wire: expected one of {', '.join(WIRES)}, got {self.wire!r}")
        if self.shape not in SHAPES:
            raise UsageError(f"--shape: expected one of {', '.join(SHAPES)}, got {self.shape!r}")
        if not self.rows or min(self.rows) < 1:
            raise UsageError(f"--rows: expected whole numbers of 1 or more, got {self.rows}")
        minimums = {
            "users": 1,
            "samples": 1,
            "length": 1,
            "warmup": 0,
            "seed": 0,
            "tolerance": 0,
        }
        for name, minimum in minimums.items():
            value = getattr(self, name)
            if not value >= minimum:
                raise UsageError(f"{option_name(name)}: expected {minimum} or more, got {value}")
        for name in ("spawn_rate", "duration", "step_seconds", "timeout"):
            value = getattr(self, name)
            if not value > 0:
                raise UsageError(f"{option_name(name)}: expected more than 0, got {value}")
        if self.processes is not None and self.processes < 1:
            raise UsageError(f"--processes: expected 1 or more, got {self.processes}")
        if self.rate is not None and not self.rate > 0:
            raise UsageError(f"--rate: expected more than 0, got {self.rate}")
        if self.find_capacity and (self.rate is not None or self.shape != "constant"):
            raise UsageError("--find-capacity: searches for the rate itself; leave out --rate and --shape")
        if self.find_capacity and self.slo is None:
            raise UsageError("--find-capacity: needs --slo, the limits that the rate must keep")

    @property
    def open_loop(self) -> bool:
        """Whether requests are sent on a schedule, without waiting for earlier answers."""
        return self.rate is not None or self.find_capacity

    @property
    def process_count(self) -> int:
        """The number of processes that send; 1 as long as it is not known."""
        return self.processes or 1


def option_name(field: str) -> str:
    """The command-line option of a field."""
    return "--" + field.replace("_", "-")
