"""What a measurement was taken on, in the words of its first line."""

from __future__ import annotations

import datetime
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """The CPU, the system and the versions that matter."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "onnxruntime": version("onnxruntime"),
        "turnpike": version("turnpike"),
    }


def cpu_model(info: Path = Path("/proc/cpuinfo")) -> str:
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
