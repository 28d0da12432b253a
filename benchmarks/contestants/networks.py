"""The networks that the benchmarks serve, exported by turnpike for itself and by PyTorch for the others.

Their files are created once. The folder's name has a digest of the network's config, so that a changed
config gets a new folder.
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
from benchmarks.folders import NETWORK_FILES, ROOT

CLASSES = 10
# name of the logits in every file
OUTPUT_NAME = "output"
# rows that requests are made of
ROW_COUNT = 128


@dataclass(frozen=True)
class BenchmarkNetwork:
    """A highway network of `layers` layers of `width` units.

    Arguments:
        name: the name that it is served under, and in results
        width: units of each highway layer
        layers: number of highway layers
        inputs: values of one row
        entry: "plain" puts a plain layer before the highway layers; "none" requires inputs == width
        precisions: the precisions that it is exported in
    """

    name: str
    width: int
    layers: int
    inputs: int = 64
    entry: Literal["plain", "none"] = "plain"
    precisions: tuple[Literal["fp32", "fp16", "int8"], ...] = ("fp32",)

    @property
    def folder(self) -> Path:
        """The folder of its files, which `ensure_files` creates."""
        return NETWORK_FILES / f"{self.name}-{hashlib.sha256(self.config_json.encode()).hexdigest()[:8]}"

    @property
    def config_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def bare_file(self) -> Path:
        """The file that `torch.onnx.export` writes."""
        return self.folder / "bare.onnx"

    def model_repository(self, precision: str = "fp32") -> Path:
        """The model repository that `turnpike export` writes."""
        return self.folder / precision

    def exported_file(self, precision: str = "fp32") -> Path:
        """The file that `turnpike export` writes."""
        (file,) = self.model_repository(precision).rglob("model.onnx")
        return file

    @cached_property
    def rows(self) -> list[list[float]]:
        """The rows that requests are made of."""
        return self._reference("rows")

    @cached_property
    def logits(self) -> list[list[float]]:
        """PyTorch's logits for `rows`."""
        return self._reference("logits")

    def ensure_files(self) -> None:
        """Build and export the network, unless its files exist."""
        if self.folder.exists():
            return
        description = f"{self.layers} highway layers of {self.width}"
        print(f"exporting {self.name}: {description}", file=sys.stderr, flush=True)
        NETWORK_FILES.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=NETWORK_FILES) as scratch:
            files = Path(scratch) / "files"
            files.mkdir()
            # in another process: PyTorch would take memory from the servers that are measured
            process = subprocess.run(
                [sys.executable, "-m", "benchmarks.contestants.export_network", self.config_json, str(files)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            if process.returncode:
                last_line = process.stderr.strip().splitlines()[-1:] or ["no message"]
                raise BenchmarkError(f"{self.name}: expected an exported network, got: {last_line[0]}")
            files.rename(self.folder)

    def _reference(self, key: str) -> list[list[float]]:
        values: list[list[float]] = json.loads((self.folder / "reference.json").read_text())[key]
        return values


NETWORK_S = BenchmarkNetwork("S", width=64, layers=10)
NETWORK_L = BenchmarkNetwork("L", width=784, layers=20, inputs=784, entry="none", precisions=("fp32", "int8"))
NETWORKS = (NETWORK_S, NETWORK_L)
