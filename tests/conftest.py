"""For all tests: the same seed, one comparison with tolerances, and the number of processes."""

from __future__ import annotations

import os
from collections.abc import Callable

# with several threads, small sums are many times slower; processes of the tests inherit this
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from torch import Tensor

from service.config.cpus import available_cpus

# fixtures of the browser tests
pytest_plugins = ["tests.support.browser"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are CPUs, because many tests wait for servers."""
    return int(available_cpus()) + 1


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def same() -> Callable[[Tensor, Tensor], None]:
    """Equal up to rounding: the tolerance for one equation computed in two orders."""

    def check(got: Tensor, expected: Tensor) -> None:
        tolerance = 1e-12 if got.dtype == torch.float64 else 1e-5
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)

    return check
