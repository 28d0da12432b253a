"""The tests of the dashboard's modules that need no document (tests/javascript), which run in Node.js."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.support.page_modules import find_node
from tests.support.source_files import ROOT

TESTS = sorted((ROOT / "tests/javascript").glob("*.test.js"))


def run_tests(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [find_node(), "--test", "--test-reporter", "spec", *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_the_modules_of_the_page() -> None:
    assert TESTS
    done = run_tests(*TESTS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_module_fails(tmp_path: Path) -> None:
    test = tmp_path / "wrong.test.js"
    test.write_text(
        'import test from "node:test";\ntest("is wrong", () => { throw new Error("on purpose"); });\n'
    )
    done = run_tests(test)
    assert done.returncode == 1
    assert "on purpose" in done.stdout


def test_the_lock_file_names_no_registry() -> None:
    """Versions and digests are enough: each user's npm has a registry of its own."""
    text = (ROOT / "javascript/package-lock.json").read_text()
    assert "://" not in text
    packages = json.loads(text)["packages"]
    named = json.loads((ROOT / "javascript/package.json").read_text())["devDependencies"]
    assert named == packages[""]["devDependencies"]
    for name, version in named.items():
        entry = packages[f"node_modules/{name}"]
        assert entry["version"] == version, name
        assert entry["integrity"].startswith("sha512-"), name
