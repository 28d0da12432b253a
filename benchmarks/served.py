"""Our slot in a benchmark of servers: any ONNX file exported with its gates, proved, profiled and served.

    python benchmarks/served.py FILE NAME PORT [--precision int8] [SERVE OPTIONS]

What is exported is kept in .bench/repositories, by the file's digest, so that only the first start takes
long; then this process becomes `turnpike serve` with everything on that is on by default.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / ".bench/repositories"
# rows that the profile of the gates is taken on
ROWS = 512


def repository(file: Path, name: str, precision: str) -> Path:
    """The folder of models that has this file, exported; what could not be finished is not kept."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    place = KEPT / f"{name}-{precision}-{digest}"
    if not place.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as scratch:
            export(file, name, precision, Path(scratch))
            (Path(scratch) / "made").rename(place)
    return place


def export(file: Path, name: str, precision: str, scratch: Path) -> None:
    """To the folder `made`, with normal rows for the profile."""
    import onnxruntime

    (given,) = onnxruntime.InferenceSession(file).get_inputs()
    rows = np.random.default_rng(0).standard_normal((ROWS, *given.shape[1:])).astype(np.float32)
    np.savez(scratch / "rows.npz", **{given.name: rows})
    command = [sys.executable, "-m", "turnpike", "export", str(file), "--to", str(scratch / "made")]
    command += ["--name", name, "--precision", precision, "--data", str(scratch / "rows.npz")]
    # how many answers a lower precision leaves as they are says nothing on random nets
    command += ["--min-agreement", "0"] if precision != "fp32" else []
    subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)


def main() -> None:
    """Export where that is still to be done, and serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("name")
    parser.add_argument("port")
    parser.add_argument("--precision", default="fp32")
    given, options = parser.parse_known_args()
    models = repository(given.file, given.name, given.precision)
    command = [sys.executable, "-m", "turnpike", "serve", "--models", str(models), "--port", given.port]
    os.execv(sys.executable, [*command, *options])


if __name__ == "__main__":
    main()
