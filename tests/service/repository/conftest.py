"""Fixtures of the tests of rollouts."""

from __future__ import annotations

import pytest

from tests.support.rollout_workers import Workers


@pytest.fixture
def workers() -> Workers:
    return Workers()
