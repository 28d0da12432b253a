"""The bills of materials of images, made with a stand-in for docker, and of real images."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.compose_project import need_engine, temporary_project
from tests.support.virtualenvs import ROOT, installed_programs, run_client
from turnpike.common.distribution import NAME, VERSION

SCRIPT = ROOT / ".ci/sbom.py"
# answers as the program docker would, for an image with these packages
DOCKER = r"""#!/bin/sh
case "$*" in
    *missing*) echo "no such image" >&2; exit 1 ;;
    *dpkg-query*) printf 'debian bookworm\n3.11.9\nlibc6 2.36-9+deb12u14 amd64\ntzdata 2026a~1 all\n' ;;
    *cyclonedx-py*)
        echo '{"components": [{"bom-ref": "a==1", "name": "a"}], "metadata": {}, "dependencies": []}'
        echo '{"components": [{"bom-ref": "a==1", "name": "a"}, {"bom-ref": "pip==2", "name": "pip"}],'
        echo ' "dependencies": [{"ref": "pip==2"}]}' ;;
esac
"""


def write_bills(folder: Path, *images: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script, which writes into the folder `dist` beside its own."""
    (folder / ".ci").mkdir()
    shutil.copy(SCRIPT, folder / ".ci")
    return subprocess.run(
        [sys.executable, folder / ".ci/sbom.py", *images],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def stand_in(tmp_path: Path) -> str:
    """A path on which docker is the stand-in."""
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def test_python_and_debian_packages_are_listed(tmp_path: Path, stand_in: str) -> None:
    """Each once, with the address by which databases of vulnerabilities find it."""
    result = write_bills(tmp_path, "example.org/we/turnpike-service:0.2", PATH=stand_in)
    assert result.stdout == "dist/turnpike-service.cdx.json: 5 components\n", result.stderr
    bill = json.loads((tmp_path / "dist/turnpike-service.cdx.json").read_text())
    assert bill["metadata"]["component"]["name"] == "example.org/we/turnpike-service:0.2"
    assert [component["bom-ref"] for component in bill["components"]] == [
        "a==1",
        "pip==2",
        "pkg:generic/python@3.11.9",
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64&distro=bookworm",
        "pkg:deb/debian/tzdata@2026a~1?arch=all&distro=bookworm",
    ]
    assert bill["dependencies"] == [{"ref": "pip==2"}]


def test_a_missing_image_is_named(tmp_path: Path, stand_in: str) -> None:
    """The message says how to build it."""
    result = write_bills(tmp_path, "missing", PATH=stand_in)
    assert result.returncode == 1
    assert "missing: expected an image that is built, such as by docker compose build" in result.stderr
    assert not list((tmp_path / "dist").iterdir())


def version_of(bill: dict[str, Any], name: str) -> str:
    (version,) = [component["version"] for component in bill["components"] if component["name"] == name]
    return str(version)


@pytest.mark.containers
@pytest.mark.timeout(900)
def test_bills_of_real_images_are_valid_and_complete(tmp_path: Path) -> None:
    """Pinned libraries, turnpike itself, Python and Debian's packages, by CycloneDX's schema."""
    need_engine()
    with temporary_project("bills") as project:
        project.compose("--profile", "scale", "build", "service", "proxy")
    result = write_bills(tmp_path, "turnpike-service", "turnpike-proxy")
    assert result.returncode == 0, result.stderr
    (tool,) = re.findall(r'^TOOL = "(.+)"', SCRIPT.read_text(encoding="utf-8"), re.MULTILINE)
    programs = installed_programs("cyclonedx", tool)
    files = [tmp_path / f"dist/{name}.cdx.json" for name in ("turnpike-service", "turnpike-proxy")]
    for file in files:
        assert run_client("cyclonedx_errors.py", programs, file) is None
    service, proxy = [json.loads(file.read_text()) for file in files]
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert f"onnxruntime=={version_of(service, 'onnxruntime')}" in pins
    assert version_of(service, NAME) == VERSION
    assert version_of(service, "libc6") == version_of(proxy, "libc6")
    assert version_of(proxy, "haproxy")
    assert NAME not in [component["name"] for component in proxy["components"]]
