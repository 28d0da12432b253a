"""Shows that the tests of reliability can fail: `make controls`.

A control is a small change that turns one defence off. `controls.toml` lists them, with the test of each.
This program makes each change in a copy of the repository. The test must pass before it and fail after it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.support.python_path import python_path
from tests.support.repository_copy import ROOT, TESTS_FAILED, TESTS_PASSED, in_copies

# copies in which controls run at the same time
COPIES = 2
# a test that hangs because its defence is off has failed
TEST_SECONDS = 60
# runs without the defence, of which one must fail: a test of a race does not meet it every time
ATTEMPTS = 3


@dataclass(frozen=True)
class Control:
    """One defence, the change that turns it off, and the test that must then fail."""

    promise: str
    test: str
    file: str
    old: str
    new: str

    @property
    def name(self) -> str:
        return self.test.split("::")[1].split("[")[0]


def read_controls() -> list[Control]:
    text = (ROOT / "tests/reliability/controls.toml").read_text(encoding="utf-8")
    return [Control(**entry) for entry in tomllib.loads(text)["control"]]


def run_test(copy: Path, test: str) -> int:
    """Run one test in a copy of the repository. Returns the exit status of pytest."""
    command = [sys.executable, "-m", "pytest", "--quiet", "--exitfirst", "-p", "no:cacheprovider"]
    command += ["-m", "", "--timeout", str(TEST_SECONDS), test]
    environment = os.environ | {"PYTHONPATH": python_path(copy, root=copy), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        return process.wait(2 * TEST_SECONDS)
    except subprocess.TimeoutExpired:
        return TESTS_FAILED
    finally:
        # a test that was cut off leaves its servers
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def try_control(control: Control, copy: Path) -> str:
    """Return "fails", as it should, or what is wrong."""
    file = copy / control.file
    source = file.read_text(encoding="utf-8")
    if run_test(copy, control.test) != TESTS_PASSED:
        return "DOES NOT PASS with the defence on"
    file.write_text(source.replace(control.old, control.new), encoding="utf-8")
    try:
        for _ in range(ATTEMPTS):
            if (status := run_test(copy, control.test)) != TESTS_PASSED:
                break
    finally:
        file.write_text(source, encoding="utf-8")
    if status == TESTS_FAILED:
        return "fails"
    return "STILL PASSES with the defence off" if status == TESTS_PASSED else f"DID NOT RUN: status {status}"


def try_controls(controls: Iterable[Control]) -> bool:
    """Try all of them and print a line for each. Returns whether every test failed without its defence."""
    all_fail = True
    for control, outcome in in_copies(controls, try_control, COPIES):
        sys.stdout.write(f"{control.name}: {outcome}\n")
        sys.stdout.flush()
        all_fail = all_fail and outcome == "fails"
    return all_fail


if __name__ == "__main__":
    controls = read_controls()
    wanted = set(sys.argv[1:]) or {control.name for control in controls}
    if unknown := wanted - {control.name for control in controls}:
        sys.exit(
            f"expected names of tests in controls.toml, such as {controls[0].name}, got {sorted(unknown)}"
        )
    sys.exit(not try_controls([control for control in controls if control.name in wanted]))
