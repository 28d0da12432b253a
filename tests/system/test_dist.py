"""What `make dist` has built, installed without the checkout in fresh environments, with pinned versions."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

import turnpike
from tests.conformance.suite import differences
from tests.support.conformance_servers import put_models
from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.distributions import DIST, UV, environment, find_python, install, run, wheel
from tests.support.live_server import free_port
from tests.support.source_files import PACKAGES, ROOT
from turnpike.service.grpc.messages.descriptors import message_class

pytestmark = [pytest.mark.dist, pytest.mark.timeout(300)]

PYTHONS = ("3.11", "3.12", "3.13")


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the environments, which the processes of xdist share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "environments"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def served(environments: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a `turnpike serve` from the wheel."""
    with serving(
        [install(environments / "serve", "serve") / "turnpike"], tmp_path_factory.mktemp("cwd")
    ) as url:
        yield url


@contextlib.contextmanager
def serving(turnpike: list[str | Path], folder: Path, *options: str | Path) -> Iterator[str]:
    """The address of a server that runs in a folder; it must leave nothing there."""
    process = subprocess.Popen(
        [*turnpike, "serve", "--port", "0", "--drain-wait", "0", *options],
        cwd=folder,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    before = sorted(folder.rglob("*"))
    assert process.stderr is not None
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if address := re.search(r"serves (http://[^\s\"]+)", line):
                yield address[1]
                break
        else:
            pytest.fail("".join(lines))
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert sorted(folder.rglob("*")) == before


def expect_prediction(url: str) -> None:
    answer = requests.post(f"{url}/v1/models/digits-10:predict", json={"instances": [[0] * 64]}, timeout=30)
    assert answer.status_code == 200, answer.text
    assert set(answer.json()["predictions"][0]) >= {"label", "probability"}


def importable(programs: Path, *names: str) -> list[str]:
    """The libraries of an environment among these."""
    code = f"import importlib.util as u, json; print(json.dumps([n for n in {names!r} if u.find_spec(n)]))"
    found: list[str] = json.loads(run([programs / "python", "-c", code], programs))
    return found


def test_the_wheel_has_exactly_the_tracked_files() -> None:
    """Every module and data file of the packages, in one top-level folder; no tests, no benchmarks."""
    folders = (*PACKAGES, "src")
    tracked = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    expected = {
        name.removeprefix("src/") if name.startswith("src/") else f"turnpike/{name}"
        for name in tracked
        if not (ROOT / name).is_symlink() and not name.endswith(".md")
    }
    with zipfile.ZipFile(wheel()) as archive:
        names = set(archive.namelist())
    information = {name for name in names if name.startswith("turnpike_onnx-")}
    assert names - information == expected
    assert {name.split("/")[0] for name in names - information} == {"turnpike"}
    assert any(name.endswith("licenses/LICENSE") for name in information)


def test_the_sdist_has_one_folder_and_no_tests() -> None:
    """Its packages are folders in src/turnpike; the wheel was built from it."""
    (path,) = DIST.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        members = archive.getmembers()
    assert {member.name.split("/")[0] for member in members} == {path.name.removesuffix(".tar.gz")}
    assert not [member.name for member in members if member.issym() or member.islnk()]
    assert not [member.name for member in members if member.isfile() and "/tests/" in member.name]


def test_a_release_has_addresses_that_a_package_index_can_follow(tmp_path: Path) -> None:
    """GitHub's workflow knows the address of the repository. Links and pictures of the README get it."""
    spec = importlib.util.spec_from_file_location("dist", ROOT / ".ci/dist.py")
    assert spec is not None
    assert spec.loader is not None
    dist = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dist)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    dist.add_addresses(tmp_path, "https://example.org/we/turnpike", "v0.2.0")
    urls = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    assert urls["Source"] == "https://example.org/we/turnpike"
    targets = re.findall(r"\]\(([^)]*)\)", (tmp_path / "README.md").read_text(encoding="utf-8"))
    assert "https://example.org/we/turnpike/raw/v0.2.0/docs/images/dashboard.png" in targets
    assert "https://example.org/we/turnpike/blob/v0.2.0/docs/README.md" in targets
    assert [target for target in targets if not target.startswith("http")] == []


def test_a_checkout_that_lost_its_links_is_not_built(tmp_path: Path) -> None:
    """With `core.symlinks false`, git writes each link as a file with the name of its target."""
    subprocess.run(
        ["git", "clone", "--quiet", "--config", "core.symlinks=false", ROOT, tmp_path / "clone"], check=True
    )
    assert (tmp_path / "clone/src/turnpike/service").is_file()
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "build",
            "--installer",
            "uv",
            "--wheel",
            "--outdir",
            tmp_path,
            tmp_path / "clone",
        ],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode != 0
    assert "expected src/turnpike/client/__init__.py, found none" in built.stdout + built.stderr
    assert list(tmp_path.glob("*.whl")) == []


