"""What the application imports."""

from __future__ import annotations

import subprocess
import sys


def test_a_worker_starts_without_fastapi() -> None:
    """Nor does it import the libraries of single routes."""
    code = "import sys, turnpike.service.process.worker, turnpike.service.api.app; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "turnpike.service.api.app" in modules
    assert not {"fastapi", "prometheus_client", "turnpike.service.api.openapi.schemas"}.intersection(modules)
