"""Devices that models run on: the execution provider, options and precisions of each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal

from turnpike.service.errors import DeviceError

Device = Literal["cpu", "cuda", "openvino"]
# the precision of a device's arithmetic
DevicePrecision = Literal["fp32", "bf16"]

PROVIDERS: dict[Device, str] = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
}
# the distribution and the module of OpenVINO's plugin for onnxruntime
OPENVINO_PACKAGE, OPENVINO_MODULE = "onnxruntime-ep-openvino", "onnxruntime_ep_openvino"
# OpenVINO's names of the precisions
PRECISION_HINTS: dict[DevicePrecision, str] = {"fp32": "f32", "bf16": "bf16"}
# flags of x86 CPUs that have instructions for bf16; without them OpenVINO computes in fp32, without an error
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
CPU_INFO = Path("/proc/cpuinfo")


def provider_options(device: Device, threads: int, precision: DevicePrecision) -> dict[str, str]:
    """The options of a device's execution provider."""
    if device == "cuda":
        # TF32, its default for float32 products, keeps 10 bits of the mantissa, which would break parity
        return {"use_tf32": "0"}
    if device == "openvino":
        config = {
            "INFERENCE_PRECISION_HINT": PRECISION_HINTS[precision],
            "INFERENCE_NUM_THREADS": str(threads),
            "NUM_STREAMS": "1",
            # otherwise each run moves to the first CPUs, and those of all workers share them
            "ENABLE_CPU_PINNING": "NO",
        }
        return {"load_config": json.dumps({"CPU": config})}
    return {}


def expect_precision(device: Device, precision: DevicePrecision, cpu_info: Path = CPU_INFO) -> None:
    """Raise a DeviceError if this machine lacks instructions for the precision.

    If they cannot be looked up, nothing is raised.
    """
    if precision == "fp32":
        return
    if device != "openvino":
        raise DeviceError(f"precision: bf16 needs the device openvino, got {device}")
    try:
        text = cpu_info.read_text("utf-8", errors="replace")
    except OSError:
        return
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    if flags is not None and BF16_FLAGS.isdisjoint(flags[1].split()):
        needed = " or ".join(sorted(BF16_FLAGS))
        raise DeviceError(
            f"precision: bf16 needs a CPU with {needed}, and this one has neither; fp32 runs on any"
        )
