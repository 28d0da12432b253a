"""Turns off the usage reports of libraries. Nothing leaves the machine that the user did not ask for.

Each library reads its variable when it is imported, and child processes inherit it. A variable that the user
has set stays as it is.
"""

from __future__ import annotations

import os
import sys

# variable: the value that turns reports off
SWITCHES = {
    "ORT_DISABLE_TELEMETRY": "1",  # onnxruntime 1.29 and newer, on Linux and macOS too
    "RAY_USAGE_STATS_ENABLED": "0",  # Ray, in clusters that we start
    "HF_HUB_DISABLE_TELEMETRY": "1",  # huggingface_hub, which fsspec uses for hf:// addresses
}


def turn_off_telemetry() -> None:
    """Turn off the reports of libraries that are imported from now on, and of onnxruntime if it is loaded."""
    for variable, value in SWITCHES.items():
        os.environ.setdefault(variable, value)
    runtime = sys.modules.get("onnxruntime")
    if runtime and os.environ["ORT_DISABLE_TELEMETRY"] == "1":
        runtime.disable_telemetry_events()
