"""What a search is to do: everything that was asked for, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from loadtest.errors import UsageError as LoadUsageError
from loadtest.plan import WIRES
from loadtest.slo import Slo
from service.artifact.manifest import Precision
from tune.errors import UsageError

PRECISIONS: tuple[Precision, ...] = get_args(Precision)


@dataclass(frozen=True, slots=True)
class Plan:
    """One search."""

    models: Path | None = None  # a repository or a model file; None: the bundled model
    model: str | None = None  # None: the only one that there is
    slo: str | None = None
    users: tuple[int, ...] = (1, 16, 64)
    rows: int = 1
    wire: str = "json"
    precisions: tuple[str, ...] = ("fp32", "int8")
    source: str | None = None  # what lower precisions are made of; None: the model's file
    minutes: float = 5
    config: Path | None = None
    out: Path | None = None

    def __post_init__(self) -> None:
        if not self.users or min(self.users) < 1 or len(set(self.users)) < len(self.users):
            raise UsageError(f"--users: expected different whole numbers from 1, got {_listed(self.users)}")
        if self.rows < 1:
            raise UsageError(f"--rows: expected 1 or more, got {self.rows}")
        if not 0 < self.minutes < float("inf"):
            raise UsageError(f"--minutes: expected more than 0, got {self.minutes:g}")
        if self.wire not in WIRES:
            raise UsageError(f"--wire: expected one of {', '.join(WIRES)}, got {self.wire!r}")
        for precision in self.precisions:
            if precision not in PRECISIONS:
                raise UsageError(f"--precision: expected some of {', '.join(PRECISIONS)}, got {precision!r}")
        if self.models is not None and not self.models.exists():
            raise UsageError(f"MODELS: expected a repository or an .onnx file, got {str(self.models)!r}")
        if self.slo is not None:
            try:
                Slo.parse(self.slo)
            except LoadUsageError as error:
                raise UsageError(str(error)) from error

    @property
    def lower(self) -> tuple[str, ...]:
        """The precisions that a file has to be made for."""
        return tuple(precision for precision in self.precisions if precision != "fp32")

    @property
    def home(self) -> Path:
        """Where what was found is written: beside what it is for."""
        if self.out is not None:
            return self.out
        return self.models if self.models is not None and self.models.is_dir() else Path()


def _listed(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))
