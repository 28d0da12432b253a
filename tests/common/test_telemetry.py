"""The switches of the libraries' usage reports, in processes of their own: each has imported nothing yet."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.live_server import environment
from turnpike.common.telemetry import SWITCHES

# A stand-in for onnxruntime: the real one would report from this machine. A module in `sys.modules` is what
# a program that has imported onnxruntime before turnpike leaves.
PROGRAM = """
import json, os, sys, types

calls = []
if "onnxruntime first" in sys.argv:
    onnxruntime = types.ModuleType("onnxruntime")
    onnxruntime.disable_telemetry_events = lambda: calls.append("disable_telemetry_events")
    sys.modules["onnxruntime"] = onnxruntime

import turnpike

loaded = [name for name in ("onnxruntime", "ray", "huggingface_hub") if name in sys.modules]
print(json.dumps({"variables": dict(os.environ), "calls": calls, "loaded": loaded}))
"""


def after_import(*words: str, **variables: str) -> dict[str, object]:
    """What `import turnpike` leaves: the variables of the switches, calls of onnxruntime, and libraries."""
    inherited = {name: value for name, value in environment().items() if name not in SWITCHES}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env=inherited | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    seen = json.loads(ran.stdout)
    seen["variables"] = {name: seen["variables"].get(name) for name in SWITCHES}
    return dict(seen)


def test_the_import_sets_each_variable_before_a_library_can_read_it() -> None:
    off = {"ORT_DISABLE_TELEMETRY": "1", "RAY_USAGE_STATS_ENABLED": "0", "HF_HUB_DISABLE_TELEMETRY": "1"}
    assert after_import() == {"variables": off, "calls": [], "loaded": []}


@pytest.mark.parametrize("variable", SWITCHES)
def test_a_value_of_the_user_stays(variable: str) -> None:
    assert after_import(**{variable: "chosen"})["variables"] == SWITCHES | {variable: "chosen"}


def test_an_empty_variable_is_no_choice() -> None:
    """onnxruntime reports if its variable is empty."""
    assert after_import(**dict.fromkeys(SWITCHES, ""))["variables"] == SWITCHES


def test_a_loaded_onnxruntime_is_switched_off() -> None:
    assert after_import("onnxruntime first")["calls"] == ["disable_telemetry_events"]


@pytest.mark.parametrize(
    ("value", "is_off"),
    [("0", False), ("false", False), ("no", False), ("1", True), ("True", True), ("yes", True), ("on", True)],
)
def test_a_loaded_onnxruntime_keeps_the_choice_of_the_user(value: str, is_off: bool) -> None:
    seen = after_import("onnxruntime first", ORT_DISABLE_TELEMETRY=value)
    assert seen["calls"] == ["disable_telemetry_events"] * is_off
