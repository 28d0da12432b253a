"""The programs of rivals and limits: what they start, and what they answer."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from benchmarks.contestants.contestants import GRPC_CONTESTANTS
from benchmarks.contestants.grpc_messages import MESSAGE_PREFIX, decode_infer_response
from benchmarks.contestants.networks import NETWORK_S
from benchmarks.folders import LIMITS, RIVALS


def load_program(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that a program becomes; it runs with its environment, in a folder of its own."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    commands: list[list[str]] = []
    (contestant,) = (contestant for contestant in GRPC_CONTESTANTS if contestant.name == "Triton 2 x 1")
    for name, value in contestant.environment(NETWORK_S, 4711, 4712, scratch).items():
        monkeypatch.setenv(name, value)
    # they change these
    for name in ("LD_LIBRARY_PATH", "PATH"):
        monkeypatch.setenv(name, "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "execv", lambda program, command: commands.append(command))
    return commands


def test_triton_has_the_ports_that_it_is_given(
    tmp_path: Path, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    version = "{}.{}".format(*sys.version_info)
    shipped = tmp_path / "packages/pytriton/tritonserver"
    for file in ("backends/python/model", f"python_backend_stubs/{version}/triton_python_backend_stub"):
        (shipped / file).parent.mkdir(parents=True)
        (shipped / file).touch()
    monkeypatch.setattr(sysconfig, "get_path", lambda name: tmp_path / "packages")
    load_program(RIVALS / "triton/start.py").main()
    (command,) = started
    assert {"--http-port=4711", "--grpc-port=4712"} <= set(command)
    assert (tmp_path / "scratch/models/S/1/model.py").exists()


def test_mlserver_has_the_ports_that_it_is_given(tmp_path: Path, started: list[list[str]]) -> None:
    load_program(RIVALS / "mlserver/start.py").main()
    settings = json.loads((tmp_path / "scratch/settings.json").read_text())
    model = json.loads((tmp_path / "scratch/model-settings.json").read_text())
    assert (settings["http_port"], settings["grpc_port"]) == (4711, 4712)
    assert model == {"name": "S", "implementation": "runtime.Logits"}
    assert (tmp_path / "scratch/runtime.py").exists()
    assert [command[1:] for command in started] == [["start", "."]]


def test_the_floor_of_grpc_answers_with_ten_numbers() -> None:
    answer = load_program(LIMITS / "grpc_floor.py").ANSWER
    assert decode_infer_response(MESSAGE_PREFIX.pack(0, len(answer)) + answer) == [0.0] * 10
