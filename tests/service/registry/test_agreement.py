"""Whether a device is told from one that computes otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from service.artifact.runtime import Runtime, open_model
from service.errors import ModelFileError, RunError
from service.registry.probe import check_device_agreement
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import sealed

Array = np.ndarray[Any, np.dtype[Any]]


class Device:
    """Answers as a runtime does, but for one tensor."""

    provider = "TestProvider"

    def __init__(self, runtime: Runtime, off: str = "", by: float = 0.0, rows: int | None = None) -> None:
        self.runtime, self.off, self.by, self.rows = runtime, off, by, rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runtime, name)

    def run(self, feeds: Mapping[str, Array], names: Sequence[str] | None = None) -> list[Array]:
        arrays = self.runtime.run(feeds, names)
        return [
            (array + np.float32(self.by))[: self.rows] if name == self.off else array
            for name, array in zip(names or ["logits"], arrays, strict=True)
        ]


@pytest.fixture(scope="module")
def cpu() -> Runtime:
    return open_model(sealed(highway()))


@pytest.mark.parametrize("by", [0.0, 1e-6])
def test_the_same_arithmetic_passes(cpu: Runtime, by: float) -> None:
    """Last bits may differ, as between any two devices."""
    check_device_agreement(Device(cpu, "logits", by), cpu, "batch", "a.onnx")  # type: ignore[arg-type]


@pytest.mark.parametrize("off", ["logits", "layer01.transform_gate"])
@pytest.mark.parametrize("by", [1e-3, -1e-3, float("nan"), float("inf")])
def test_other_arithmetic_is_refused(cpu: Runtime, off: str, by: float) -> None:
    """Ten bits of a product are no parity, in an answer or in a gate; the tensor is named."""
    with pytest.raises(
        ModelFileError, match=f"a.onnx: {off}: expected TestProvider within .* of the CPU"
    ) as error:
        check_device_agreement(Device(cpu, off, by), cpu, "batch", "a.onnx")  # type: ignore[arg-type]
    assert error.value.public_message == "its device does not compute what the CPU computes"


def test_shapes_and_nan_must_agree(cpu: Runtime) -> None:
    """A row too few is no answer, and NaN on one side is no agreement; on both it is."""
    nan = Device(cpu, "logits", float("nan"))
    check_device_agreement(nan, nan, "batch", "a.onnx")  # type: ignore[arg-type]
    for device, truth in ((Device(cpu, "logits", rows=-1), cpu), (nan, cpu), (cpu, nan)):
        with pytest.raises(ModelFileError, match="of the CPU, got inf"):
            check_device_agreement(device, truth, "batch", "a.onnx")  # type: ignore[arg-type]


def test_a_model_that_takes_no_rows_cannot_be_compared(cpu: Runtime) -> None:
    """So it is not said to agree."""

    class Never(Device):
        def run(self, feeds: Mapping[str, Array], names: Sequence[str] | None = None) -> list[Array]:
            raise RunError("no")

    with pytest.raises(ModelFileError, match="the model accepts none of those that were tried"):
        check_device_agreement(cpu, Never(cpu), "batch", "a.onnx")  # type: ignore[arg-type]
