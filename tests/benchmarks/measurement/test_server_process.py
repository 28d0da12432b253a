"""A contestant is started, checked, loaded, and ended with all processes that it started.

Each test runs it from a process of its own, because all descendants of that process are ended.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.measurement import wrk
from tests.support.live_server import ROOT, environment

# answers with the sum of each row, on /odd with status 500, and has a child that never ends by itself;
# the arguments are the port, and "end" to end at once instead
SUM_SERVER = """
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

PROGRAM = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
from benchmarks.measurement import wrk
from benchmarks.measurement import processes
from benchmarks.measurement import server_process
from benchmarks.contestants import wire_formats
from benchmarks.contestants.contestants import Contestant
from benchmarks.errors import BenchmarkError

program, action, expected_sum, with_load = sys.argv[1:]
server_process.LOGS = Path(program).parent
# the child of the server makes it wait for this long
server_process.TERMINATION_SECONDS = 0.3
network = SimpleNamespace(name="sums", inputs=2, bare_file="", model_repository=lambda precision: "")
network.rows, network.logits = [[1.0, 2.0], [3.0, 4.0]], [[float(expected_sum)], [7.0]]
contestant = Contestant("sums", ("{python}", program, "{port}", action), {"rows": "/sum"})
processes.adopt_descendants()
result = {}
try:
    with server_process.running_server(contestant, network) as server:
        server.check("rows", 2)
        result["start_seconds"] = server.start_seconds
        result["processes"] = processes.memory_usage(processes.descendants())["processes"]
        if with_load == "True":
            request = wire_formats.encode_request("rows", network.rows)
            load = wrk.run_wrk(server.port, ["/sum", "/odd"], request, 2, 1)
            result["load"] = [load.requests, load.refused, load.lost]
except BenchmarkError as error:
    result["error"] = str(error)
result["left"] = len(processes.descendants())
print(json.dumps(result))
"""


def run_server(
    folder: Path, action: str = "serve", *, expected_sum: float = 3.0, with_load: bool = False
) -> dict[str, Any]:
    """Run PROGRAM with a server that sums; returns what it prints."""
    server = folder / "sum_server.py"
    server.write_text(SUM_SERVER)
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, server, action, str(expected_sum), str(with_load)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    result: dict[str, Any] = json.loads(process.stdout)
    return result


def test_all_processes_of_a_contestant_are_ended(tmp_path: Path) -> None:
    """Children in sessions of their own, too."""
    result = run_server(tmp_path)
    assert result["start_seconds"] > 0
    assert (result["processes"], result["left"]) == (2, 0)


def test_a_wrong_answer_ends_it_at_once(tmp_path: Path) -> None:
    """A contestant that is fast and wrong is not measured."""
    result = run_server(tmp_path, expected_sum=4.0)
    assert result["error"].startswith(
        "sums, sums: expected the network's logits of 1 rows as rows, got 1 values"
    )
    assert result["left"] == 0


def test_a_contestant_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    """The message names its log."""
    result = run_server(tmp_path, action="end")
    assert "expected a correct answer within 60 s of its start" in result["error"]
    assert f"see {tmp_path / 'sums-sums.log'}" in result["error"]
    assert "no room" in (tmp_path / "sums-sums.log").read_text()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("wrk") is None, reason="requires wrk")
def test_a_load_goes_to_all_paths_evenly(tmp_path: Path) -> None:
    """Answers that are not 200 are counted."""
    requests, refused, lost = run_server(tmp_path, with_load=True)["load"]
    assert requests > 10
    assert lost == 0
    assert abs(2 * refused - requests) <= 4


def test_without_wrk_the_message_has_the_command_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BenchmarkError, match="found none: apt install wrk"):
        wrk.require_wrk()
