"""What prepared weights depend on beside the model: the CPU, onnxruntime and the settings of its sessions.

onnxruntime packs weights for the instructions of one CPU, and chooses the form of a graph by them. Files of
another CPU may run on this one, and give other bits.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path

from turnpike.common.distribution import VERSION

CPU_INFO = Path("/proc/cpuinfo")
# the lines of CPU_INFO that say what a CPU can do, on x86 and on Arm
CPU_FIELDS = frozenset(
    {
        *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
        *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),
    }
)
# changes with the files of an entry, and with how they are made
FORMAT = 1


def cpu_description(cpu_info: Path = CPU_INFO) -> str | None:
    """The kinds of CPUs of this machine with their instructions; None if the system does not say."""
    try:
        text = cpu_info.read_text("utf-8", errors="replace")
    except OSError:
        return None
    facts = set()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in CPU_FIELDS:
            facts.add(f"{name.strip()}: {value.strip()}")
    if not any(fact.startswith(("flags:", "Features:")) for fact in facts):
        return None
    return "\n".join([platform.machine(), *sorted(facts)])


def entry_name(model_digest: str, runtime: Mapping[str, object], cpu: str) -> str:
    """The name of a model's entry: its digest, and a digest of all that its prepared weights depend on.

    Args:
        model_digest: The SHA-256 digest of the model file.
        runtime: The version of the runtime, and its settings.
        cpu: What `cpu_description` says.
    """
    dependencies = json.dumps(
        {"format": FORMAT, "turnpike": VERSION, "runtime": dict(runtime), "cpu": cpu}, sort_keys=True
    )
    return f"{model_digest}-{hashlib.sha256(dependencies.encode()).hexdigest()[:32]}"
