"""Fixtures of the tests of batching."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from tests.support.fake_models import RunInLoop


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run_in_loop(request: pytest.FixtureRequest) -> RunInLoop:
    """Runs a coroutine in both event loops: their clocks and the order of their callbacks differ."""
    return request.param
