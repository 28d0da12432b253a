"""Allowed imports: between packages, between the folders of a package, and of third-party libraries.

The checks read the code itself (AST), so they also see imports inside functions and under TYPE_CHECKING.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.source_files import PACKAGES, ROOT, files, write

# package: modules of other packages that it may import
BRIDGES: dict[str, set[str]] = {
    "common": set(),
    "reporting": set(),
    "models": set(),
    "service": set(),
    "loadtest": set(),
    "client": {"service.grpc.messages"},
    "export": {"models", "service.artifact"},
    "score": {"service"},
    "tune": {"loadtest", "service.artifact", "service.config", "service.errors", "service.repository"},
}

# package: libraries it must not import
FORBIDDEN_LIBRARIES = {
    "common": set(),  # a test of its own, which covers reporting too
    "reporting": set(),
    "models": {"onnx", "onnxruntime", "onnxscript", "fastapi"},
    # uvicorn can run the application in place of the service's own server, which needs nothing of it
    "service": {"torch", "onnx", "onnxscript", "uvicorn"},
    "export": {"fastapi", "uvicorn"},
    "loadtest": {"torch", "onnx", "onnxruntime"},
    "score": {"torch", "onnx", "onnxruntime", "fastapi"},
    # tune runs `turnpike serve` and `turnpike export` as processes
    "tune": {"torch", "onnx", "onnxruntime", "fastapi", "locust"},
    # pandas only if a caller has imported it
    "client": {"torch", "onnx", "onnxruntime", "fastapi", "pandas"},
}

# package: {folder or top-level module: parts of the same package that it may import}. A top-level module
# that is not listed is a leaf: every folder may import it, and it may only import other leaves.
DIRECTIONS: dict[str, dict[str, set[str]]] = {
    "reporting": {
        "page": {"svg", "chart", "markup"},
        "svg": {"chart", "markup"},
        "chart": set(),
        "markup": set(),
    },
    "models": {
        "cli": {"study", "plots", "training", "networks", "data", "data.table"},
        "study": {"plots", "training", "networks", "data"},
        "plots": {"training", "networks", "layers", "data"},
        "training": {"networks", "layers", "data"},
        "networks": {"layers"},
        "layers": set(),
        "data": {"data.table"},
        "data.table": set(),
    },
    "export": {
        "cli": {
            "compress",
            "verify",
            "claims",
            "identity",
            "optimized",
            "pipeline",
            "output",
            "precision",
            "trace",
            "report",
        },
        "compress": {
            *("compress.graph", "model_report", "prepared_graph", "proved_graph"),
            *("graph_identity", "identity"),
            *("sources", "sources.graph", "sources.data"),
            *("gates", "gates.highways", "gates.graph", "measure", "parity", "precision", "output", "report"),
        },
        "compress.graph": {"gates", "gates.highways", "gates.graph"},
        "verify": {
            *("claims", "compress", "optimized", "prepared_graph", "graph_identity", "identity"),
            *("gates", "sources", "parity", "precision", "output"),
        },
        "claims": {
            *("compress", "prepared_graph", "proved_graph", "identity", "optimized", "sources.data"),
            *("gates", "parity", "measure", "precision", "output"),
        },
        "optimized": {
            *("graph_identity", "parity", "measure"),
            *("identity", "identity.onnx", "identity.algebra", "identity.algebra.arithmetic"),
            "identity.numbers",
        },
        "witness": {"prepared_graph", "identity", "parity"},
        "graph_identity": {"prepared_graph", "identity", "gates", "parity", "witness"},
        "identity": {
            *("identity.aten", "identity.onnx", "identity.algebra", "identity.algebra.arithmetic"),
            "identity.numbers",
        },
        "identity.aten": {"identity.algebra", "identity.algebra.arithmetic", "identity.numbers"},
        "identity.onnx": {"identity.algebra", "identity.algebra.arithmetic", "identity.numbers"},
        "identity.algebra": {"identity.algebra.arithmetic", "identity.numbers"},
        "identity.algebra.arithmetic": {"identity.numbers"},
        "identity.numbers": set(),
        "pipeline": {
            *("sources", "sources.data", "prepared_graph", "proved_graph", "measure", "precision"),
            *("output", "model_report", "report"),
        },
        "model_report": {"proved_graph", "report"},
        "proved_graph": {
            *("prepared_graph", "graph_identity", "identity", "optimized", "parity", "precision", "output"),
        },
        "report": {"parity", "precision", "measure"},
        "precision": {"measure", "trace"},
        "parity": {"gates", "identity.aten", "trace"},
        "prepared_graph": {"gates", "gates.highways", "trace", "output"},
        "sources": {
            *("sources.module", "sources.program", "sources.graph", "sources.data", "sources.preprocess"),
            "trace",
        },
        "sources.module": {"trace"},
        "sources.program": {"trace"},
        "sources.graph": {"trace"},
        "sources.data": set(),
        "sources.preprocess": set(),
        "measure": set(),
        "trace": set(),
        "gates": {"gates.highways", "gates.algebra", "gates.graph"},
        "gates.highways": {
            *("gates.algebra", "gates.graph"),
            *("identity.onnx", "identity.algebra", "identity.algebra.arithmetic", "identity.numbers"),
        },
        "gates.algebra": {"gates.graph"},
        "gates.graph": set(),
        "output": set(),
    },
    "service": {
        "cli": {
            *(
                "ray",
                "grpc",
                "embedded",
                "api",
                "process",
                "registry",
                "codec",
                "codec.tables",
                "config",
                "repository",
                "artifact",
            ),
            *("config.settings", "telemetry"),
        },
        "ray": {
            "api",
            "process",
            "requests",
            "http.connection",
            "config",
            "config.settings",
            "remote",
            "repository",
            "telemetry",
        },
        "process": {
            "grpc.connection",
            "http.connection",
            "config",
            "config.settings",
            "remote",
            "repository",
            "memory",
            "telemetry",
            "weights",
        },
        "asgi": {"embedded"},
        "embedded": {
            *("api", "api.openapi", "process", "http", "http.connection", "requests", "config"),
            *("config.settings", "remote", "registry", "repository", "telemetry"),
        },
        "grpc": {"grpc.methods", "grpc.messages", "api", "registry", "requests", "config.settings"},
        "grpc.methods": {
            *("grpc.messages", "grpc.connection", "api", "requests", "registry", "gates", "memory"),
        },
        "grpc.messages": {"codec", "gates", "artifact"},
        "grpc.connection": {"http.connection", "requests"},
        "api": {
            *(
                "api.openapi",
                "http.connection",
                "http",
                "requests",
                "registry",
                "batching",
                "gates",
                "codec",
                "codec.tables",
            ),
            *("config", "config.settings", "repository", "artifact", "memory", "telemetry", "weights"),
        },
        "api.openapi": {"http", "requests"},
        "http.connection": {"requests", "config.settings"},
        "http": {"requests", "memory"},
        "requests": {"codec", "config.settings", "memory", "telemetry"},
        "registry": {
            "gates",
            "batching",
            "repository",
            "config",
            "config.settings",
            *("artifact", "artifact.onnx_file"),
            "memory",
            "telemetry",
            "weights",
        },
        "codec": {"codec.tables", "gates", "artifact"},
        "codec.tables": {"artifact"},
        "gates": {"artifact"},
        "config": {"config.settings", "remote", "repository", "artifact", "artifact.onnx_file"},
        "config.settings": {"artifact"},
        "telemetry": {"batching"},
        "remote": {"repository", "artifact", "artifact.onnx_file", "memory"},
        "repository": set(),
        "batching": set(),
        "artifact": {"artifact.onnx_file", "memory"},
        "artifact.onnx_file": set(),
        "memory": set(),
        "weights": {"config.settings"},
    },
    "loadtest": {
        "locustfile": {"locust_hooks", "generate"},
        "locust_hooks": {"cli", "report", "generate", "measure", "workload"},
        "cli": {"run", "report", "measure"},
        "run": {"generate", "measure", "workload"},
        "report": {"measure", "workload"},
        "measure": {"workload"},
        "generate": {"workload"},
        "workload": set(),
    },
    "score": {
        "cli": {"run", "job"},
        "run": {"engines", "job", "readers"},
        "engines": {"job", "readers"},
        "job": {"readers"},
        "readers": set(),
    },
    "tune": {
        "cli": {"run", "report", "result", "trial", "search"},
        "run": {"result", "trial", "search"},
        "report": {"result", "search"},
        "result": {"trial", "search"},
        "trial": {"search"},
        "search": set(),
    },
    "client": {
        "client": {"sender", "cells", "inputs", "options", "results"},
        "sender": {"http", "grpc", "transport", "inputs", "options"},
        "http": {"transport", "inputs"},
        "grpc": {"transport", "inputs"},
        "cells": {"inputs"},
        "transport": {"inputs"},
        "results": {"inputs"},
        "options": set(),
        "inputs": set(),
    },
    "benchmarks": {
        "__main__": {
            *("report", "comparison", "growth", "cost", "cuda", "under_load"),
            *("measurement", "contestants", "results"),
        },
        "report": {"comparison", "growth", "cost", "under_load", "cuda", "results"},
        "comparison": {"measurement", "contestants", "results"},
        "growth": {"measurement", "contestants", "results"},
        "under_load": {"cost", "measurement", "contestants", "results"},
        "scaling": {"cost", "measurement"},
        "cuda": {"measurement", "contestants", "results"},
        "cost": {"measurement", "contestants", "results"},
        "measurement": {"contestants"},
        "contestants": set(),
        "compression": {"measurement", "contestants", "results"},
        "museum": {"results"},
        "reading": {"results"},
        "results": set(),
    },
}


# A folder has at least this many modules and sub-folders, and at most this many modules, `__init__` included.
MIN_ENTRIES, MAX_MODULES = 3, 15
# folders with fewer modules and sub-folders
SMALL_FOLDERS = {"score/cli": "the command that every package with a command has in this place"}


OUR_PREFIXES = tuple(f"turnpike.{package}" for package in PACKAGES)


def imported_modules(path: Path, root: Path = ROOT) -> set[str]:
    """Every module that a file imports; `from a import b` is `a.b` if that is a module of ours, else `a`.

    Modules of ours are without `turnpike.`, as in `service.errors`. A public name keeps it, as in
    `turnpike.Client`.
    """
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: expected absolute imports, got a relative one"
            module = str(node.module)
            folder = root / module.removeprefix("turnpike").lstrip(".").replace(".", "/")
            for alias in node.names:
                is_module = (folder / alias.name).is_dir() or (folder / f"{alias.name}.py").exists()
                modules.add(f"{module}.{alias.name}" if is_module or module == "turnpike" else module)
    return {
        module.removeprefix("turnpike.") if module.startswith(OUR_PREFIXES) else module for module in modules
    }


def foreign_imports(package: str, root: Path = ROOT) -> list[str]:
    """Imports of other packages, apart from its bridges, and of libraries that a package must not know."""
    # `import turnpike` and `from turnpike import service` alone give the folder of a package
    bridges = BRIDGES[package] | {name.split(".")[0] for name in BRIDGES[package]} | {"turnpike"}
    others = {*PACKAGES, "turnpike"} - {package, "common", "reporting"}

    def is_allowed(module: str) -> bool:
        return module in bridges or any(module.startswith(f"{name}.") for name in BRIDGES[package])

    return [
        f"{path.relative_to(root)} imports {module}"
        for path in files(package, root)
        for module in sorted(imported_modules(path, root))
        for top in [module.split(".")[0]]
        if top in FORBIDDEN_LIBRARIES[package] or (top in others and not is_allowed(module))
    ]


def unit_of(module: str, table: Mapping[str, object]) -> str:
    """The folder or top-level module of a package that a module belongs to: the longest name in the table."""
    _, *parts = module.split(".")
    names = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((name for name in names if name in table), parts[0] if parts else "__init__")


def edges(package: str, root: Path = ROOT) -> dict[tuple[str, str], str]:
    """Imports between the folders of a package: (importer, imported), each with one file as an example."""
    table = DIRECTIONS.get(package, {})
    found = {}
    for path in files(package, root):
        importer = unit_of(".".join(path.relative_to(root).with_suffix("").parts), table)
        for module in imported_modules(path, root):
            if module.startswith(f"{package}."):
                found[importer, unit_of(module, table)] = f"{path.relative_to(root)} imports {module}"
    # the package's own __init__ may offer any of its names
    return {edge: example for edge, example in found.items() if edge[0] not in {edge[1], "__init__"}}


def wrong_directions(package: str, root: Path = ROOT) -> list[str]:
    """Imports that DIRECTIONS does not allow."""
    table = DIRECTIONS[package]
    return sorted(
        example
        for (importer, imported), example in edges(package, root).items()
        if imported in table and imported not in table.get(importer, set())
    )


def cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """One cycle of a graph, as the names along it; empty if there is none."""
    finished: set[str] = set()

    def visit(node: str, trail: list[str]) -> list[str]:
        if node in trail:
            return [*trail[trail.index(node) :], node]
        if node in finished:
            return []
        for target in sorted(graph.get(node, ())):
            if found := visit(target, [*trail, node]):
                return found
        finished.add(node)
        return []

    return next((found for node in sorted(graph) if (found := visit(node, []))), [])


def folder_cycle(package: str, root: Path = ROOT) -> list[str]:
    """One cycle between the folders of a package, or between its top-level modules."""
    graph: dict[str, set[str]] = {}
    for importer, imported in edges(package, root):
        graph.setdefault(importer, set()).add(imported)
    return cycle(graph)


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_they_may(package: str) -> None:
    assert files(package), f"{package} has no modules"
    assert foreign_imports(package) == []


@pytest.mark.parametrize(("package", "below"), [("common", ()), ("reporting", ("common",))])
def test_the_ground_floor_imports_the_standard_library_alone(package: str, below: tuple[str, ...]) -> None:
    """Apart from NumPy in `common.datatypes`, so that every other module runs on every installation."""
    importers = {
        (str(path.relative_to(ROOT)), module)
        for path in files(package)
        for module in imported_modules(path)
        if module.split(".")[0] not in {*sys.stdlib_module_names, package, *below}
    }
    assert importers == ({("common/datatypes.py", "numpy")} if package == "common" else set())


def test_the_import_check_finds_foreign_imports(tmp_path: Path) -> None:
    """They may be inside a function, use `from`, or be for type checkers only."""
    write(
        tmp_path,
        service__function="def f():\n    import torch.nn\n",
        service__bridge="from turnpike.models.layers.gate import DenseGate\n",
        service__typing=(
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from turnpike import Client\n"
        ),
    )
    assert foreign_imports("service", tmp_path) == [
        "service/bridge.py imports models.layers.gate",
        "service/function.py imports torch.nn",
        "service/typing.py imports turnpike.Client",
    ]


def test_export_knows_only_the_artifact_of_the_service(tmp_path: Path) -> None:
    """The manifest and the runtime are the one contract between the two; anything else would be noticed."""
    assert {name for name in BRIDGES["export"] if name.startswith("service")} == {"service.artifact"}
    write(
        tmp_path,
        service__errors="",
        service__artifact__manifest="",
        service__protocol__tensors="",
        export__good="from turnpike.service.artifact import manifest\n",
        export__bad="from turnpike.service.codec.tensors import decode\n",
        export__worse="from turnpike.service import errors\n",
    )
    assert foreign_imports("export", tmp_path) == [
        "export/bad.py imports service.codec.tensors",
        "export/worse.py imports service.errors",
    ]


@pytest.mark.parametrize("package", DIRECTIONS)
def test_folders_import_in_one_direction(package: str) -> None:
    assert wrong_directions(package) == []


@pytest.mark.parametrize("package", DIRECTIONS)
def test_the_table_of_directions_is_complete(package: str) -> None:
    """Every folder is in the table, every name in the table exists, and the table itself has no cycle."""
    table = DIRECTIONS[package]
    folders = {
        ".".join(path.parent.relative_to(ROOT / package).parts)
        for path in (ROOT / package).rglob("__init__.py")
        if path.parent != ROOT / package
    }
    assert folders - set(table) == set()
    for name in table:
        path = ROOT / package / name.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").exists(), name
    assert set().union(*table.values()) <= set(table)
    assert cycle(table) == []


def wrong_sizes(package: str, root: Path = ROOT) -> list[str]:
    """Folders with too few entries (modules and sub-folders) or too many modules."""
    found = []
    folders = {path.parent for path in files(package, root)}
    for folder in sorted(folders):
        name = str(folder.relative_to(root))
        modules = len(list(folder.glob("*.py")))
        entries = modules + sum(other.parent == folder for other in folders)
        if modules > MAX_MODULES or (entries < MIN_ENTRIES and name not in SMALL_FOLDERS):
            found.append(f"{name}: {modules} modules")
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_folders_have_few_modules_but_not_too_few(package: str) -> None:
    assert wrong_sizes(package) == []


def test_the_size_check_finds_wrong_folders(tmp_path: Path) -> None:
    names = {f"tune__search__m{number}": "" for number in range(MAX_MODULES + 1)}
    write(tmp_path, tune__a="", tune__run__b="", **names)
    assert wrong_sizes("tune", tmp_path) == ["tune/run: 1 modules", "tune/search: 16 modules"]


def test_the_direction_check_finds_wrong_imports(tmp_path: Path) -> None:
    """An import up, one by a leaf, and one into a sub-folder; imports down and of leaves are fine."""
    write(
        tmp_path,
        service__errors="from turnpike.service.config import settings\n",
        service__config__settings="import turnpike.service.errors\n",
        service__codec__tensors=(
            "from turnpike.service.gates import reader\nfrom turnpike.service.errors import X\n"
        ),
        service__gates__reader="def f():\n    from turnpike.service.codec.tensors import T\n",
        service__api__openapi__document="from turnpike.service.api.app import App\n",
        service__api__app="from turnpike.service.api.openapi.document import document\n",
    )
    assert wrong_directions("service", tmp_path) == [
        "service/api/openapi/document.py imports service.api.app",
        "service/errors.py imports service.config.settings",
        "service/gates/reader.py imports service.codec.tensors",
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_cycles_between_folders(package: str) -> None:
    """There is none between top-level modules either."""
    assert folder_cycle(package) == []


def test_the_cycle_check_finds_cycles(tmp_path: Path) -> None:
    write(
        tmp_path,
        tune__run="from turnpike.tune.search import search\n",
        tune__search="import turnpike.tune.plan\n",
        tune__plan="def f():\n    from turnpike.tune import run\n",
        tune__errors="",
    )
    assert folder_cycle("tune", tmp_path) == ["plan", "run", "search", "plan"]


def test_only_runtime_py_imports_onnxruntime() -> None:
    """`service/artifact/runtime.py`; the float16 converter is part of the library but opens no model."""
    importers = {
        (str(path.relative_to(ROOT)), module)
        for package in PACKAGES
        for path in files(package)
        for module in imported_modules(path)
        if module.split(".")[0] == "onnxruntime"
    }
    assert importers == {
        ("service/artifact/runtime.py", "onnxruntime"),
        ("service/artifact/runtime.py", "onnxruntime.capi.onnxruntime_pybind11_state"),
        ("export/precision/half_precision.py", "onnxruntime.transformers.float16"),
    }


def test_tests_import_no_other_tests() -> None:
    """Helpers that several tests use are in tests/support."""
    importers = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in files("tests")
        for module in sorted(imported_modules(path))
        if module.startswith("tests.") and ".test_" in module
    ]
    assert importers == []
