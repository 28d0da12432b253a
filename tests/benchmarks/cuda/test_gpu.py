"""The GPU is found through the driver; without one, the message says what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.cuda.gpu import Gpu, find_gpu
from benchmarks.errors import BenchmarkError


class FakeDriver:
    """The functions of libcuda that are used, on a machine with this many GPUs."""

    def __init__(self, gpus: int, status: int = 0) -> None:
        self.gpus, self.status = gpus, status

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return self.status

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = self.gpus
        return 0

    def cuDeviceGet(self, device: Any, number: int) -> int:  # noqa: N802
        device._obj.value = number
        return 0

    def cuDeviceGetName(self, name: Any, length: int, device: Any) -> int:  # noqa: N802
        name.value = b"Test GPU"
        return 0

    def cuDeviceTotalMem_v2(self, memory: Any, device: Any) -> int:  # noqa: N802
        memory._obj.value = 80 << 30
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802
        version._obj.value = 13020
        return 0


def test_a_gpu_is_described() -> None:
    gpu = find_gpu(lambda name: FakeDriver(gpus=1))
    assert gpu == Gpu("Test GPU", 80.0, "13.2")
    assert str(gpu) == "Test GPU, 80 GiB, driver for CUDA 13.2"


def test_a_missing_driver_is_named() -> None:
    def load(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    with pytest.raises(BenchmarkError, match=r"found no driver \(libcuda.so.1: cannot open"):
        find_gpu(load)


@pytest.mark.parametrize("driver", [FakeDriver(gpus=0), FakeDriver(gpus=1, status=100)])
def test_a_driver_without_a_gpu_is_no_gpu(driver: FakeDriver) -> None:
    """Its status 100 means this, too."""
    with pytest.raises(BenchmarkError, match="expected an NVIDIA GPU, its driver found none"):
        find_gpu(lambda name: driver)


def test_an_error_of_the_driver_is_named() -> None:
    with pytest.raises(BenchmarkError, match="its driver answered cuInit with error 999"):
        find_gpu(lambda name: FakeDriver(gpus=1, status=999))
