"""The networks that are served: each made once, exported with its proof for us and bare for the others.

What is kept of a network is named by its config, so that a changed config is another network.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from benchmarks.errors import BenchmarkError
from benchmarks.places import NETS, ROOT

CLASSES = 10
# the name of the logits in each file
OUTPUT = "output"
# how many rows there are to send
ROWS = 128


@dataclass(frozen=True)
class Net:
    """`layers` highways of `width` units, and before them a plain layer, unless `entry` is none."""

    name: str
    width: int
    layers: int
    inputs: int = 64
    entry: Literal["plain", "none"] = "plain"
    precisions: tuple[Literal["fp32", "int8"], ...] = ("fp32",)

    @property
    def folder(self) -> Path:
        """Where its files are once `ensure` has made them."""
        return NETS / f"{self.name}-{hashlib.sha256(self.told.encode()).hexdigest()[:8]}"

    @property
    def told(self) -> str:
        """All that it is, as JSON."""
        return json.dumps(asdict(self))

    @property
    def bare(self) -> Path:
        """The file as `torch.onnx.export` writes it."""
        return self.folder / "bare.onnx"

    def repository(self, precision: str = "fp32") -> Path:
        """The folder of models with the file as `turnpike export` writes it."""
        return self.folder / precision

    def exported(self, precision: str = "fp32") -> Path:
        """The file itself."""
        (found,) = self.repository(precision).rglob("model.onnx")
        return found

    @cached_property
    def rows(self) -> list[list[float]]:
        """What is sent."""
        return self._kept("rows")

    @cached_property
    def logits(self) -> list[list[float]]:
        """What PyTorch answers to it."""
        return self._kept("logits")

    def ensure(self) -> None:
        """Make the files, unless they are there."""
        if self.folder.exists():
            return
        print(f"making {self.name}: {self.layers} highways of {self.width}", file=sys.stderr, flush=True)
        NETS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=NETS) as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            # in a process of its own, as PyTorch takes memory that the measuring does not want to share
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.making", self.told, str(made)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
                raise BenchmarkError(f"{self.name}: expected an exported network, got: {last[0]}")
            made.rename(self.folder)

    def _kept(self, key: str) -> list[list[float]]:
        values: list[list[float]] = json.loads((self.folder / "reference.json").read_text())[key]
        return values


S = Net("S", width=64, layers=10)
L = Net("L", width=784, layers=20, inputs=784, entry="none", precisions=("fp32", "int8"))
BOTH = (S, L)
