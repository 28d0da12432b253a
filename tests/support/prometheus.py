"""A real Prometheus that collects from a running service."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
import yaml

from tests.support.virtualenvs import ROOT

FOLDER = ROOT / "deploy/prometheus"


@dataclass
class Prometheus:
    """A running Prometheus, and queries to it."""

    url: str

    def ask(self, path: str, **parameters: Any) -> Any:
        """GET a path of its API; returns the data of the answer."""
        answer = requests.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def target(self) -> dict[str, Any]:
        """Its only target, after the first scrape."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            # Prometheus answers 503 until it is ready
            answer = requests.get(f"{self.url}/api/v1/targets", params={"state": "active"}, timeout=30)
            targets = answer.json()["data"]["activeTargets"] if answer.status_code == 200 else []
            if targets and targets[0]["health"] != "unknown":
                return targets[0]
            time.sleep(0.2)
        raise AssertionError("expected an attempt to collect within 30 seconds, got none")

    def recent_values(self, query: str, seconds: float) -> list[float]:
        """All values of a query in the last seconds, over all series."""
        now = time.time()
        data = self.ask("query_range", query=query, start=now - seconds, end=now, step=1)
        values = [float(value) for series in data["result"] for _, value in series["values"]]
        # NaN is a share of no requests
        return [value for value in values if value == value]


def write_configuration(folder: Path, target: str, key: str) -> Path:
    """The repository's configuration, changed to collect from one service every second with a key."""
    configuration = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration["rule_files"] = [str(FOLDER / "alerts.yml")]
    (job,) = configuration["scrape_configs"]
    del job["dns_sd_configs"]
    job["static_configs"] = [{"targets": [target]}]
    job["authorization"]["credentials_file"] = str(folder / "metrics_key")
    (folder / "metrics_key").write_text(key)
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(configuration))
    return file


@contextlib.contextmanager
def running_prometheus(folder: Path, target: str, key: str) -> Iterator[Prometheus]:
    """Debian's Prometheus on a free port; `target` is host:port of the service."""
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={write_configuration(folder, target, key)}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--web.listen-address=127.0.0.1:0",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    log: list[str] = []
    listening = threading.Event()

    def read_log() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            log.append(line)
            if "Listening on" in line:
                listening.set()
        listening.set()

    reader = threading.Thread(target=read_log, daemon=True)
    reader.start()
    try:
        assert listening.wait(60), log
        address = re.search(r'"Listening on" address=(\S+)', "".join(log))
        assert address, log
        yield Prometheus(f"http://{address[1]}")
    finally:
        process.terminate()
        process.wait(30)
        reader.join(10)
        if process.stderr:
            process.stderr.close()
