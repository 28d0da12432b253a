"""Every file in examples/ runs as it stands."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import requests

from tests.support.asgi_servers import AsgiServer, asgi_server
from tests.support.bundled_requests import BODY, INFER
from tests.support.live_server import Server, free_port, serving
from tests.support.python_path import python_path
from turnpike.service.artifact.runtime import open_model

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
MODEL = ROOT / "service/default/digits-10/1/model.onnx"


def run(folder: Path, *command: str | Path) -> str:
    """Run an example in a folder, with the environment's programs on the path; returns its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TURNPIKE")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment["PYTHONPATH"] = python_path()
    result = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


def test_every_example_is_listed() -> None:
    """examples/README.md lists exactly these files."""
    listed = re.findall(r"\]\(([^/)]+)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(path.name for path in EXAMPLES.iterdir() if path.suffix in {".py", ".sh"})


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_the_example_train_and_serve_runs(tmp_path: Path) -> None:
    printed = run(tmp_path, EXAMPLES / "train_and_serve.sh", "here", str(free_port()))
    assert '"label":"0"' in printed.replace(" ", "")
    assert (tmp_path / "here/repository/digits-10/1/model.onnx").exists()
    assert (tmp_path / "here/report/index.html").exists()


@pytest.mark.slow
def test_the_example_export_your_module_runs(tmp_path: Path) -> None:
    printed = run(tmp_path, sys.executable, EXAMPLES / "export_your_module.py")
    assert "layer00.transform_gate: layer 0, coupled, 20 units" in printed
    assert (tmp_path / "repository/mine/1/model.onnx").exists()


def test_the_example_gates_client_runs(server: Server, tmp_path: Path) -> None:
    printed = run(tmp_path, sys.executable, EXAMPLES / "gates_client.py", server.url)
    assert printed.startswith("a 0, with the probability ")
    assert len(re.findall(r"^layer\d\d\.transform_gate  ", printed, re.MULTILINE)) == 10
    assert printed.count("without layer") == 10


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_the_example_score_a_file_runs(server: Server, tmp_path: Path, suffix: str) -> None:
    """The outputs are, bit for bit, those of the file."""
    rows = np.random.default_rng(0).integers(0, 17, (300, 64))
    if suffix == "npy":
        np.save(tmp_path / "rows.npy", rows)
    else:
        np.savez(tmp_path / "rows.npz", x=rows)
    command = [sys.executable, EXAMPLES / "score_a_file.py", f"rows.{suffix}", "scores.npy"]
    printed = run(tmp_path, *command, "--url", server.url)
    assert "scored 300 rows in 3 requests" in printed
    inputs = {"x": rows.astype(np.float32).reshape(-1, 1, 8, 8)}
    expected = open_model(MODEL).run(inputs, ["output"])[0]
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npy"), expected)


@contextlib.contextmanager
def example_app(name: str, folder: Path) -> Iterator[AsgiServer]:
    """A server that runs the application of an example in a folder."""
    path = f"{EXAMPLES}{os.pathsep}{python_path()}"
    with asgi_server("uvicorn", f"{name}:app", folder, PYTHONPATH=path) as running:
        yield running


def test_the_example_hooks_lookup_runs(tmp_path: Path) -> None:
    with example_app("hooks_lookup", tmp_path) as app:
        answer = app.post("/v1/models/digits-10:predict", {"instances": [2, 1, 2]}).json()
        assert [prediction["label"] for prediction in answer["predictions"]] == ["1", "0", "1"]
        refused = app.post("/v1/models/digits-10:predict", {"instances": [1, 3]})
        assert (refused.status_code, refused.json()) == (400, {"error": "picture 3 is unknown"})


def test_the_example_hooks_add_column_runs(tmp_path: Path) -> None:
    with example_app("hooks_add_column", tmp_path) as app:
        scores, margin = app.post(INFER, BODY).json()["outputs"]
        best = sorted(scores["data"])
        assert (margin["name"], margin["shape"]) == ("margin", [1])
        assert margin["data"][0] == pytest.approx(best[-1] - best[-2], rel=1e-5)


@pytest.mark.slow
def test_the_example_wine_table_runs(tmp_path: Path) -> None:
    assert run(tmp_path, sys.executable, EXAMPLES / "wine_table.py") == "wrote wine.csv\n"
    header, *rows = (tmp_path / "wine.csv").read_text(encoding="utf-8").splitlines()
    assert header.startswith("alcohol [%],malic_acid,")
    assert (len(rows), len(header.split(","))) == (178, 14)


def test_the_example_fastapi_login_guards_the_models() -> None:
    """The token of one worker is valid in the others."""
    variables = {"SECRET": "of the test", "PYTHONPATH": f"{EXAMPLES}:{python_path()}"}
    with serving("--app", "fastapi_login:app", "--workers", 2, **variables) as server:
        assert server.post("/ml" + INFER, BODY).status_code == 401
        form = {"username": "ada", "password": "wrong"}
        assert requests.post(f"{server.url}/token", data=form, timeout=10).status_code == 401
        form["password"] = "lovelace"
        token = requests.post(f"{server.url}/token", data=form, timeout=10).json()["access_token"]
        headers = {"Authorization": f"Bearer {token}"}
        for _ in range(8):
            assert server.get("/me", headers=headers).json() == {"name": "ada"}
            assert server.post("/ml" + INFER, BODY, headers=headers).status_code == 200
        headers["Authorization"] += "0"
        assert server.post("/ml" + INFER, BODY, headers=headers).status_code == 401
