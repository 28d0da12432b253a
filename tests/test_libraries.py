"""Packages and commands work without the libraries that they do not need, and import none of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.live_server import environment
from tests.support.source_files import ROOT
from turnpike.commands import COMMANDS

BUNDLED_MODEL = "service/default/digits-10/1/model.onnx"

# imports every module of a package while some libraries do not exist
IMPORT_WITHOUT = """
import importlib, pkgutil, sys

# libraries of an extra, which the modules of these folders import
OPTIONAL = {{"turnpike.service.ray": {{"ray"}}, "turnpike.client": {{"turnpike.service"}}}}

class Absent:
    def find_spec(self, name, path=None, target=None):
        for absent in {names}:
            if name == absent or name.startswith(absent + "."):
                raise ModuleNotFoundError(f"{{name}} is not installed here", name=absent)

sys.meta_path.insert(0, Absent())
package = importlib.import_module({package!r})
for module in pkgutil.walk_packages(package.__path__, {package!r} + "."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL.get(module.name.rpartition(".")[0], ()):
            raise
"""


def run_without(package: str, names: set[str]) -> subprocess.CompletedProcess[str]:
    code = IMPORT_WITHOUT.format(names=names, package=package)
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        # `service.asgi` reads settings from variables
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("package", "names"),
    [
        ("turnpike.service", {"torch", "onnx", "onnxscript", "turnpike.models", "turnpike.export", "ray"}),
        pytest.param(
            "turnpike.models",
            {"onnx", "onnxruntime", "onnxscript", "fastapi", "turnpike.service", "turnpike.export"},
            marks=pytest.mark.slow,
        ),
        (
            "turnpike.loadtest",
            {"torch", "onnx", "onnxruntime", "turnpike.models", "turnpike.export", "turnpike.service"},
        ),
        ("turnpike.score", {"torch", "onnx", "onnxscript", "turnpike.models", "turnpike.export", "fastapi"}),
        (
            "turnpike.tune",
            {"torch", "onnx", "onnxruntime", "turnpike.models", "turnpike.export", "fastapi", "locust"},
        ),
        (
            "turnpike.client",
            {"pandas", "torch", "onnxruntime", "turnpike.models", "turnpike.export", "turnpike.service"},
        ),
    ],
)
def test_packages_can_be_imported_without_foreign_libraries(package: str, names: set[str]) -> None:
    """Each package runs on a machine that has only what it needs."""
    result = run_without(package, names)
    assert result.returncode == 0, result.stderr


def test_the_library_check_finds_missing_libraries() -> None:
    """The same check fails for a package that needs the library."""
    result = run_without("turnpike.models", {"torch"})
    assert result.returncode != 0
    assert "torch is not installed here" in result.stderr


# runs commands in one process, and says after which of them a library was imported
IMPORTED_BY_COMMANDS = """
import sys
from turnpike import cli
for arguments, libraries in {commands}:
    try:
        cli.app(arguments)
    except SystemExit as ended:
        assert not ended.code, arguments
    if imported := libraries & sys.modules.keys():
        sys.exit(f"{{arguments}} imported {{imported}}")
"""
LARGE_LIBRARIES = {
    *("torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime"),
    *("fastapi", "matplotlib", "sklearn", "sympy", "locust"),
}


def imported_by(*commands: tuple[list[str], set[str]]) -> subprocess.CompletedProcess[str]:
    code = IMPORTED_BY_COMMANDS.format(commands=commands)
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


def test_help_and_lists_import_no_large_library() -> None:
    """`--help` of every command, `train --list` and `inspect` answer at once; `inspect` opens a model."""
    # the help of these two shows the devices of the runtime
    with_runtime = (["verify", "--help"], ["inspect", "--help"], ["inspect", BUNDLED_MODEL])
    without = [["--help"], ["train", "--list"], *([name, "--help"] for name in COMMANDS)]
    result = imported_by(
        (["--help"], {*LARGE_LIBRARIES, "numpy", "turnpike.models"}),
        *((arguments, LARGE_LIBRARIES) for arguments in without if arguments not in with_runtime),
        *((arguments, LARGE_LIBRARIES - {"onnxruntime"}) for arguments in with_runtime),
    )
    assert result.returncode == 0, result.stderr
    assert "fitnet-b" in result.stdout
    assert "digits-10" in result.stdout


def test_the_check_of_commands_finds_large_libraries() -> None:
    result = imported_by((["inspect", BUNDLED_MODEL], LARGE_LIBRARIES))
    assert result.returncode == 1
    assert f"['inspect', '{BUNDLED_MODEL}'] imported {{'onnxruntime'}}" in result.stderr
