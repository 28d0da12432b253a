"""Options that make no sense are refused when they are built, before any work is done."""

from __future__ import annotations

from typing import Any

import pytest

from turnpike.export.compress.remove_units import CompressionOptions
from turnpike.export.errors import UsageError
from turnpike.export.options import AgreementLimits, DeviceOptions, PrecisionOptions, SourceOptions
from turnpike.export.pipeline import ExportOptions


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (AgreementLimits, {"min_agreement": 1.1}, "--min-agreement: expected a share from 0 to 1, got 1.1"),
        (AgreementLimits, {"max_error": float("inf")}, "--max-error: expected a relative error, .*, got inf"),
        (PrecisionOptions, {"max_error": -1}, "--max-error: expected a relative error, 0 or more, got -1"),
        (PrecisionOptions, {"precision": "bf16"}, "--precision: expected fp32, fp16, int8, got 'bf16'"),
        (DeviceOptions, {"min_agreement": -0.1}, "--min-agreement: expected a share from 0 to 1, got -0.1"),
        (DeviceOptions, {"device": "tpu"}, "--device: expected cpu, cuda, openvino, got 'tpu'"),
        (DeviceOptions, {"precision": "int8"}, "--precision: expected fp32, bf16, got 'int8'"),
        (DeviceOptions, {"precision": "bf16"}, "--precision: expected fp32 with --device cpu, got bf16"),
        (ExportOptions, {"replace": True}, "--replace: expected with --version"),
        (ExportOptions, {"samples": -1}, "--samples: expected a number of rows, 0 or more, got -1"),
        (CompressionOptions, {}, "--keep and --max-drop: expected one of the two"),
        (CompressionOptions, {"keep": 0.5, "finetune_epochs": -1}, "--finetune-epochs: expected 0 or more"),
    ],
)
def test_a_wrong_option_is_named(kind: type[Any], values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kind(**values)


def test_a_command_may_read_the_rows_itself() -> None:
    options = SourceOptions(name="net", data="digits", data_dir="data", labels=["a", "b"])
    assert options.without_rows() == SourceOptions(name="net", labels=["a", "b"])
