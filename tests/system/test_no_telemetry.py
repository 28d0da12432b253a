"""Commands, server and library send nothing unasked, and leave no file.

Each program runs in a network of its own, which records the names that it looks up and all that it sends.
onnxruntime, if nothing stops it, reports ten seconds after its import. So each program stays longer than that
when its work is done, and all run at the same time.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tests.support import watched_network
from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.watched_network import Outcome

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HOST = "mobile.events.data.microsoft.com"
# what onnxruntime leaves in the home and in the folder for temporary files
REPORT_FILES = {
    ".cache/Microsoft/DeveloperTools/.onnxruntime/deviceid",
    ".cache/Microsoft/DeveloperTools/.onnxruntime/onnxruntime.db",
    ".ses",
}

# runs commands of turnpike, and keeps the process for longer than onnxruntime waits with its report
COMMANDS = """
import json, runpy, sys, time

for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    try:
        runpy.run_module("turnpike", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise
time.sleep({seconds})
"""
OPEN_MODEL = """
import sys, time
from pathlib import Path

if "onnxruntime first" in sys.argv:
    import onnxruntime
from turnpike import open_model

open_model(Path(sys.argv[1]))
time.sleep({seconds})
"""
SERVE = """
import subprocess, sys, time

import numpy as np

from tests.support.live_server import serving
from turnpike import Client

with serving("--grpc-port", 0, "--workers", 2) as server:
    for address in (server.url, f"grpc://{server.grpc_address}"):
        with Client(address) as client:
            client.infer("digits-10", np.load(sys.argv[1]))
    for page in ("/", "/docs", "/metrics"):
        assert server.get(page).status_code == 200, page
    load_test = [sys.executable, "-m", "turnpike", "loadtest", server.url]
    subprocess.run([*load_test, "--users", "2", "--warmup", "0s", "--duration", "2s"], check=True)
    time.sleep({seconds})
"""
# what `turnpike export` exports
NETWORK = """
import torch
from torch import nn

class Highway(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.Linear(4, 4)
        self.t = nn.Linear(4, 4)
    def forward(self, x):
        t = torch.sigmoid(self.t(x))
        return t * torch.relu(self.h(x)) + (1 - t) * x

def make():
    torch.manual_seed(0)
    return nn.Sequential(Highway(), nn.Linear(4, 3))
"""
# how long a program stays: onnxruntime looks up its host 10.3 to 10.7 seconds after its import
SECONDS = 14


def python(code: str, *arguments: object, **variables: str) -> list[str]:
    settings = [f"{name}={value}" for name, value in variables.items()]
    code = code.replace("{seconds}", str(SECONDS))
    return ["env", *settings, sys.executable, "-c", code, *map(str, arguments)]


def turnpike(*commands: list[object], **variables: str) -> list[str]:
    words = [[str(word) for word in command] for command in commands]
    return python(COMMANDS, json.dumps(words), **variables)


def run_all(folder: Path, programs: dict[str, list[str]]) -> dict[str, Outcome]:
    """Run all programs at the same time, each in a network and with a home of its own."""
    if not watched_network.available():
        assert os.environ.get("TURNPIKE_NETWORK") != "required", "expected a system with `ip` and unshare"
        pytest.skip("NOT TESTED: this system lacks `ip`, or lets us make no network (unshare --user --net)")
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(watched_network.running(folder / name, *program))
            for name, program in programs.items()
        }
        outcomes = {name: watched_network.outcome(process) for name, process in running.items()}
    for name, outcome in outcomes.items():
        assert outcome.status == 0, f"{name}: {outcome.output}"
    return outcomes


def test_nothing_is_sent_and_no_file_is_left(tmp_path: Path) -> None:
    rows = tmp_path / "rows.npy"
    np.save(rows, np.random.default_rng(0).random((20, 1, 8, 8), np.float32))
    network = [f"{tmp_path}/network.py:make", "--input", "x:float32[batch,4]"]
    (tmp_path / "network.py").write_text(NETWORK)
    exported = tmp_path / "exported"
    programs = {
        "open_model": python(OPEN_MODEL, BUNDLED_MODEL),
        "onnxruntime is imported before turnpike, and off": python(
            OPEN_MODEL, BUNDLED_MODEL, "onnxruntime first", ORT_DISABLE_TELEMETRY="1"
        ),
        "predict": turnpike(["predict", BUNDLED_MODEL, rows]),
        "score": turnpike(["score", "-m", BUNDLED_MODEL, "-i", rows, "-o", tmp_path / "scored"]),
        "serve": python(SERVE, rows),
        "export, verify": turnpike(
            ["export", *network, "--name", "net", "--to", exported],
            ["verify", exported / "net/1/model.onnx", "--against", *network],
        ),
        "train": turnpike(["train", "digits-10", "--epochs", 1, "--out", tmp_path / "run"]),
    }
    outcomes = run_all(tmp_path, programs)
    assert {name: outcome.sent for name, outcome in outcomes.items() if outcome.sent} == {}
    left = {
        # matplotlib keeps its list of fonts
        name: [file for file in outcome.files if not file.startswith(".cache/matplotlib/fontlist-")]
        for name, outcome in outcomes.items()
    }
    assert {name: files for name, files in left.items() if files} == {}


def test_reports_that_the_user_turns_on_are_seen(tmp_path: Path) -> None:
    """Reports are sent if the user asks for them, and the network records them.

    The last program is a limit that SECURITY.md states. If it sends nothing, the limit is gone.
    """
    rows = tmp_path / "rows.npy"
    np.save(rows, np.zeros((1, 1, 8, 8), np.float32))
    programs = {
        "open_model": python(OPEN_MODEL, BUNDLED_MODEL, ORT_DISABLE_TELEMETRY="0"),
        "predict": turnpike(["predict", BUNDLED_MODEL, rows], ORT_DISABLE_TELEMETRY="0"),
        "serve": python(SERVE, rows, ORT_DISABLE_TELEMETRY="0"),
        "onnxruntime is imported before turnpike": python(OPEN_MODEL, BUNDLED_MODEL, "onnxruntime first"),
    }
    for name, outcome in run_all(tmp_path, programs).items():
        assert outcome.sent == [HOST, f"protocol 6 to {watched_network.OTHER_ADDRESS}"], name
        assert set(outcome.files) >= REPORT_FILES, name
