"""The wheel has everything that the installed commands need. These tests use it without the checkout."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.support.live_server import environment as server_environment
from tests.support.virtualenvs import ROOT, install_wheel

pytestmark = pytest.mark.slow

PACKAGES = ("models", "service", "export", "loadtest", "score", "tune", "client")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, because setuptools leaves a folder `build` beside the sources and reads it again."""
    copy = tmp_path_factory.mktemp("sources")
    for name in ("pyproject.toml", "README.md", "LICENSE", "turnpike.py"):
        shutil.copy(ROOT / name, copy)
    for name in (*PACKAGES, "tests", "benchmarks"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path_factory.mktemp("wheel")
    command: list[str | Path] = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--wheel-dir", folder, copy]
    # without isolation pip downloads nothing; pyproject.toml asks for setuptools 77
    if int(importlib.metadata.version("setuptools").split(".")[0]) >= 77:
        command.append("--no-build-isolation")
    subprocess.run(command, check=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_wheel(wheel, tmp_path_factory.mktemp("environment"))


def environment() -> dict[str, str]:
    """Without the path of the checkout."""
    return {name: value for name, value in server_environment().items() if name != "PYTHONPATH"}


def python(programs: Path, folder: Path, code: str) -> str:
    """Run Python code in the new environment, in an empty folder; returns its output."""
    result = subprocess.run(
        [programs / "python", "-c", code],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@contextlib.contextmanager
def serving(programs: Path, folder: Path) -> Iterator[str]:
    """The address of a running `turnpike serve` of the new environment."""
    process = subprocess.Popen(
        [programs / "turnpike", "serve", "--port", "0", "--drain-wait", "0"],
        cwd=folder,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if address := re.search(r"serves (http://[^\s\"]+)", line):
                yield address[1]
                return
        pytest.fail("".join(lines))
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_the_wheel_has_exactly_the_tracked_files(wheel: Path) -> None:
    """Every module and data file of the packages; no tests, no benchmarks, no examples."""
    tracked = subprocess.run(
        ["git", "ls-files", *PACKAGES, "turnpike.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if tracked.returncode:
        pytest.skip("not a git checkout")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {name for name in tracked.stdout.splitlines() if (ROOT / name).exists()}
    assert names == {name for name in expected if not name.endswith(".md")}


def test_the_tests_import_the_installed_packages(programs: Path, tmp_path: Path) -> None:
    """Otherwise the other tests of this file would prove nothing."""
    names = ", ".join((*PACKAGES, "turnpike"))
    code = f"import {names}, json; print(json.dumps([m.__file__ for m in ({names})]))"
    for path in json.loads(python(programs, tmp_path, code)):
        assert Path(path).is_relative_to(programs.parent), path


def test_the_bundled_model_and_the_dashboard_are_served(programs: Path, tmp_path: Path) -> None:
    """The folder is empty. The answers are a prediction, the page, and every file that it loads."""
    (tmp_path / "empty").mkdir()
    with serving(programs, tmp_path / "empty") as url:
        answer = requests.post(
            f"{url}/v1/models/digits-10:predict", json={"instances": [[0] * 64]}, timeout=30
        )
        assert answer.status_code == 200, answer.text
        assert set(answer.json()["predictions"][0]) >= {"label", "probability"}
        page = requests.get(url, headers={"Accept": "text/html"}, timeout=30)
        assert "<title>" in page.text
        files = [name for name in re.findall(r'(?:src|href)="([^"]+)"', page.text) if "dashboard/" in name]
        assert any(name.endswith(".js") for name in files)
        module = next(name for name in files if name.endswith("main.js"))
        script = requests.get(f"{url}/{module}", timeout=30).text
        imported = re.findall(r'from "\./([^"]+)"', script)
        assert any("/" in name for name in imported), "expected modules in sub-folders"
        for name in [*files, *(f"{module.rsplit('/', 1)[0]}/{name}" for name in imported)]:
            file = requests.get(f"{url}/{name}", timeout=30)
            assert file.status_code == 200, name
            assert file.content, name
    assert list((tmp_path / "empty").iterdir()) == []


def test_report_templates_are_installed(programs: Path, tmp_path: Path) -> None:
    """All templates and styles of reports in the checkout can be read in the new environment."""
    folders = ("loadtest/report/template", "tune/report/template", "export/report")
    names = [
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).iterdir()
        if path.suffix in {".css", ".html", ".js"}
    ]
    assert {str(Path(name).parent) for name in names} == set(folders)
    code = (
        "import importlib.resources\n"
        f"for name in {names}:\n"
        "    package, _, path = name.partition('/')\n"
        "    assert importlib.resources.files(package).joinpath(path).read_text(encoding='utf-8'), name\n"
    )
    python(programs, tmp_path, code)
