"""docs/how-to/grpc.md: its commands and its code run as they stand, with real clients and servers."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import yaml

from tests.support.clients import client_programs, grpcurl
from tests.support.live_server import Server, serving
from tests.support.tls_certificate import certificate
from tests.support.virtualenvs import ROOT

PAGE = (ROOT / "docs/how-to/grpc.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:8001"
# what a command prints, by its last word
OUTPUTS = {
    "list": "inference.GRPCInferenceService",
    "turnpike.v1.GateService": "rpc ReadGates",
    "inference.GRPCInferenceService/ModelMetadata": '"onnx_onnxv1"',
    "inference.GRPCInferenceService/ModelInfer": '"bytesContents"',
    "inference.GRPCInferenceService/ServerMetadata": '"turnpike"',
    "inference.GRPCInferenceService/RepositoryModelUnload": '"isUnloaded": true',
    "turnpike.v1.ModelService/Describe": '"json"',
    "turnpike.v1.GateService/Lesion": '"layer03.transform_gate"',
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def sections() -> dict[str, str]:
    """The text of each section, by its heading."""
    _, *parts = re.split(r"^## (.*)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


SECTIONS = sections()


def lines_of(text: str, begin: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.startswith(f"    {begin} ")]


def blocks_of(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a reader, with the files that the page names."""
    (tmp_path / "service").symlink_to(ROOT / "service")
    (tmp_path / "keys").write_text("reader\n")
    (tmp_path / "admin-key").write_text("owner\n")
    for file, name in zip(certificate(tmp_path), ("cert.pem", "key.pem"), strict=True):
        file.rename(tmp_path / name)
    return tmp_path


@contextlib.contextmanager
def server_of(section: str, folder: Path) -> Iterator[Server]:
    """The server that a section starts, or that of the first lines, on other ports."""
    (line,) = lines_of(SECTIONS[section], "turnpike") or lines_of(PAGE.split("## ")[0], "turnpike")
    program, command, *options = shlex.split(line)
    assert (program, command) == ("turnpike", "serve")
    assert options[:2] == ["--grpc-port", "8001"]
    given = [str(folder / option) if (folder / option).is_file() else option for option in options[2:]]
    with serving("--grpc-port", 0, *given) as server:
        yield server


def run_in(folder: Path, program: list[str | Path], **variables: str) -> str:
    """Run a program in the folder of the reader; returns what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TURNPIKE_")}
    result = subprocess.run(
        program, cwd=folder, env=environment | variables, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{program}: {result.stdout}{result.stderr}"
    return result.stdout


@pytest.mark.parametrize("section", [name for name, text in SECTIONS.items() if lines_of(text, "grpcurl")])
def test_the_commands_of_the_page_on_grpc_run(section: str, folder: Path) -> None:
    """With grpcurl, which learns the services by reflection."""
    with server_of(section, folder) as server:
        for line in lines_of(SECTIONS[section], "grpcurl"):
            _, *words = shlex.split(line.replace(ADDRESS, server.grpc_address))
            assert OUTPUTS[words[-1]] in run_in(folder, [grpcurl(), *words])


@pytest.mark.parametrize("section", [name for name, text in SECTIONS.items() if "```python" in text])
def test_the_python_code_of_the_page_on_grpc_runs(section: str, folder: Path) -> None:
    """Each piece is run by a Python that has the client, and prints something."""
    for line in lines_of(SECTIONS[section], "python"):
        _, *words = shlex.split(line)
        run_in(folder, [sys.executable, *words])
    with server_of(section, folder) as server:
        for block in blocks_of(SECTIONS[section], "python"):
            client = next((name for name in ("triton", "kserve") if f" {name}" in block), None)
            python = Path(sys.executable) if client is None else client_programs(client) / "python"
            assert run_in(folder, [python, "-c", block.replace(ADDRESS, server.grpc_address)])


def test_the_probes_of_the_page_on_grpc_succeed(folder: Path) -> None:
    """As Kubernetes calls them."""
    (block,) = blocks_of(PAGE, "yaml")
    probes = [probe["grpc"] for probe in yaml.safe_load(block).values()]
    assert {probe["port"] for probe in probes} == {8001}
    with (
        server_of("Health checks of Kubernetes", folder) as server,
        grpc.insecure_channel(server.grpc_address) as channel,
    ):
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        for probe in probes:
            name = probe.get("service", "").encode()
            request = b"\x0a%c%b" % (len(name), name) if name else b""
            # the status SERVING
            assert check(request, timeout=20) == b"\x08\x01"


def test_the_page_has_what_these_tests_run() -> None:
    """Otherwise they would pass without running anything."""
    assert len(blocks_of(PAGE, "python")) == 5
    assert len(lines_of(PAGE, "grpcurl")) == 9
