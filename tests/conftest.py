"""For all tests: the same seed, one comparison with tolerances, processes, and less repeated work."""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

# with several threads, small sums are many times slower; processes of the tests inherit this
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

from tests.support.python_path import python_path
from tests.support.short_names.sitecustomize import ShortNamesFinder
from turnpike.common.cpus import available_cpus

if TYPE_CHECKING:
    from torch import Tensor

sys.meta_path.insert(0, ShortNamesFinder())
# processes of the tests refuse short names as well
os.environ["PYTHONPATH"] = python_path(*map(Path, filter(None, [os.environ.get("PYTHONPATH")])))

# fixtures of the browser tests
pytest_plugins = ["tests.support.browser"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are CPUs, because many tests wait for servers."""
    return int(available_cpus()) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect garbage of the tests only, and seldom: imported modules are a million objects, and stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(5000, 10, 20)
        gc.enable()


# modules of which a test that imports them exports networks
EXPORTERS = {"turnpike.export.trace.trace_network", "turnpike.export.identity.aten.run_program"}


def pytest_collection_finish() -> None:
    """Build torch's tables of operators once. torch builds them for each export, in half of its time."""
    if not EXPORTERS.isdisjoint(sys.modules):
        from torch._export import utils
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        registry: Any = ONNXRegistry
        registry.from_torchlib = staticmethod(functools.cache(registry.from_torchlib))
        utils._materialize_cpp_cia_ops = functools.cache(utils._materialize_cpp_cia_ops)


@pytest.fixture(autouse=True)
def seed() -> None:
    """Seed torch if a test has imported it: many tests do without, and run in less time than its import."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture
def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the TURNPIKE_ variables of the shell that runs the tests."""
    for name in [name for name in os.environ if name.upper().startswith("TURNPIKE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def same() -> Callable[[Tensor, Tensor], None]:
    """Assert that two tensors are equal up to rounding: one equation, computed in two orders."""
    import torch

    def check(got: Tensor, expected: Tensor) -> None:
        tolerance = 1e-12 if got.dtype == torch.float64 else 1e-5
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)

    return check
