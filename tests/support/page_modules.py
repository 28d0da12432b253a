"""Runs functions of the dashboard's modules in Node.js, which starts in a twentieth of a browser's time.

It is for modules that need no document. `evaluate` takes what playwright's `page.evaluate` takes:

    modules.evaluate('async (text) => (await import("/dashboard/inputs/csv_text.js")).parseCsv(text)', "a,b")
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from turnpike.service.api.dashboard import FOLDER

# the oldest version that loads a .js file with imports as a module, without a package.json that says so
OLDEST_NODE = (20, 19)
EVALUATOR = Path(__file__).with_name("page_modules.mjs")


def find_node() -> str:
    """The path of Node.js; skips the test if there is none, or too old a one."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("expected Node.js on the PATH, which runs the page's modules, got none")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    major, minor, _ = version.removeprefix("v").split(".", 2)
    if (int(major), int(minor)) < OLDEST_NODE:
        pytest.skip(f"expected Node.js {'.'.join(map(str, OLDEST_NODE))} or newer, got {version}")
    return node


class PageModules:
    """A Node.js process in which functions run one after another."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def evaluate(self, function: str, argument: Any = None) -> Any:
        """What the function returns for the argument; both are passed as JSON, so NaN is null."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        source = function.replace('"/dashboard/', f'"{FOLDER.resolve().as_uri()}/')
        self._process.stdin.write(json.dumps({"source": source, "argument": argument}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer.get("result")


@contextmanager
def page_modules() -> Iterator[PageModules]:
    command = [find_node(), str(EVALUATOR)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield PageModules(process)
        assert process.stdin is not None
        process.stdin.close()
