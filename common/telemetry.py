"""Turns off the usage reports of libraries. Nothing leaves the machine that the user did not ask for.

Each library reads its variable when it is imported, and child processes inherit it. A variable that the user
has set stays as it is.
"""

from __future__ import annotations

import os
import sys

ONNXRUNTIME_VARIABLE = "ORT_DISABLE_TELEMETRY"
# variable: the value that turns reports off
SWITCHES = {
    ONNXRUNTIME_VARIABLE: "1",  # onnxruntime 1.29 and newer, also on Linux
    # Ray sets this itself in clusters that it starts for us, unless it is a nightly build. On a running
    # cluster, it keeps Ray Data from recording our jobs for the report of the cluster.
    "RAY_USAGE_STATS_ENABLED": "0",
    # huggingface_hub, for hf:// addresses: no version of torch and no name of an AI tool in its requests
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
# values of ONNXRUNTIME_VARIABLE that turn reports off, in upper or lower case; with others they are on
OFF_VALUES = {"1", "true", "yes", "on"}


def turn_off_telemetry() -> None:
    """Turn off the reports of libraries that are imported from now on, and of onnxruntime if it is loaded.

    If onnxruntime is loaded, it has already written its files and will report that the process started. Its
    switch only stops the reports of later errors.
    """
    for variable, value in SWITCHES.items():
        # an empty variable is no choice of the user, but would leave onnxruntime's reports on
        os.environ[variable] = os.environ.get(variable) or value
    runtime = sys.modules.get("onnxruntime")
    if runtime and os.environ[ONNXRUNTIME_VARIABLE].lower() in OFF_VALUES:
        runtime.disable_telemetry_events()
