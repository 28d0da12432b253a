"""Runs tests against random small errors in the code: `make mutants`.

Each mutant is made in a copy of the repository, and the tests of its module run until one fails, which kills
it. Mutants that survive are printed: each is either equivalent, so that no test could notice it, or a gap in
the tests. README.md has the last results.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import random
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from tests.mutants.mutate import Mutant, count_mutants, make_mutant
from tests.support.python_path import python_path
from tests.support.repository_copy import ROOT, TESTS_FAILED, TESTS_PASSED, in_copies

# code that computes and decides, whose errors would show in nothing but a wrong number or a lost request
TARGETS = (
    *("service/batching", "service/codec", "service/registry", "service/repository", "service/gates"),
    *("export/gates", "export/parity", "models/layers"),
)
# tests outside of the folder that mirrors the code's, which run after those within it
MORE_TESTS = {
    "service/gates": ["tests/service/api/test_gates.py", "tests/service/api/test_lesion.py"],
}
# libraries that take longer to import than most tests of a module
PRELOADED = ("torch", "torch.onnx", "onnx", "onnxruntime", "fastapi", "numpy.testing")
# A mutant that never ends is stopped after this. Tests of a whole folder take up to half of it.
SECONDS, TEST_SECONDS = 240, 30


def tests_of(path: str, root: Path) -> list[str]:
    """The files with the tests of a module: its own, then those of its folder and around it."""
    module = Path(path)
    own, folder = f"test_{module.stem}", root / "tests" / module.parent
    files = sorted((root / "tests" / Path(*module.parent.parts[:2])).rglob("test_*.py"))
    files.sort(key=lambda file: (not file.stem.startswith(own), not file.is_relative_to(folder)))
    names = [str(file.relative_to(root)) for file in files]
    return names + MORE_TESTS.get(str(module.parent), [])


def draw_mutants(count: int, seed: int, targets: Sequence[str]) -> list[tuple[str, Mutant]]:
    """Random mutants of these folders and files, with the paths of their modules."""
    paths = [
        path
        for target in targets
        for path in (sorted((ROOT / target).rglob("*.py")) if (ROOT / target).is_dir() else [ROOT / target])
    ]
    sources = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    known = [(path, number) for path, source in sources.items() for number in range(count_mutants(source))]
    drawn = random.Random(seed).sample(known, min(count, len(known)))
    return [(path, make_mutant(sources[path], number)) for path, number in drawn]


def is_killed(entry: tuple[str, Mutant], copy: Path) -> bool:
    """Whether a test fails in this copy with the mutant in it."""
    path, mutant = entry
    file = copy / path
    source = file.read_text(encoding="utf-8")
    file.write_text(mutant.source, encoding="utf-8")
    try:
        status = run_forked(copy, tests_of(path, copy), SECONDS)
    finally:
        file.write_text(source, encoding="utf-8")
    if status in (pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.USAGE_ERROR):
        sys.exit(f"{path}: expected tests of this module, got status {status} of pytest")
    return status != TESTS_PASSED


def expect_tests_pass(paths: Iterable[str]) -> None:
    """Exit unless the tests pass without a mutant: tests that always fail would kill them all."""
    names = dict.fromkeys(name for path in paths for name in tests_of(path, ROOT))
    ((_, status),) = in_copies([list(names)], run_all, 1)
    if status != TESTS_PASSED:
        sys.exit("expected tests that pass without a mutant: see `make test`")


def run_all(names: list[str], copy: Path) -> int:
    return run_forked(copy, names, 10 * SECONDS)


def run_forked(copy: Path, names: Sequence[str], seconds: float) -> int:
    """Run tests in a copy until one fails, in a fork of this process, which has imported the libraries.

    Returns the exit status of pytest. Tests that take longer than `seconds` have failed.
    """
    process = os.fork()
    if not process:
        _run_in_child(copy, names)
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
    finally:
        # a test that was cut off leaves its servers
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return TESTS_FAILED


def _run_in_child(copy: Path, names: Sequence[str]) -> NoReturn:
    status = int(TESTS_FAILED)
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        os.chdir(copy)
        os.environ |= {"PYTHONPATH": python_path(copy, root=copy), "PYTHONDONTWRITEBYTECODE": "1"}
        # the copy's own modules, not those of this program
        sys.path[:0] = [str(copy / "src"), str(copy)]
        sys.dont_write_bytecode = True
        for module in [name for name in sys.modules if name.split(".")[0] in {"tests", "turnpike"}]:
            del sys.modules[module]
        options = ["--quiet", "--exitfirst", "-p", "no:cacheprovider", "--timeout", str(TEST_SECONDS)]
        # some libraries have plugins for pytest
        options += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
        status = int(pytest.main([*options, *names]))
    finally:
        os._exit(status)


def main() -> None:
    # without this, SIGTERM would leave the copies behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # as in tests/conftest.py, which is too late for libraries that are imported here
    os.environ["OMP_NUM_THREADS"] = "1"
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="draws the mutants (default: %(default)s)")
    parser.add_argument("--count", type=int, default=150, help="mutants to try (default: %(default)s)")
    parser.add_argument("--copies", type=int, default=2, help="mutants to try at once (default: %(default)s)")
    parser.add_argument("targets", nargs="*", default=TARGETS, help="folders or files (default: %(default)s)")
    arguments = parser.parse_args()
    drawn = draw_mutants(arguments.count, arguments.seed, arguments.targets)
    for library in PRELOADED:
        importlib.import_module(library)
    expect_tests_pass({path for path, _ in drawn})
    killed = 0
    for (path, mutant), kill in in_copies(drawn, is_killed, arguments.copies):
        killed += kill
        if not kill:
            sys.stdout.write(f"survived: {path}:{mutant}\n")
            sys.stdout.flush()
    sys.stdout.write(f"seed {arguments.seed}: {killed} of {len(drawn)} killed\n")


if __name__ == "__main__":
    main()
