"""The import root: links to the packages, and no package that is imported without `turnpike.`."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.live_server import environment
from tests.support.source_files import PACKAGES, ROOT
from turnpike import service


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_package_is_a_link_in_the_import_root() -> None:
    """git stores them as links; a clone that checks them out as text could not be built."""
    root = ROOT / "src/turnpike"
    assert f"PACKAGES = {tuple(sorted(PACKAGES))}".replace("'", '"') in (ROOT / "setup.py").read_text()
    assert {path.name: str(path.readlink()) for path in root.iterdir() if path.is_symlink()} == {
        name: f"../../{name}" for name in PACKAGES
    }
    listed = subprocess.run(
        ["git", "ls-files", "--stage", root], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    links = {line.split("/")[-1] for line in listed.stdout.splitlines() if line.startswith("120000 ")}
    assert links == set(PACKAGES)


def test_modules_of_a_checkout_have_their_real_file_names() -> None:
    """Otherwise breakpoints in `service/` would not be hit, and its coverage would be empty."""
    assert service.__file__ == str(ROOT / "service/__init__.py")


def test_the_linter_refuses_every_short_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    # in a checkout, the whole repository is on the path of turnpike
    others = {"turnpike.benchmarks", "turnpike.setup", "turnpike.src", "turnpike.tests"}
    assert set(project["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]) == {*PACKAGES, *others}
    for line in ("import service.errors", "from models import layers", "from client.client import Client"):
        checked = subprocess.run(
            [sys.executable, "-m", "ruff", "check", "--stdin-filename", "tests/new.py", "-"],
            cwd=ROOT,
            input=f"{line}\n",
            capture_output=True,
            text=True,
            check=False,
        )
        assert "TID251" in checked.stdout, line


@pytest.mark.parametrize("name", PACKAGES)
def test_no_test_imports_a_package_by_its_short_name(name: str) -> None:
    with pytest.raises(ImportError, match=rf"expected turnpike\.{name}, got an import of {name}"):
        importlib.import_module(name)


def test_no_process_of_a_test_imports_a_package_by_its_short_name(tmp_path: Path) -> None:
    """A user's own module of that name can be imported."""
    failed = run("import service.errors", ROOT)
    assert failed.stderr.endswith("ImportError: expected turnpike.service, got an import of service\n")
    (tmp_path / "service.py").touch()
    assert run("import service", tmp_path).returncode == 0
