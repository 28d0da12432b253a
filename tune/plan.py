"""The plan of a tuning search: all options, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from turnpike.loadtest.errors import UsageError as LoadUsageError
from turnpike.loadtest.plan import WIRES
from turnpike.loadtest.slo import Slo
from turnpike.service.artifact.manifest import Precision
from turnpike.service.errors import SettingError
from turnpike.service.repository.location import locate
from turnpike.tune.errors import UsageError

PRECISIONS: tuple[Precision, ...] = get_args(Precision)


@dataclass(frozen=True, slots=True)
class TunePlan:
    """One search."""

    models: Path | None = None  # a repository or a model file; None: the bundled model
    model: str | None = None  # None: the only model
    slo: str | None = None
    users: tuple[int, ...] = (1, 16, 64)
    rows: int = 1
    wire: str = "json"
    precisions: tuple[str, ...] = ("fp32", "int8")
    source: str | None = None  # what lower precisions are made from; None: the model's file
    minutes: float = 5
    config: Path | None = None
    out: Path | None = None

    def __post_init__(self) -> None:
        if not self.users or min(self.users) < 1 or len(set(self.users)) < len(self.users):
            listed = ",".join(map(str, self.users))
            raise UsageError(f"--users: expected different whole numbers of 1 or more, got {listed}")
        if self.rows < 1:
            raise UsageError(f"--rows: expected 1 or more, got {self.rows}")
        if not 0 < self.minutes < float("inf"):
            raise UsageError(f"--minutes: expected more than 0, got {self.minutes:g}")
        if self.wire not in WIRES:
            raise UsageError(f"--wire: expected one of {', '.join(WIRES)}, got {self.wire!r}")
        for precision in self.precisions:
            if precision not in PRECISIONS:
                raise UsageError(f"--precision: expected some of {', '.join(PRECISIONS)}, got {precision!r}")
        if self.models is not None:
            try:
                locate(self.models)
            except SettingError as error:
                raise UsageError(f"MODELS: {error}") from error
        if self.slo is not None:
            try:
                Slo.parse(self.slo)
            except LoadUsageError as error:
                raise UsageError(str(error)) from error

    @property
    def lower_precisions(self) -> tuple[str, ...]:
        """The precisions that need a file of their own."""
        return tuple(precision for precision in self.precisions if precision != "fp32")

    @property
    def output_folder(self) -> Path:
        """Folder for the results: `out`, else the repository, else the current folder."""
        if self.out is not None:
            return self.out
        return locate(self.models).root if self.models is not None and self.models.is_dir() else Path()