@pytest.mark.parametrize("version", PYTHONS)
def test_the_service_runs_on_each_python(version: str, environments: Path, tmp_path: Path) -> None:
    """Without torch or onnx: the protocol over HTTP and gRPC, and what workers ask the supervisor for.

    Requests run outside of tasks, in which asyncio of later versions refuses more.
    """
    python = find_python(version)
    if python is None:
        # a release says that it runs on all of them
        assert os.environ.get("TURNPIKE_PYTHONS") != "required", f"expected Python {version}, found none"
        pytest.skip(f"no Python {version} on this machine")
    programs = install(environments / f"serve-{version}", "serve,grpc", python=python)
    put_models(tmp_path / "models")
    shutil.copytree(BUNDLED_MODEL.parents[1], tmp_path / "models/digits-10")
    (tmp_path / "key").write_text("boss-key")
    (tmp_path / "key").chmod(0o600)
    grpc_port = free_port()
    options = (
        "--grpc-port",
        str(grpc_port),
        "--allow-unverified",
        "--admin-key-file",
        "key",
        "--workers",
        "2",
    )
    with serving([programs / "turnpike"], tmp_path, "--models", "models", *options) as url:
        expect_prediction(url)
        stubs = lambda name: message_class(f"inference.{name}")  # noqa: E731
        assert differences(url.removeprefix("http://"), f"127.0.0.1:{grpc_port}", stubs) == {}
        assert "turnpike_workers 2.0" in requests.get(f"{url}/metrics", timeout=30).text
        for change in ("unload", "load"):
            address = f"{url}/v2/repository/models/digits-10/{change}"
            answer = requests.post(address, headers={"X-Api-Key": "boss-key"}, timeout=30)
            assert answer.status_code == 200, answer.text
        expect_prediction(url)
    assert importable(programs, "torch", "onnx", "onnxscript", "models", "service", "client", "tests") == []


def test_uvx_runs_the_wheel(tmp_path: Path) -> None:
    with serving([UV.with_name("uvx"), "--from", f"{wheel()}[serve]", "turnpike"], tmp_path) as url:
        expect_prediction(url)


def test_the_page_has_all_its_files(served: str) -> None:
    """The page, and every file that it loads."""
    page = requests.get(served, headers={"Accept": "text/html"}, timeout=30)
    assert "<title>" in page.text
    files = [name for name in re.findall(r'(?:src|href)="([^"]+)"', page.text) if "dashboard/" in name]
    module = next(name for name in files if name.endswith("main.js"))
    script = requests.get(f"{served}/{module}", timeout=30).text
    imported = re.findall(r'from "\./([^"]+)"', script)
    assert any("/" in name for name in imported), "expected modules in sub-folders"
    for name in [*files, *(f"{module.rsplit('/', 1)[0]}/{name}" for name in imported)]:
        file = requests.get(f"{served}/{name}", timeout=30)
        assert file.status_code == 200, name
        assert file.content, name


