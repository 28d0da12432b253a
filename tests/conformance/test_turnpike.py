"""The service answers every case of the suite as the protocol says, however it is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.suite import NAMES, REST_NAMES, differences, rest_differences
from tests.support.asgi_servers import asgi_server
from tests.support.conformance_servers import put_models, turnpike_server
from turnpike.service.grpc.messages.descriptors import message_class

MOUNTED = """
from fastapi import FastAPI

import turnpike

app = FastAPI(lifespan=turnpike.lifespan)
app.mount("/ml/serving", turnpike.create_app("models", allow_unverified=True))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where the service differs."""
    with turnpike_server(tmp_path_factory.mktemp("models")) as server:
        return differences(server.http, server.grpc, lambda name: message_class(f"inference.{name}"))


@pytest.fixture(scope="module")
def found_under_uvicorn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where it differs under uvicorn."""
    folder = tmp_path_factory.mktemp("uvicorn")
    put_models(folder / "models")
    variables = {"TURNPIKE_MODELS": "models", "TURNPIKE_ALLOW_UNVERIFIED": "true"}
    ready = "/v2/health/ready"
    with asgi_server("uvicorn", "turnpike.service.asgi:app", folder, alive=ready, **variables) as server:
        return rest_differences(f"127.0.0.1:{server.port}")


@pytest.fixture(scope="module")
def found_when_mounted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where it differs when it is mounted under a prefix."""
    folder = tmp_path_factory.mktemp("mounted")
    put_models(folder / "models")
    (folder / "mounted.py").write_text(MOUNTED)
    ready = "/ml/serving/v2/health/ready"
    with asgi_server("uvicorn", "mounted:app", folder, alive=ready) as server:
        return rest_differences(f"127.0.0.1:{server.port}", "/ml/serving")


@pytest.mark.parametrize("name", NAMES)
def test_the_service_answers_as_the_protocol_says(found: dict[str, str], name: str) -> None:
    assert name not in found, found[name]


@pytest.mark.parametrize("name", REST_NAMES)
def test_so_it_does_under_uvicorn(found_under_uvicorn: dict[str, str], name: str) -> None:
    assert name not in found_under_uvicorn, found_under_uvicorn[name]


@pytest.mark.parametrize("name", REST_NAMES)
def test_so_it_does_when_it_is_mounted(found_when_mounted: dict[str, str], name: str) -> None:
    assert name not in found_when_mounted, found_when_mounted[name]


def test_each_case_has_a_name_of_its_own() -> None:
    assert len(set(NAMES)) == len(NAMES) > 170


def test_a_prefix_that_is_wrong_is_found(tmp_path: Path) -> None:
    """So the suite does send its requests below the prefix."""
    put_models(tmp_path / "models")
    (tmp_path / "mounted.py").write_text(MOUNTED)
    ready = "/ml/serving/v2/health/ready"
    with asgi_server("uvicorn", "mounted:app", tmp_path, alive=ready) as server:
        assert len(rest_differences(f"127.0.0.1:{server.port}", "/ml")) > len(REST_NAMES) / 2
