"""Fixtures of the tests of remote repositories."""

from __future__ import annotations

import pytest

from tests.support.rollout_workers import Workers


@pytest.fixture
def workers() -> Workers:
    return Workers()
