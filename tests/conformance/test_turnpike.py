"""The service answers every case of the suite as the protocol says."""

from __future__ import annotations

import pytest

from tests.conformance.suite import NAMES, differences
from tests.support.conformance_servers import turnpike_server
from turnpike.service.grpc.messages.descriptors import message_class


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where the service differs."""
    with turnpike_server(tmp_path_factory.mktemp("models")) as server:
        return differences(server.http, server.grpc, lambda name: message_class(f"inference.{name}"))


@pytest.mark.parametrize("name", NAMES)
def test_the_service_answers_as_the_protocol_says(found: dict[str, str], name: str) -> None:
    assert name not in found, found[name]


def test_each_case_has_a_name_of_its_own() -> None:
    assert len(set(NAMES)) == len(NAMES) > 170
