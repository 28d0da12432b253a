"""The routes of gates: addresses and levels, the profile from the manifest, and the drift of live traffic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.gates_client import GatesClient, infer, manifest_of, profile_of, random_rows
from tests.support.tiny_highway import highway
from turnpike.service.errors import NotFoundError, RequestError

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture
def client(tmp_path: Path) -> GatesClient:
    gated = highway()
    return GatesClient.of(
        tmp_path, gated, manifest_of(gated, profile_of(gated.gates, gated.gate_values(random_rows(2000))))
    )


def test_every_route_exists_with_and_without_a_version(client: GatesClient) -> None:
    """Gates and lesions take a body, stored facts do not. All have the level of inference."""
    routes = client.router.routes
    paths = {route.label: route.method for route in routes}
    for version in ("", "/versions/{version}"):
        base = f"/v2/models/{{model}}{version}"
        assert paths[f"{base}/gates"] == paths[f"{base}/lesion"] == "POST"
        for path in ("gates/profile", "gates/drift", "certificate", "samples"):
            assert paths[f"{base}/{path}"] == "GET"
    assert len(paths) == 12
    assert {route.level for route in routes} == {"api"}
    assert len({route.name for route in routes}) == 12


def test_the_profile_is_that_of_the_manifest(client: GatesClient, tmp_path: Path) -> None:
    """It is null if the manifest has none."""
    answer = json.loads(client.ask("gates/profile")[1])
    manifest = client.model.manifest
    assert manifest is not None
    assert manifest.profile is not None
    assert answer["profile"] == json.loads(manifest.profile.model_dump_json())
    assert [gate["name"] for gate in answer["gates"]] == [gate.name for gate in manifest.gates]
    assert (answer["model_name"], answer["model_version"], answer["lesion"]) == ("net", "3", None)
    plain = highway(layers=1)
    bare = json.loads(GatesClient.of(tmp_path, plain, manifest_of(plain)).ask("gates/profile")[1])
    assert bare["profile"] is bare["lesion"] is None


def test_a_version_may_be_in_the_path(client: GatesClient) -> None:
    assert client.ask("versions/3/gates/profile") == client.ask("gates/profile")


def test_drift_covers_all_workers(client: GatesClient) -> None:
    """Rows like those of the profile are no drift. Rows ten times as large are: the worst gate is named."""
    drift = client.model.drift
    assert drift is not None
    runtime = client.model.runtime

    def worker(x: Array) -> dict[str, Any]:
        drift.observe(runtime.run({"x": x}, drift.gate_names), len(x))
        return {"drift": {"net": {"3": drift.snapshot(), "2": {"profile": "other"}}, "else": {}}}

    client.workers.snapshots = [worker(random_rows(600)), {"drift": {}}]
    answer = json.loads(client.ask("gates/drift")[1])
    assert (answer["model_name"], answer["model_version"], answer["level"]) == ("net", "3", "ok")
    assert answer["rows"] == 600
    assert [layer["gate"] for layer in answer["layers"]] == list(drift.gate_names)
    client.workers.snapshots = [worker(random_rows(600)), worker(10.0 * random_rows(5000))]
    answer = json.loads(client.ask("gates/drift")[1])
    assert answer["level"] == "alarm"
    assert answer["worst"] in drift.gate_names


def test_drift_observes_ordinary_runs(client: GatesClient) -> None:
    """Rows of an ordinary run are observed. Gates that a caller has moved are not part of the traffic."""
    drift = client.model.drift
    assert drift is not None
    client.lesion(random_rows(8), close=[0])
    seen = np.array(drift.snapshot()["seen"])
    # the run without the lesion was observed, the run with it was not
    assert seen[0, 1:].sum() == pytest.approx(8, abs=0.01)
    assert seen[0, 0] / 8 > 0.1


@pytest.mark.parametrize(("headers", "rows"), [([(b"x-turnpike-drift", b"skip")], 0), ([], 8)])
def test_requests_may_be_left_out_of_drift(
    client: GatesClient, headers: list[tuple[bytes, bytes]], rows: int
) -> None:
    """By a header, which load tests send."""
    drift = client.model.drift
    assert drift is not None
    before = np.array(drift.snapshot()["seen"])[0, 1:].sum()
    drift._next_sample = 0.0
    client.ask("gates", infer(random_rows(8)), more_headers=headers)
    assert np.array(drift.snapshot()["seen"])[0, 1:].sum() - before == pytest.approx(rows, abs=0.01)


@pytest.mark.parametrize("action", ["gates", "lesion"])
@pytest.mark.parametrize("value", [b"count", b"Skip", b""])
def test_an_unknown_value_of_our_header_is_refused(client: GatesClient, action: str, value: bytes) -> None:
    """A misspelled one would count the request in silence."""
    with pytest.raises(RequestError, match=f"X-Turnpike-Drift: expected skip, got '{value.decode()}'"):
        client.ask(action, infer(random_rows(1), close=[0]), more_headers=[(b"x-turnpike-drift", value)])


def test_drift_without_a_profile_is_not_found(tmp_path: Path) -> None:
    """The error says what the model lacks."""
    gated = highway(layers=1)
    client = GatesClient.of(tmp_path, gated, manifest_of(gated))
    with pytest.raises(NotFoundError, match="model 'net' has no profile to compare with"):
        client.ask("gates/drift")


def test_gate_routes_without_gates_are_not_found(tmp_path: Path) -> None:
    gated = highway(layers=1)
    client = GatesClient.of(tmp_path, gated, manifest_of(gated).model_copy(update={"gates": ()}))
    for path in ("gates/profile", "gates/drift"):
        with pytest.raises(NotFoundError, match="model 'net' has no known gates"):
            client.ask(path)
    assert json.loads(client.ask("certificate")[1])["gates"] == 0
    assert json.loads(client.ask("versions/3/samples")[1])["samples"] == []
