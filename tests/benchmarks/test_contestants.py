"""Who is measured: found by name, started in versions that are pinned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.contestants import CONTESTANTS, FLOOR, OURS, chosen
from benchmarks.errors import BenchmarkError
from benchmarks.nets import L, Net, S
from benchmarks.places import HERE, ROOT

RIVALS = sorted(one for one in (HERE / "rivals").iterdir() if one.is_dir())


@pytest.mark.parametrize("folder", RIVALS, ids=lambda folder: folder.name)
def test_every_version_is_pinned(folder: Path) -> None:
    """Exactly, and without anything about where it comes from."""
    lines = (folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert lines
    for line in lines:
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line), line


def test_each_rival_has_its_folder() -> None:
    """And there is no folder of a rival that is never measured, but for the one of py-spy."""
    assert {folder.name for folder in RIVALS} - {"py-spy"} == {one.rival for one in CONTESTANTS if one.rival}


def test_rivals_are_chosen_by_the_beginnings_of_their_names() -> None:
    """turnpike and the limits are always there."""
    names = [one.name for one in chosen("triton 2, NAIVE")]
    assert "Triton 2 x 1" in names
    assert "Triton 1 x 2" not in names
    assert {"turnpike", "naive FastAPI", "floor of HTTP", "run inline"} <= set(names)
    assert chosen("all") == CONTESTANTS


def test_an_unknown_rival_is_refused() -> None:
    """With those that are known."""
    with pytest.raises(
        BenchmarkError, match="--rivals: expected all, or some of naive FastAPI, .*, got 'nginx'"
    ):
        chosen("naive,nginx")


def test_a_command_is_filled_in() -> None:
    """With the port, the network's file and the shape."""
    words = OURS.command(S, 4711)
    assert words[1:4] == ["-m", "turnpike", "serve"]
    assert words[words.index("--models") + 1] == str(S.folder / "fp32")
    assert words[words.index("--port") + 1] == "4711"
    told = FLOOR.told(L, 4711, Path("there"))
    assert (told["NET"], told["INPUTS"], told["PORT"], told["SCRATCH"]) == ("L", "784", "4711", "there")


def test_another_network_is_another_folder() -> None:
    """What is kept is not mistaken for what was changed since."""
    assert Net("S", width=64, layers=11).folder != Net("S", width=64, layers=10).folder == S.folder


def test_what_is_kept_is_ignored_by_git() -> None:
    """The environments and networks are no part of the repository."""
    assert ".bench/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
