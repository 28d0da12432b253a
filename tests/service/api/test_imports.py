"""What the application imports."""

from __future__ import annotations

import subprocess
import sys


def test_a_worker_starts_without_fastapi() -> None:
    """Nor does it import the libraries of single routes, also when it has made its routes."""
    code = (
        "import sys, turnpike.service.process.worker\n"
        "from turnpike.service.api.app import Application\n"
        "from turnpike.service.config.settings import Settings\n"
        "Application(Settings(), None)\n"
        "print(*sys.modules)"
    )
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "turnpike.service.api.app" in modules
    assert not {"fastapi", "prometheus_client", "turnpike.service.api.openapi.schemas"}.intersection(modules)
