"""Exports any ONNX file with gates, proof and profile, and serves it, for the peer benchmark.

    python benchmarks/contestants/ours/export_and_serve.py FILE NAME PORT [--precision int8] [SERVE OPTIONS]

Exported files are kept in .bench/repositories by the digest of the original, so that only the first start
takes long. Then this process becomes `turnpike serve`, with everything on that is on by default. The peer
benchmark is in another repository, and `ours.toml` describes this command to it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
REPOSITORIES = ROOT / ".bench/repositories"
# rows that the profile of the gates is computed from
PROFILE_ROWS = 512


def ensure_repository(file: Path, name: str, precision: str) -> Path:
    """The model repository with the exported file, which is exported unless it exists."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    repository = REPOSITORIES / f"{name}-{precision}-{digest}"
    if not repository.exists():
        REPOSITORIES.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=REPOSITORIES) as scratch:
            export(file, name, precision, Path(scratch))
            (Path(scratch) / "repository").rename(repository)
    return repository


def export(file: Path, name: str, precision: str, scratch: Path) -> None:
    """Export to the folder `scratch / "repository"`, with normally distributed rows for the profile."""
    import onnxruntime

    (model_input,) = onnxruntime.InferenceSession(file).get_inputs()
    rows = np.random.default_rng(0).standard_normal((PROFILE_ROWS, *model_input.shape[1:])).astype(np.float32)
    arrays: dict[str, Any] = {model_input.name: rows}
    np.savez(scratch / "rows.npz", **arrays)
    command = [sys.executable, "-m", "turnpike", "export", str(file), "--to", str(scratch / "repository")]
    command += ["--name", name, "--precision", precision, "--data", str(scratch / "rows.npz")]
    # agreement and error of a lower precision are meaningless for random weights, so any is accepted
    command += ["--min-agreement", "0", "--max-error", "1e9"] if precision != "fp32" else []
    subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)


def main() -> None:
    """Export unless that was done before, and become the server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path, help="ONNX file")
    parser.add_argument("name", help="name of the model")
    parser.add_argument("port", help="port to serve at")
    parser.add_argument("--precision", default="fp32", help="precision to export in (default: fp32)")
    arguments, options = parser.parse_known_args()
    models = ensure_repository(arguments.file, arguments.name, arguments.precision)
    command = [sys.executable, "-m", "turnpike", "serve", "--models", str(models)]
    command += ["--port", arguments.port]
    os.execv(sys.executable, [*command, *options])


if __name__ == "__main__":
    main()
