"""Serves models on a Ray cluster of several nodes on this machine, and does to it what happens to clusters.

    ray_service.py REPOSITORY EXPECTED

REPOSITORY has a model `net`, and EXPECTED is the answer of its version 1 to four ones. Prints one JSON object
with what was seen.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray
import requests
from ray import serve
from ray.cluster_utils import Cluster

from turnpike.service.ray.application import NAME, build

NODES, CLIENTS = 3, 8
BODY = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 1, 1, 1]}]}
ADMIN = {"Authorization": "Bearer admin-of-the-test"}
WAIT_SECONDS = 60


class Load:
    """Clients that send one request after the other, on connections that stay open."""

    def __init__(self, url: str, expected: list[float]) -> None:
        self._url, self._expected = f"{url}/v2/models/net/infer", expected
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(CLIENTS)]
        self.statuses: Counter[str] = Counter()
        self.failures: list[float] = []

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        session = requests.Session()
        while not self._stopping.is_set():
            try:
                answer = session.post(self._url, json=BODY, timeout=30)
                status = str(answer.status_code)
                if answer.ok and not close(answer.json()["outputs"][0]["data"], self._expected):
                    status = "wrong"
            except requests.RequestException as error:
                status = type(error).__name__
            self.statuses[status] += 1
            if status != "200":
                self.failures.append(time.monotonic())


def close(got: list[float], expected: list[float]) -> bool:
    return all(abs(a - b) < 1e-5 for a, b in zip(got, expected, strict=True))


def wait_until(condition: Callable[[], bool]) -> float:
    """Seconds until it holds; an error after a minute."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > WAIT_SECONDS:
            raise TimeoutError("it did not happen within a minute")
        time.sleep(0.1)
    return time.monotonic() - started


def running_replicas() -> int:
    replicas = serve.status().applications[NAME].deployments[NAME].replica_states
    return replicas.get("RUNNING", 0)


def start_without_keys(repository: str) -> str:
    """Why replicas do not start on nodes that lack the keys that this process has."""
    os.environ["TURNPIKE_API_KEYS"] = "only-this-process-has-it"
    try:
        run(repository)
    except RuntimeError:
        return str(serve.status().applications[NAME].deployments[NAME].message)
    finally:
        del os.environ["TURNPIKE_API_KEYS"]
    return "started"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def infer(url: str, model: str) -> requests.Response:
    return requests.post(f"{url}/v2/models/{model}/infer", json=BODY, timeout=30)


def states(url: str) -> dict[str, str]:
    """The newest version's state of each model, with the reason if it is not served."""
    index = requests.post(f"{url}/v2/repository/index", json={}, timeout=30).json()
    return {entry["name"]: entry["reason"] or entry["state"] for entry in index}


def run(repository: str, **settings: Any) -> None:
    arguments = {"models": repository, "poll": 0.5, "allow_unverified": True, "access_log": False, **settings}
    serve.run(build(arguments), name=NAME, route_prefix="/")


@contextlib.contextmanager
def cluster() -> Iterator[tuple[Cluster, list[Any], str]]:
    nodes_cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [nodes_cluster.add_node(num_cpus=2) for _ in range(NODES)]
    ray.init(address=nodes_cluster.address, log_to_driver=False)
    port = free_port()
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    try:
        yield nodes_cluster, nodes, f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()
        ray.shutdown()
        nodes_cluster.shutdown()


def main(repository: str, expected_text: str) -> dict[str, Any]:
    expected = json.loads(expected_text)
    os.environ["TURNPIKE_ADMIN_KEY"] = ADMIN["Authorization"].removeprefix("Bearer ")
    seen: dict[str, Any] = {}
    with cluster() as (nodes_cluster, nodes, url):
        seen["without_keys"] = start_without_keys(repository)

        run(repository, min_replicas=3, max_replicas=3)
        seen["index"] = requests.post(f"{url}/v2/repository/index", json={}, timeout=30).json()

        # orders reach every replica
        unload = requests.post(f"{url}/v2/repository/models/net/unload", headers=ADMIN, json={}, timeout=60)
        statuses = {infer(url, "net").status_code for _ in range(40)}
        load = requests.post(f"{url}/v2/repository/models/net/load", headers=ADMIN, json={}, timeout=60)
        again = {infer(url, "net").status_code for _ in range(40)}
        unknown = requests.post(f"{url}/v2/repository/models/gone/load", headers=ADMIN, json={}, timeout=60)
        seen["orders"] = {
            "answers": [unload.status_code, load.status_code, unknown.status_code],
            "unloaded": sorted(statuses),
            "loaded": sorted(again),
        }

        # counters are those of all replicas
        time.sleep(2)
        statistics = requests.get(f"{url}/v2/models/net/stats", timeout=30).json()
        seen["counted"] = statistics["model_stats"][0]["inference_stats"]["success"]["count"]

        # a node is lost
        with Load(url, expected) as lost:
            time.sleep(3)
            killed = time.monotonic()
            nodes_cluster.remove_node(nodes[0], allow_graceful=False)
            wait_until(lambda: running_replicas() < 3)
            back = wait_until(lambda: running_replicas() == 3)
            time.sleep(2)
        seen["lost_node"] = {
            "statuses": lost.statuses,
            "last_failure_after": max((at - killed for at in lost.failures), default=0),
            "replicas_back_after": back,
        }

        # a new version of a model, and then other settings, under load
        with Load(url, expected) as updated:
            shutil.copytree(Path(repository) / "net/1", Path(repository) / "net/2")
            wait_until(
                lambda: requests.get(f"{url}/v2/models/net/versions/2/ready", timeout=30).status_code == 200
            )
            run(repository, min_replicas=3, max_replicas=3, max_batch=16)
            time.sleep(2)
        seen["updated"] = updated.statuses

        # one model at a time, loaded when it is asked for
        shutil.copytree(Path(repository) / "net", Path(repository) / "other")
        run(repository, replica_models=1)
        seen["on_request"] = [
            (model, infer(url, model).status_code, states(url)) for model in ("net", "other", "net", "gone")
        ]
    return seen


if __name__ == "__main__":
    # Ray prints messages of the cluster
    with contextlib.redirect_stdout(sys.stderr):
        answer = main(*sys.argv[1:])
    sys.stdout.write(json.dumps(answer))
