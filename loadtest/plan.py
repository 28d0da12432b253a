"""What a load test is to do: everything that was asked for, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from loadtest.errors import UsageError
from loadtest.slo import Slo

Wire = Literal["json", "binary", "v1", "gates", "lesion", "mixed"]
Form = Literal["constant", "ramp", "spike", "soak", "step"]
WIRES: tuple[Wire, ...] = get_args(Wire)
FORMS: tuple[Form, ...] = get_args(Form)


@dataclass(frozen=True, slots=True)
class Plan:
    """One load test. Closed loop (`users`) unless a `rate` is given or a capacity is searched for."""

    url: str
    model: str | None = None  # None: the only one that the server has
    version: str | None = None
    wire: Wire = "json"
    rows: tuple[int, ...] = (1,)
    users: int = 50
    spawn_rate: float = 10
    duration: float = 60
    warmup: float = 3  # seconds at the start that the figures leave out
    shape: Form = "constant"
    rate: float | None = None  # requests a second, open loop
    find_capacity: bool = False
    step_seconds: float = 10  # of one rate that is tried for the capacity
    slo: Slo | None = None
    processes: int = 1
    samples: int = 16  # different bodies of each kind
    length: int = 16  # of a dimension other than the rows that the model leaves free
    data: Path | None = None  # rows of the user's own: .npy, or .npz with an array for each input
    seed: int = 0
    tolerance: float = 1e-4  # an answer's difference from the reference, absolute and relative
    timeout: float = 30
    api_key: str | None = None
    insecure: bool = False
    report: Path | None = None

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise UsageError(f"URL: expected http://... or https://..., got {self.url!r}")
        if self.wire not in WIRES:
            raise UsageError(f"--wire: expected one of {', '.join(WIRES)}, got {self.wire!r}")
        if self.shape not in FORMS:
            raise UsageError(f"--shape: expected one of {', '.join(FORMS)}, got {self.shape!r}")
        if not self.rows or min(self.rows) < 1:
            raise UsageError(f"--rows: expected whole numbers from 1, got {self.rows}")
        at_least = {
            "users": 1,
            "processes": 1,
            "samples": 1,
            "length": 1,
            "warmup": 0,
            "seed": 0,
            "tolerance": 0,
        }
        above = {"spawn_rate": 0, "duration": 0, "step_seconds": 0, "timeout": 0}
        for name, least in at_least.items():
            if not getattr(self, name) >= least:
                raise UsageError(f"{option(name)}: expected {least} or more, got {getattr(self, name)}")
        for name, bound in above.items():
            if not getattr(self, name) > bound:
                raise UsageError(f"{option(name)}: expected more than {bound}, got {getattr(self, name)}")
        if self.rate is not None and not self.rate > 0:
            raise UsageError(f"--rate: expected more than 0, got {self.rate}")
        if self.find_capacity and (self.rate is not None or self.shape != "constant"):
            raise UsageError("--find-capacity: looks for the rate itself; leave out --rate and --shape")
        if self.find_capacity and self.slo is None:
            raise UsageError("--find-capacity: needs --slo, the limits that the rate must keep")

    @property
    def open_loop(self) -> bool:
        """Whether requests leave on a schedule, whether or not answers came."""
        return self.rate is not None or self.find_capacity


def option(name: str) -> str:
    """A field's name on the command line."""
    return "--" + name.replace("_", "-")