def test_the_client_is_small(environments: Path, served: str, tmp_path: Path) -> None:
    """It has neither torch, onnxruntime nor the command line, and `turnpike` says which extra has that."""
    programs = install(environments / "client", "client")
    code = f"from turnpike import Client\nprint(Client({served!r}).predict('digits-10', [[0.0] * 64]))"
    assert "label" in run([programs / "python", "-c", code], tmp_path)
    assert importable(programs, "torch", "onnx", "onnxruntime", "typer", "rich", "fastapi") == []
    size = sum(path.stat().st_size for path in programs.parent.rglob("*") if path.is_file())
    assert size < 100e6
    for command, extra in (("serve", "serve"), ("export", "export")):
        result = subprocess.run(
            [programs / "turnpike", command], capture_output=True, text=True, env=environment(), check=False
        )
        assert result.returncode == 1
        message = f"turnpike {command} needs typer, which is not installed: pip install '{wheel()}[{extra}]'"
        assert result.stderr == f"error: {message}\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with modules of the user's own, which have our names, and with the examples."""
    folder = tmp_path_factory.mktemp("project")
    for name in PACKAGES:
        path = (
            folder / f"{name}.py" if name in {"client", "export", "score"} else folder / name / "__init__.py"
        )
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"raise RuntimeError('this is the {name} of the user')\n")
    shutil.copytree(ROOT / "examples", folder, dirs_exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def everything(environments: Path) -> Path:
    """An environment with the extras of all commands."""
    return install(environments / "everything", "export,serve,grpc,score,loadtest,client")


def in_project(project: Path, programs: Path, line: str) -> str:
    """The output of a line of bash in the user's project."""
    path = f"{programs}:{environment()['PATH']}"
    return run(["bash", "-c", line], project, PATH=path)


def test_the_user_modules_clash(project: Path, everything: Path) -> None:
    """Otherwise the next tests would show nothing."""
    for name in PACKAGES:
        with pytest.raises(AssertionError, match=f"this is the {name} of the user"):
            in_project(project, everything, f"python -c 'import {name}'")


def test_commands_of_the_readme_run_beside_user_modules(project: Path, everything: Path, served: str) -> None:
    """The commands of its table, with a network of the user's. tests/test_docs.py checks their options."""
    (project / "net.py").write_text(
        "from turnpike import HighwayLayer\n\n\ndef make():\n    return HighwayLayer(64)\n"
    )
    (project / "rows.csv").write_text(",".join(["0"] * 64) + "\n")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\| `turnpike (\w+)|`, `turnpike (\w+)", readme, re.MULTILINE)
    run_commands = {
        "train": "turnpike train digits-10 --epochs 1 --out runs/digits-10",
        "compare": "turnpike compare --depths 2 --epochs 1 --out comparison",
        "export": 'turnpike export net.py:make --input "x:float32[batch,64]" --to repository',
        "verify": "turnpike export runs/digits-10 --to repository && "
        "turnpike verify repository/digits-10/1/model.onnx --against runs/digits-10",
        "inspect": "turnpike inspect repository/digits-10/1/model.onnx",
        "predict": "turnpike predict repository/digits-10 rows.csv",
        "score": "turnpike score --model repository/digits-10 --input rows.csv --output scored",
        "loadtest": f"turnpike loadtest {served} --users 2 --duration 2s --report load",
    }
    others = {"compress", "serve", "tune"}  # take minutes, or run in the tests above
    assert {first or second for first, second in commands} == {*run_commands, *others}
    for line in run_commands.values():
        in_project(project, everything, line)
    for file in ("repository/make/1/model.onnx", "scored", "load/loadtest.html", "comparison"):
        assert (project / file).exists(), file


def test_python_of_the_readme_runs_beside_user_modules(project: Path, everything: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", readme, re.DOTALL)):
        (project / f"block{number}.py").write_text(block)
        assert in_project(project, everything, f"python block{number}.py")


def test_examples_run_beside_user_modules(project: Path, everything: Path, served: str) -> None:
    (project / "rows.npy").unlink(missing_ok=True)
    lines = {
        "export_your_module.py": "python export_your_module.py",
        "gates_client.py": f"python gates_client.py {served}",
        "score_a_file.py": "python -c 'import numpy; numpy.save(\"rows.npy\", numpy.zeros((9, 64)))' && "
        f"python score_a_file.py rows.npy scores.npy --url {served}",
        "wine_table.py": "python wine_table.py",
        "hooks_lookup.py": "python hooks_lookup.py",
        "hooks_add_column.py": "python hooks_add_column.py",
        # the test of examples runs it, with python-multipart, which no extra has
        "fastapi_login.py": "python -m py_compile fastapi_login.py",
        # the test of examples runs it; this shows that its programs start
        "train_and_serve.sh": "bash -n train_and_serve.sh",
    }
    examples = {path.name for path in (ROOT / "examples").iterdir() if path.suffix in {".py", ".sh"}}
    assert examples == set(lines)
    for line in lines.values():
        in_project(project, everything, line)


def test_type_checkers_know_the_public_names(environments: Path, tmp_path: Path) -> None:
    """A user's program with every name has no error in strict mypy and in pyright; a wrong one has."""
    shutil.copy(ROOT / "tests/typing/program.py", tmp_path)
    imported = {
        alias.name
        for node in ast.parse((tmp_path / "program.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module == "turnpike"
        for alias in node.names
    }
    assert imported == set(turnpike.__all__)
    (tmp_path / "wrong.py").write_text(
        "from turnpike import Client\n\nnames: list[int] = Client('http://127.0.0.1').models()\n"
    )
    checkers = ("mypy", "pandas-stubs", "pyright[nodejs]")
    programs = install(environments / "typed", "export,serve,client", *checkers)
    for command in (["mypy", "--strict"], ["pyright"]):
        checked = subprocess.run(
            [programs / command[0], *command[1:], "program.py", "wrong.py"],
            cwd=tmp_path,
            env=environment(PATH=f"{programs}:{environment()['PATH']}"),
            capture_output=True,
            text=True,
            check=False,
        )
        (error,) = [line for line in checked.stdout.splitlines() if " error: " in line or " - error" in line]
        assert "wrong.py:3" in error
