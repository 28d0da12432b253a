"""OpenVINO for tests: the CPU provider in its place, and skips where the plugin does not run."""

from __future__ import annotations

import pytest

from turnpike.service.artifact import runtime as runtime_module
from turnpike.service.artifact.devices import PROVIDERS
from turnpike.service.artifact.runtime import expect_device
from turnpike.service.errors import DeviceError


def replace_openvino(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the CPU provider stand in for OpenVINO's: only the graphs of the sessions differ."""
    monkeypatch.setitem(PROVIDERS, "openvino", PROVIDERS["cpu"])
    monkeypatch.setattr(runtime_module, "device_available", lambda device: True)
    monkeypatch.setattr(runtime_module, "_register_openvino", lambda: None)
    monkeypatch.setattr(runtime_module, "provider_options", lambda *arguments: {})


def require_openvino() -> None:
    """Skip the test if OpenVINO's plugin is not installed, or does not support this CPU."""
    try:
        expect_device("openvino")
    except DeviceError as error:
        pytest.skip(str(error))
