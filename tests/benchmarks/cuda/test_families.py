"""Files of every family are proved on the device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cuda import families
from benchmarks.cuda.device_python import DevicePython
from benchmarks.cuda.families import FAMILY_NETWORKS, export_family, select_families, verify_family
from benchmarks.errors import BenchmarkError
from benchmarks.results.results_file import ResultsWriter, read_results
from turnpike.models.networks.families import FAMILIES
from turnpike.models.training.presets import find_preset

DOWNLOADED = {"mnist", "fashion-mnist", "cifar10"}
PROOF = {
    "parity": {
        "providers": ["CUDAExecutionProvider"],
        "tensors": [
            {"name": "output", "max": 2e-7, "max_torch": 1e-7},
            {"name": "gate", "max": 1, "max_torch": 1},
        ],
    },
    "comparison": None,
}


def test_every_family_has_a_network_whose_data_need_no_download() -> None:
    assert {network.family for network in FAMILY_NETWORKS} == {config.family for config in FAMILIES}
    for network in FAMILY_NETWORKS:
        preset = find_preset(network.preset)
        assert preset.config.family == network.family
        assert (network.data or preset.data) not in DOWNLOADED


def test_families_are_selected_by_name() -> None:
    assert select_families("all") == FAMILY_NETWORKS
    assert [network.family for network in select_families("rhn, mlp")] == ["mlp", "rhn"]
    with pytest.raises(BenchmarkError, match="--families: expected all, or some of .*, got 'cnn'"):
        select_families("mlp,cnn")


def test_a_network_is_exported_in_every_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(families, "run_turnpike", lambda *words: commands.append(list(map(str, words))))
    export_family(select_families("conv")[0], tmp_path / "runs", tmp_path / "repository")
    assert [command[0] for command in commands] == ["train", "export", "export"]
    assert commands[0][1:4] == ["conv-16", "--data", "digits"]
    assert {command[command.index("--precision") + 1] for command in commands[1:]} == {"fp32", "fp16"}


def test_a_proof_that_fails_is_written_with_its_reason(tmp_path: Path) -> None:
    """The other files are proved all the same. The stand-in for Python fails for fp32 only."""
    answer = tmp_path / "proof.json"
    answer.write_text(json.dumps(PROOF))
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$4" in *fp32*) echo "error: gate03 differs" >&2; exit 1;; esac\ncat {answer}\n'
    )
    python.chmod(0o755)
    with ResultsWriter(tmp_path / "r.jsonl") as writer:
        verify_family(writer, DevicePython("cuda", python), FAMILY_NETWORKS[0], tmp_path, tmp_path)
    _, failed, verified = read_results(tmp_path / "r.jsonl")
    assert (failed["precision"], failed["failed"]) == ("fp32", "turnpike verify mlp-fp32: gate03 differs")
    assert (verified["tensors"], verified["error"], verified["torch_error"]) == (2, 2e-7, 1e-7)


@pytest.mark.slow
def test_a_command_that_fails_is_named() -> None:
    with pytest.raises(BenchmarkError, match="^turnpike train no-such-preset: preset: expected one of"):
        families.run_turnpike("train", "no-such-preset")


def test_verify_has_the_options_that_are_used() -> None:
    """The fields of its JSON, too."""
    result = subprocess.run(
        [sys.executable, "-m", "turnpike", "verify", "--help"], capture_output=True, text=True, check=True
    )
    assert {"--against", "--device", "--json"} <= set(result.stdout.replace("│", " ").split())
