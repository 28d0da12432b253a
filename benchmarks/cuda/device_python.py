"""The Python that runs models on the device: an environment with the CUDA build of onnxruntime.

The two builds of onnxruntime overwrite each other, so the CUDA build needs an environment of its own. All
other libraries come from the running environment, PyTorch among them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from benchmarks.contestants.environments import run_command
from benchmarks.errors import BenchmarkError
from benchmarks.folders import ENVIRONMENTS, ROOT
from turnpike.service.artifact.devices import Device

# opens a tiny model on the device, or ends with the reason as its last line
TRIAL = """
import sys
from turnpike.service.artifact.runtime import expect_device
from turnpike.service.errors import DeviceError
try:
    expect_device(sys.argv[1])
except DeviceError as error:
    sys.exit(str(error))
"""


@dataclass(frozen=True)
class DevicePython:
    """A device, and a Python whose onnxruntime has it, with the variables that it needs."""

    device: Device
    executable: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments in the root of the repository."""
        # settings of the service would change what is measured
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TURNPIKE_")}
        return subprocess.run(
            [self.executable, *map(str, arguments)],
            cwd=ROOT,
            env=inherited | dict(self.variables),
            capture_output=True,
            text=True,
            check=False,
        )

    def expect_device(self) -> None:
        """Raise BenchmarkError unless models run on the device."""
        process = self.run("-c", TRIAL, self.device)
        if process.returncode:
            raise BenchmarkError(f"--device {self.device}: {last_line(process)}")


def device_python(device: Device, executable: Path | None = None) -> DevicePython:
    """The Python for a device.

    Arguments:
        device: where models run
        executable: the Python to use; None creates an environment for CUDA, and is the running Python for
            other devices
    """
    if device != "cuda":
        return DevicePython(device, executable or Path(sys.executable))
    executable = executable or ensure_cuda_environment()
    return DevicePython(device, executable, cuda_variables(executable.parent.parent))


def ensure_cuda_environment() -> Path:
    """The Python of the environment with the CUDA build of onnxruntime, which is created unless it exists."""
    # the version that exports were proved with
    release = version("onnxruntime")
    folder = ENVIRONMENTS / f"cuda-{release}"
    python = folder / "bin/python"
    if not (folder / "ready").exists():
        print(f"installing onnxruntime for CUDA into {folder}", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        run_command("onnxruntime-gpu", sys.executable, "-m", "venv", "--without-pip", folder)
        pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
        constraint = ("--constraint", ROOT / "constraints.txt")
        run_command("onnxruntime-gpu", *pip, *constraint, f"onnxruntime-gpu[cuda,cudnn]=={release}")
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
        (folder / "ready").touch()
    return python


def cuda_variables(environment: Path) -> dict[str, str]:
    """LD_LIBRARY_PATH with CUDA's libraries of an environment, which onnxruntime does not find by itself."""
    folders = sorted(map(str, environment.glob("lib/python*/site-packages/nvidia/*/lib")))
    inherited = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": ":".join([*folders, *([inherited] if inherited else [])])} if folders else {}


def last_line(process: subprocess.CompletedProcess[str]) -> str:
    """What a program said last before it failed, without the class of the exception."""
    lines = [line.strip() for line in process.stderr.splitlines() if line.strip()]
    if not lines:
        return f"exit status {process.returncode} without a message"
    return re.sub(r"^(?:error|[\w.]*Error): ", "", lines[-1])
