"""The service on Ray clusters of several nodes on this machine. `test_serve.py` compares its answers."""

from __future__ import annotations

import signal
import socket
from typing import Any

import numpy as np
import pytest

from tests.support.ray_cluster import PATIENCE, ray_programs, serving_on_ray, starting_on_ray
from tests.support.tiny_repository import put_model
from tests.support.virtualenvs import run_client
from turnpike.service.artifact.runtime import open_model
from turnpike.service.repository.deployment import ON_REQUEST

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a client saw on a cluster of three nodes."""
    repository = tmp_path_factory.mktemp("repository")
    model = put_model(repository)
    answer = open_model(model.path).run({"x": np.ones((1, 4), np.float32)}, ["logits"])[0]
    variables = {"RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60"}
    expected = str(answer.ravel().tolist())
    return run_client("ray_service.py", ray_programs(), repository, expected, **variables)


def test_keys_must_be_on_every_node(seen: Any) -> None:
    """A replica without them would be open to all."""
    assert "api_keys: expected every node to have TURNPIKE_API_KEYS or a file of keys" in seen["without_keys"]


def test_models_are_loaded_and_unloaded_on_all_replicas(seen: Any) -> None:
    assert seen["index"] == [{"name": "net", "version": "1", "state": "READY", "reason": ""}]
    assert seen["orders"] == {"answers": [200, 200, 404], "unloaded": [503], "loaded": [200]}


def test_counters_are_those_of_all_replicas(seen: Any) -> None:
    assert seen["counted"] == 40


def test_a_lost_node_costs_only_what_it_was_answering(seen: Any) -> None:
    lost = seen["lost_node"]
    failed = {status: count for status, count in lost["statuses"].items() if status != "200"}
    # each of the 8 clients has one request at a time, and may meet the lost replica twice until Ray notices
    assert sum(failed.values()) <= 16, failed
    assert "wrong" not in failed
    assert lost["statuses"]["200"] > 100
    assert lost["last_failure_after"] < 15


def test_new_versions_and_settings_cost_no_request(seen: Any) -> None:
    assert list(seen["updated"]) == ["200"]


def test_a_replica_holds_as_many_models_as_it_may(seen: Any) -> None:
    assert seen["on_request"] == [
        ["net", 200, {"net": "READY", "other": ON_REQUEST}],
        ["other", 200, {"net": ON_REQUEST, "other": "READY"}],
        ["net", 200, {"net": "READY", "other": ON_REQUEST}],
        ["gone", 404, {"net": "READY", "other": ON_REQUEST}],
    ]


def test_a_port_of_haproxy_in_use_is_named() -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        error = f"expected free ports for HAProxy, got 0.0.0.0:{port} in use"
        with (
            pytest.raises(AssertionError, match=error),
            serving_on_ray(RAY_SERVE_HAPROXY_STATS_PORT=str(port)),
        ):
            pass


def test_a_signal_ends_a_start() -> None:
    with starting_on_ray() as process:
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "stopping before it has started" in log
    assert "turnpike serves" not in log
