"""Applications with the service, and clients of them in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _without_variables() -> Iterator[None]:
    """No variable of the machine is a setting, also for fixtures of a whole module."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.upper().startswith("TURNPIKE_")]:
            patch.delenv(name)
        yield
