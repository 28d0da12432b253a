"""Tests of the agreement of a device with the CPU provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.tiny_highway import highway
from tests.support.tiny_repository import with_manifest
from turnpike.service.artifact.manifest import Precision
from turnpike.service.artifact.runtime import Runtime, open_model
from turnpike.service.errors import ModelFileError, RunError
from turnpike.service.registry.device_agreement import check_device_agreement

Array = np.ndarray[Any, np.dtype[Any]]


class Device:
    """A runtime with a deviation in one tensor."""

    provider = "TestProvider"

    def __init__(
        self, runtime: Runtime, tensor: str = "", deviation: float = 0.0, rows: int | None = None
    ) -> None:
        self.runtime, self.tensor, self.deviation, self.rows = runtime, tensor, deviation, rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runtime, name)

    def run(self, feeds: Mapping[str, Array], names: Sequence[str] | None = None) -> list[Array]:
        arrays = self.runtime.run(feeds, names)
        return [
            (array + np.float32(self.deviation))[: self.rows] if name == self.tensor else array
            for name, array in zip(names or ["logits"], arrays, strict=True)
        ]


@pytest.fixture(scope="module")
def cpu() -> Runtime:
    return open_model(with_manifest(highway()))


@pytest.mark.parametrize("deviation", [0.0, 1e-6])
def test_a_device_with_equal_results_is_accepted(cpu: Runtime, deviation: float) -> None:
    check_device_agreement(Device(cpu, "logits", deviation), cpu, "batch", "a.onnx")  # type: ignore[arg-type]


@pytest.mark.parametrize("tensor", ["logits", "layer01.transform_gate"])
@pytest.mark.parametrize("deviation", [1e-3, -1e-3, float("nan"), float("inf")])
def test_a_device_with_other_results_is_refused(cpu: Runtime, tensor: str, deviation: float) -> None:
    """TF32, with ten bits of precision, fails in outputs and in gates; the tensor is named."""
    with pytest.raises(
        ModelFileError, match=f"a.onnx: {tensor}: expected TestProvider within .* of the CPU"
    ) as error:
        check_device_agreement(Device(cpu, tensor, deviation), cpu, "batch", "a.onnx")  # type: ignore[arg-type]
    assert error.value.public_message == "its device does not compute what the CPU computes"


@pytest.mark.parametrize("tensor", ["logits", "layer01.transform_gate"])
def test_bf16_may_differ_by_its_own_last_bits(cpu: Runtime, tensor: str) -> None:
    """What is too much for fp32 is accepted, and a tenth of a value is not."""
    near, far = Device(cpu, tensor, 1e-2), Device(cpu, tensor, 1e-1)
    near.precision = far.precision = "bf16"
    check_device_agreement(near, cpu, "batch", "a.onnx")  # type: ignore[arg-type]
    with pytest.raises(ModelFileError, match=f"a.onnx: {tensor}: expected TestProvider within"):
        check_device_agreement(far, cpu, "batch", "a.onnx")  # type: ignore[arg-type]


@pytest.mark.parametrize(("precision", "near", "far"), [("fp16", 2e-3, 2e-2), ("int8", 1e-2, 1e-1)])
def test_a_file_of_lower_precision_may_differ_by_its_own_last_bits(
    precision: Precision, near: float, far: float
) -> None:
    """Its tensors are float32, but each device rounds in other places while it computes them."""
    cpu = open_model(with_manifest(highway()))
    assert cpu.manifest is not None
    cpu.manifest = cpu.manifest.model_copy(update={"precision": precision})
    for tensor in ("logits", "layer01.transform_gate"):
        check_device_agreement(Device(cpu, tensor, near), cpu, "batch", "a.onnx")  # type: ignore[arg-type]
        with pytest.raises(ModelFileError, match=f"a.onnx: {tensor}: expected TestProvider within"):
            check_device_agreement(Device(cpu, tensor, far), cpu, "batch", "a.onnx")  # type: ignore[arg-type]


def test_shapes_and_nan_of_a_device_must_agree(cpu: Runtime) -> None:
    """NaN on both sides agrees. NaN on one side and another shape do not."""
    nan = Device(cpu, "logits", float("nan"))
    check_device_agreement(nan, nan, "batch", "a.onnx")  # type: ignore[arg-type]
    for device, truth in ((Device(cpu, "logits", rows=-1), cpu), (nan, cpu), (cpu, nan)):
        with pytest.raises(ModelFileError, match="of the CPU, got inf"):
            check_device_agreement(device, truth, "batch", "a.onnx")  # type: ignore[arg-type]


def test_a_model_that_refuses_all_rows_cannot_be_compared(cpu: Runtime) -> None:

    class Never(Device):
        def run(self, feeds: Mapping[str, Array], names: Sequence[str] | None = None) -> list[Array]:
            raise RunError("no")

    with pytest.raises(ModelFileError, match="the model accepts none of those that were tried"):
        check_device_agreement(cpu, Never(cpu), "batch", "a.onnx")  # type: ignore[arg-type]
