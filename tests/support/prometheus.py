"""A real Prometheus that collects from a running service, for tests."""

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
    """Its address, and what it can be asked."""

    url: str

    def ask(self, path: str, **words: Any) -> Any:
        """The data of an answer of its API."""
        answer = requests.get(f"{self.url}/api/v1/{path}", params=words, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def target(self) -> dict[str, Any]:
        """The one that it collects from, once it has tried to."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            # 503 until it is ready
            answer = requests.get(f"{self.url}/api/v1/targets", params={"state": "active"}, timeout=30)
            found = answer.json()["data"]["activeTargets"] if answer.status_code == 200 else []
            if found and found[0]["health"] != "unknown":
                return found[0]
            time.sleep(0.2)
        raise AssertionError("it has tried no target in 30 seconds")

    def lately(self, query: str, seconds: float) -> list[float]:
        """Every number that a query had in the last seconds, over all series."""
        now = time.time()
        data = self.ask("query_range", query=query, start=now - seconds, end=now, step=1)
        values = [float(value) for series in data["result"] for _, value in series["values"]]
        # NaN: a share of nothing
        return [value for value in values if value == value]


def configured(folder: Path, target: str, key: str) -> Path:
    """Our own configuration, asking one service each second with a key."""
    configuration = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration["rule_files"] = [str(FOLDER / name) for name in configuration["rule_files"]]
    (job,) = configuration["scrape_configs"]
    del job["dns_sd_configs"]
    job["static_configs"] = [{"targets": [target]}]
    job["authorization"]["credentials_file"] = str(folder / "metrics_key")
    (folder / "metrics_key").write_text(key)
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(configuration))
    return file


@contextlib.contextmanager
def collecting(folder: Path, target: str, key: str) -> Iterator[Prometheus]:
    """Debian's Prometheus on a free port, collecting from host:port."""
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={configured(folder, target, key)}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--web.listen-address=127.0.0.1:0",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    said: list[str] = []
    port = threading.Event()

    def listen() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if "Listening on" in line:
                port.set()
        port.set()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        assert port.wait(60), said
        found = re.search(r'"Listening on" address=(\S+)', "".join(said))
        assert found, said
        yield Prometheus(f"http://{found[1]}")
    finally:
        process.terminate()
        process.wait(30)
        listener.join(10)
        if process.stderr:
            process.stderr.close()
