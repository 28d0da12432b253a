"""A contestant started, checked, loaded and ended with all that it started: in a process of its own, as all
that descends from it is ended."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import load
from benchmarks.errors import BenchmarkError
from tests.support.live_server import ROOT, environment

# answers each row's sum, but 500 on /odd; has a child that nobody ends, and what it is told to do first
ANSWERER = """
import http.server, json, subprocess, sys

class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["x"]
        body = json.dumps({"logits": [[sum(row)] for row in rows]}).encode()
        status = 500 if self.path == "/odd" else 200
        self.wfile.write(f"HTTP/1.1 {status} .\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n".encode() + body)

if sys.argv[2] == "end":
    sys.exit("no room")
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""

SCENE = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
from benchmarks import bodies, load, processes, server
from benchmarks.contestants import Contestant
from benchmarks.errors import BenchmarkError

program, act, right, wrk = sys.argv[1:]
server.LOGS = Path(program).parent
# the child that has no end waits for it
server.END_SECONDS = 0.3
net = SimpleNamespace(name="sums", inputs=2, bare="", repository=lambda precision: "")
net.rows, net.logits = [[1.0, 2.0], [3.0, 4.0]], [[float(right)], [7.0]]
contestant = Contestant("sums", ("{python}", program, "{port}", act), {"rows": "/sum"})
processes.keep_descendants()
told = {}
try:
    with server.serving(contestant, net) as one:
        one.check("rows", 2)
        told["started"] = one.started
        told["processes"] = processes.memory(processes.descendants())["processes"]
        if wrk == "wrk":
            came = load.drive(one.port, ["/sum", "/odd"], bodies.request("rows", net.rows), 2, 1)
            told["load"] = [came.requests, came.refused, came.lost]
except BenchmarkError as error:
    told["error"] = str(error)
told["left"] = len(processes.descendants())
print(json.dumps(told))
"""


def scene(folder: Path, act: str = "serve", right: float = 3.0, wrk: str = "") -> dict[str, Any]:
    """What came of it."""
    program = folder / "answerer.py"
    program.write_text(ANSWERER)
    done = subprocess.run(
        [sys.executable, "-c", SCENE, program, act, str(right), wrk],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_all_that_a_contestant_started_is_ended(tmp_path: Path) -> None:
    """Its children, too, in sessions of their own."""
    told = scene(tmp_path)
    assert told["started"] > 0
    assert (told["processes"], told["left"]) == (2, 0)


def test_a_wrong_answer_ends_it_at_once(tmp_path: Path) -> None:
    """A contestant that is fast and wrong is none."""
    told = scene(tmp_path, right=4.0)
    assert told["error"].startswith(
        "sums, sums: expected the network's logits of 1 rows as rows, got 1 values"
    )
    assert told["left"] == 0


def test_a_contestant_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    """Where it may have said why is told."""
    told = scene(tmp_path, act="end")
    assert "expected a right answer within 60 s of its start" in told["error"]
    assert f"{tmp_path / 'sums-sums.log'} may say why" in told["error"]
    assert "no room" in (tmp_path / "sums-sums.log").read_text()


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wants wrk")
def test_a_load_goes_to_all_paths_evenly(tmp_path: Path) -> None:
    """And answers that are not 200 are counted."""
    requests, refused, lost = scene(tmp_path, wrk="wrk")["load"]
    assert requests > 10
    assert lost == 0
    assert abs(2 * refused - requests) <= 4


def test_without_wrk_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BenchmarkError, match="found none: apt install wrk"):
        load.expect_wrk()
