"""Proves files on the device: trains and exports one network of every family, and runs `turnpike verify`.

One epoch is enough, since parity does not depend on how good a network is. Export runs in the environment
without CUDA, as on most machines; `turnpike verify` then proves the file on the device.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.cuda.device_python import DevicePython, last_line
from benchmarks.errors import BenchmarkError
from benchmarks.folders import ROOT
from benchmarks.results.results_file import ResultLine, ResultsWriter

PRECISIONS: tuple[Literal["fp32", "fp16"], ...] = ("fp32", "fp16")


@dataclass(frozen=True)
class FamilyNetwork:
    """A family of networks, its preset, and data that need no download; None is the preset's own data."""

    family: str
    preset: str
    data: str | None = None


FAMILY_NETWORKS = (
    FamilyNetwork("mlp", "digits-10"),
    FamilyNetwork("conv", "conv-16", data="digits"),
    FamilyNetwork("charcnn", "charcnn"),
    FamilyNetwork("cbhg", "cbhg"),
    FamilyNetwork("rhn", "rhn"),
    FamilyNetwork("highway-lstm", "highway-lstm"),
    FamilyNetwork("grid-lstm", "grid-lstm"),
    FamilyNetwork("transformer", "transformer"),
)


def select_families(names: str) -> tuple[FamilyNetwork, ...]:
    """The families with these names, separated by commas; "all" selects all."""
    wanted = {name.strip() for name in names.split(",")}
    known = [network.family for network in FAMILY_NETWORKS]
    if names == "all":
        return FAMILY_NETWORKS
    if unknown := sorted(wanted.difference(known)):
        raise BenchmarkError(f"--families: expected all, or some of {', '.join(known)}, got {unknown[0]!r}")
    return tuple(network for network in FAMILY_NETWORKS if network.family in wanted)


def model_name(network: FamilyNetwork, precision: str) -> str:
    """The name of its model in the repository."""
    return f"{network.family}-{precision}"


def model_file(repository: Path, network: FamilyNetwork, precision: str) -> Path:
    return repository / model_name(network, precision) / "1/model.onnx"


def export_family(network: FamilyNetwork, runs: Path, repository: Path) -> None:
    """Train a network, and export it in every precision."""
    run = runs / network.family
    data = ("--data", network.data) if network.data else ()
    run_turnpike("train", network.preset, *data, "--epochs", 1, "--no-pictures", "--out", run)
    for precision in PRECISIONS:
        options = ("--name", model_name(network, precision), "--precision", precision, "--quiet")
        run_turnpike("export", run, "--to", repository, *options)


def run_turnpike(*words: object) -> None:
    """Run a command of turnpike in the running environment."""
    process = subprocess.run(
        [sys.executable, "-m", "turnpike", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise BenchmarkError(f"turnpike {words[0]} {words[1]}: {last_line(process)}")


def verify_family(
    writer: ResultsWriter, python: DevicePython, network: FamilyNetwork, runs: Path, repository: Path
) -> None:
    """Prove the files of a network on the device, and write a line for each."""
    for precision in PRECISIONS:
        file = model_file(repository, network, precision)
        options = ("--against", runs / network.family, "--device", python.device, "--json")
        process = python.run("-m", "turnpike", "verify", file, *options)
        fields = {"net": network.family, "preset": network.preset, "precision": precision}
        if process.returncode:
            failure = f"turnpike verify {file.parts[-3]}: {last_line(process)}"
            writer.write({"kind": "verified", **fields, "failed": failure})
        else:
            writer.write({"kind": "verified", **fields, **proof_fields(json.loads(process.stdout))})


def proof_fields(proof: Any) -> ResultLine:
    """The figures of a proof that the page shows."""
    tensors = {tensor["name"]: tensor for tensor in proof["parity"]["tensors"]}
    output = tensors["output"]
    return {
        "providers": proof["parity"]["providers"],
        "tensors": len(tensors),
        "error": output["max"],
        "torch_error": output["max_torch"],
        "comparison": proof["comparison"],
    }
