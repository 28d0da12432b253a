"""The servers that are compared: selected by name, installed in pinned versions, and started."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.contestants.contestants import (
    CONTESTANTS,
    FLOOR,
    GRPC_CONTESTANTS,
    TURNPIKE,
    select_contestants,
)
from benchmarks.contestants.networks import NETWORK_L, NETWORK_S, BenchmarkNetwork
from benchmarks.errors import BenchmarkError
from benchmarks.folders import RIVALS, ROOT

RIVAL_FOLDERS = sorted(folder for folder in RIVALS.iterdir() if folder.is_dir())


@pytest.mark.parametrize("folder", RIVAL_FOLDERS, ids=lambda folder: folder.name)
def test_every_version_is_pinned(folder: Path) -> None:
    """Exactly, and without a location that it comes from."""
    lines = (folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert lines
    for line in lines:
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line), line


def test_each_rival_has_its_folder() -> None:
    """No folder belongs to a rival that is never measured; py-spy is a tool."""
    contestants = [*CONTESTANTS, *GRPC_CONTESTANTS]
    rivals = {contestant.rival for contestant in contestants if contestant.rival}
    assert {folder.name for folder in RIVAL_FOLDERS} - {"py-spy"} == rivals


def test_rivals_are_selected_by_the_beginnings_of_their_names() -> None:
    """turnpike and the limits are always there."""
    names = [contestant.name for contestant in select_contestants("triton 2, NAIVE")]
    assert "Triton 2 x 1" in names
    assert "Triton 1 x 2" not in names
    assert {"turnpike", "naive FastAPI", "floor of HTTP", "run inline"} <= set(names)
    assert select_contestants("all") == CONTESTANTS


def test_an_unknown_rival_is_refused() -> None:
    with pytest.raises(
        BenchmarkError, match="--rivals: expected all, or some of naive FastAPI, .*, got 'nginx'"
    ):
        select_contestants("naive,nginx")


def test_a_command_has_the_ports_and_the_network() -> None:
    command = TURNPIKE.command(NETWORK_S, 4711, 4712)
    assert command[1:4] == ["-m", "turnpike", "serve"]
    assert command[command.index("--models") + 1] == str(NETWORK_S.folder / "fp32")
    assert command[command.index("--port") + 1] == "4711"
    (over_grpc,) = (contestant for contestant in GRPC_CONTESTANTS if contestant.name == "turnpike")
    command = over_grpc.command(NETWORK_S, 4711, 4712)
    assert command[command.index("--grpc-port") + 1] == "4712"
    variables = FLOOR.environment(NETWORK_L, 4711, 4712, Path("there"))
    names = ("NET", "INPUTS", "PORT", "GRPC_PORT", "SCRATCH")
    assert [variables[name] for name in names] == ["L", "784", "4711", "4712", "there"]


def test_another_config_has_another_folder() -> None:
    """Otherwise the files of an older config would be measured."""
    changed = BenchmarkNetwork("S", width=64, layers=11)
    assert changed.folder != BenchmarkNetwork("S", width=64, layers=10).folder == NETWORK_S.folder


def test_the_work_folder_is_ignored_by_git() -> None:
    assert ".bench/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
