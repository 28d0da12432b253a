"""A server for the tests of this folder, and rows for its models."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.client_server import create_repository
from tests.support.live_server import Server, serving
from turnpike.client.inputs import Array


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves the models of `client_server.create_repository` with two workers."""
    root = create_repository(tmp_path_factory.mktemp("models"))
    options = ("--allow-unverified", "--workers", 2, "--grpc-port", 0, "--no-access-log")
    with serving("--models", root, *options) as running:
        yield running


@pytest.fixture
def digits() -> Array:
    """Five rows for `digits-10`."""
    return np.random.default_rng(0).integers(0, 17, (5, 1, 8, 8)).astype(np.float32)


@pytest.fixture
def rows() -> Array:
    """Seven rows for `table` and `net`, which float32 cannot hold exactly."""
    return np.random.default_rng(1).normal(size=(7, 4))
