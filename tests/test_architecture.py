"""The arrows of the house: who may import whom, read from the code itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("models", "export", "service", "loadtest", "tune")

# package: what it may not import. `export` is the one bridge, and the front door imports lazily.
CLOSED = {
    "models": {
        *("export", "service", "loadtest", "tune", "turnpike"),
        *("onnx", "onnxruntime", "onnxscript", "fastapi"),
    },
    "service": {"models", "export", "loadtest", "tune", "turnpike", "torch", "onnx", "onnxscript"},
    "export": {"loadtest", "tune", "turnpike", "fastapi", "uvicorn"},
    "loadtest": {"models", "export", "service", "tune", "turnpike", "torch", "onnx", "onnxruntime"},
    # it serves and exports by commands, as processes of their own
    "tune": {"models", "export", "turnpike", "torch", "onnx", "onnxruntime", "fastapi", "locust"},
}


def modules(path: Path) -> set[str]:
    """The modules that a file imports, wherever in the file it does."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where things come from"
            found.add(str(node.module))
    return found


def imports(path: Path) -> set[str]:
    """The top-level names that a file imports."""
    return {name.split(".")[0] for name in modules(path)}


def forbidden(package: str, root: Path = ROOT) -> list[str]:
    return [
        f"{path.relative_to(root)} imports {name}"
        for path in sorted((root / package).rglob("*.py"))
        for name in sorted(imports(path) & CLOSED[package])
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_arrows_point_down(package: str) -> None:
    """No package imports what it must not know."""
    assert list((ROOT / package).glob("*.py")), f"{package} has no modules"
    assert forbidden(package) == []


def test_a_wrong_arrow_would_be_seen(tmp_path: Path) -> None:
    """The check itself finds an import inside a function, and one with `from`."""
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "bad.py").write_text("def f():\n    import torch.nn\n")
    (tmp_path / "service" / "worse.py").write_text("from models.layers.gate import DenseGate\n")
    assert forbidden("service", tmp_path) == [
        "service/bad.py imports torch",
        "service/worse.py imports models",
    ]


def test_one_place_opens_onnxruntime() -> None:
    """Only `service/artifact/runtime.py` knows it; a converter that comes in its package opens nothing."""
    importers = {
        (str(path.relative_to(ROOT)), name)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for name in modules(path)
        if name.split(".")[0] == "onnxruntime"
    }
    assert importers == {
        ("service/artifact/runtime.py", "onnxruntime"),
        ("service/artifact/runtime.py", "onnxruntime.capi.onnxruntime_pybind11_state"),
        ("export/precision/lower.py", "onnxruntime.transformers.float16"),
    }


IMPORT_WITHOUT = """
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names}:
            raise ModuleNotFoundError(f"{{name}} is not installed here", name=name)

sys.meta_path.insert(0, Absent())
package = importlib.import_module({package!r})
for module in pkgutil.walk_packages(package.__path__, {package!r} + "."):
    importlib.import_module(module.name)
"""


def run_without(package: str, names: set[str]) -> subprocess.CompletedProcess[str]:
    """Import all of a package in a process of its own, in which some libraries do not exist."""
    code = IMPORT_WITHOUT.format(names=names, package=package)
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("package", "names"),
    [
        ("service", {"torch", "onnx", "onnxscript", "models", "export"}),
        ("models", {"onnx", "onnxruntime", "onnxscript", "fastapi", "service", "export"}),
        ("loadtest", {"torch", "onnx", "onnxruntime", "models", "export", "service"}),
        ("tune", {"torch", "onnx", "onnxruntime", "models", "export", "fastapi", "locust"}),
    ],
)
def test_packages_import_where_foreign_worlds_are_absent(package: str, names: set[str]) -> None:
    """Each package runs on a machine that has only what it needs."""
    ran = run_without(package, names)
    assert ran.returncode == 0, ran.stderr


def test_an_absent_library_would_be_noticed() -> None:
    """The same check fails for a package that does need what is taken away."""
    ran = run_without("models", {"torch"})
    assert ran.returncode != 0
    assert "torch is not installed here" in ran.stderr


def test_the_front_door_imports_nothing_heavy() -> None:
    """`turnpike --help` starts without torch, onnx, onnxruntime or fastapi."""
    code = (
        "import sys, turnpike\n"
        "try: turnpike.app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'onnx', 'onnxruntime', 'fastapi', 'numpy', 'models'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "train" in ran.stdout
