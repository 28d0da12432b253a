"""The suite runs against other servers of the protocol, and with the messages of other clients.

The differences are known: what all servers do alike is the protocol, and not our reading of it.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.differences import DIFFERENCES, known
from tests.conformance.suite import NAMES
from tests.support.clients import PYTHONS, client_programs
from tests.support.conformance_servers import (
    Addresses,
    kserve_server,
    mlserver,
    triton_server,
    turnpike_server,
)
from tests.support.live_server import ROOT, environment

SLOW = [pytest.mark.slow, pytest.mark.timeout(900)]
# environments that no other test needs
ENDURANCE = [pytest.mark.endurance, pytest.mark.timeout(1800)]
NEEDS_DEBIANS_PYTHON = pytest.mark.skipif(
    not Path(PYTHONS["tritonserver"]).exists(), reason=f"Triton needs {PYTHONS['tritonserver']} of Debian 12"
)


def found(server: Addresses) -> dict[str, str]:
    """Where a server differs, with the messages of Triton."""
    result = subprocess.run(
        [
            *(client_programs("triton") / "python", "-m", "tests.conformance", "--json"),
            *("--http", server.http, "--grpc", server.grpc, "--stubs", "tritonclient.grpc.service_pb2"),
        ],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    differences: dict[str, str] = json.loads(result.stdout)
    return differences


@pytest.mark.parametrize(
    ("name", "start"),
    [
        pytest.param("turnpike", turnpike_server, marks=SLOW),
        pytest.param("kserve", kserve_server, marks=SLOW),
        pytest.param("mlserver", mlserver, marks=ENDURANCE),
        pytest.param("triton", triton_server, marks=[*ENDURANCE, NEEDS_DEBIANS_PYTHON]),
    ],
)
def test_the_differences_of_a_server_are_known(name: str, start: Any, tmp_path: Path) -> None:
    """No more, and no fewer."""
    expected = set() if name == "turnpike" else known(name)
    with start(tmp_path) as server:
        differences = found(server)
    assert {case: text for case, text in differences.items() if case not in expected} == {}
    assert expected - differences.keys() == set()


@pytest.mark.parametrize("server", ["triton", "kserve", "mlserver"])
def test_most_cases_are_shared_with_each_other_server(server: str) -> None:
    """Each difference is one that the suite can show."""
    assert len(known(server)) < 0.55 * len(NAMES)
    for difference in DIFFERENCES:
        for name in getattr(difference, server):
            assert name in NAMES or "*" in name, name
