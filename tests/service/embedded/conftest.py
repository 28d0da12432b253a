"""Applications with the service, and clients of them in this process."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _without_variables(without_variables: None) -> None:
    """No variable of the machine is a setting."""
