"""Finds the GPU of this machine through NVIDIA's driver, without any other library of CUDA."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.errors import BenchmarkError

DRIVER = "libcuda.so.1"
MAX_NAME_BYTES = 256
BYTES_PER_GIB = 1 << 30
# the driver's status if there is no GPU, or if CUDA_VISIBLE_DEVICES hides it
NO_DEVICE = 100
NO_GPU = "--device cuda: expected an NVIDIA GPU, its driver found none"


@dataclass(frozen=True)
class Gpu:
    """A GPU: its name, its memory, and the newest CUDA that its driver supports."""

    name: str
    memory_gib: float
    cuda: str

    def __str__(self) -> str:
        return f"{self.name}, {self.memory_gib:.0f} GiB, driver for CUDA {self.cuda}"


def find_gpu(load: Callable[[str], Any] = ctypes.CDLL) -> Gpu:
    """The first GPU; BenchmarkError if there is none."""
    try:
        driver = load(DRIVER)
    except OSError as error:
        raise BenchmarkError(
            f"--device cuda: expected an NVIDIA GPU with its driver, found no driver ({error})"
        ) from error
    count, device, version = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name, memory = ctypes.create_string_buffer(MAX_NAME_BYTES), ctypes.c_size_t()
    _expect_success("cuInit", driver.cuInit(0))
    _expect_success("cuDeviceGetCount", driver.cuDeviceGetCount(ctypes.byref(count)))
    if count.value == 0:
        raise BenchmarkError(NO_GPU)
    _expect_success("cuDeviceGet", driver.cuDeviceGet(ctypes.byref(device), 0))
    _expect_success("cuDeviceGetName", driver.cuDeviceGetName(name, MAX_NAME_BYTES, device))
    _expect_success("cuDeviceTotalMem", driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device))
    _expect_success("cuDriverGetVersion", driver.cuDriverGetVersion(ctypes.byref(version)))
    return Gpu(
        name=name.value.decode(),
        memory_gib=round(memory.value / BYTES_PER_GIB, 1),
        # 13020 is CUDA 13.2
        cuda=f"{version.value // 1000}.{version.value % 1000 // 10}",
    )


def _expect_success(function: str, status: int) -> None:
    if status == NO_DEVICE:
        raise BenchmarkError(NO_GPU)
    if status:
        raise BenchmarkError(
            f"--device cuda: expected an NVIDIA GPU, its driver answered {function} with error {status}"
        )
