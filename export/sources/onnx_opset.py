"""Upgrades .onnx models of an old opset, and checks that the upgraded model computes the same."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import ModelProto, version_converter

from export.errors import SourceError, warn_user
from export.input_spec import InputSpec
from export.source import Array
from export.sources.onnx_checks import STANDARD_DOMAINS
from export.trace.trace import DEFAULT_OPSET
from service.artifact.runtime import Runtime, open_model

# the oldest opset that is exported as it is
MIN_OPSET = 17
# sizes to try for dynamic dimensions other than the batch: image networks need images of some size
TRIAL_SIZES = (8, 64, 224)


def upgrade(model: ModelProto, inputs: tuple[InputSpec, ...], where: str) -> ModelProto:
    """The model, converted if its opset is too old; a conversion must compute the same on random rows."""
    old = next(opset.version for opset in model.opset_import if opset.domain in STANDARD_DOMAINS)
    if old >= MIN_OPSET:
        return model
    try:
        converted = version_converter.convert_version(model, DEFAULT_OPSET)
        onnx.checker.check_model(converted, full_check=True)
    except Exception as error:  # the converter raises whatever its C++ side raises
        reason = " ".join(str(error).split())[:200]
        raise SourceError(
            f"{where}: expected opset {MIN_OPSET} or later, got {old}, which cannot be converted ({reason}): "
            "export the model again"
        ) from error
    expect_same_results(model, converted, inputs, f"{where}: opset {old} converted to {DEFAULT_OPSET}")
    warn_user(f"{where}: opset {old} was converted to {DEFAULT_OPSET}")
    return converted


def expect_same_results(old: ModelProto, new: ModelProto, inputs: tuple[InputSpec, ...], where: str) -> None:
    """Raise a SourceError unless both models return the same for the same rows, within rounding."""
    try:
        before, after = (open_model(model.SerializeToString(), where=where) for model in (old, new))
        expected, feeds = run_on_random_rows(before, inputs)
        outputs = after.run(feeds)
    except Exception as error:  # onnxruntime's own exceptions share no base
        reason = " ".join(str(error).split())[:200]
        raise SourceError(f"{where}: cannot be compared with the original ({reason})") from error
    for tensor, reference, output in zip(before.outputs, expected, outputs, strict=True):
        same = reference.shape == output.shape and np.allclose(
            reference, output, rtol=1e-4, atol=1e-5, equal_nan=True
        )
        if not same:
            raise SourceError(f"{where}: {tensor.name!r} computes something else: export the model again")


def run_on_random_rows(
    runtime: Runtime, inputs: tuple[InputSpec, ...]
) -> tuple[list[Array], dict[str, Array]]:
    """Run a model on random rows; returns its outputs and the rows."""
    random = np.random.default_rng(0)
    for size in TRIAL_SIZES:
        feeds = {}
        for tensor, spec in zip(runtime.inputs, inputs, strict=True):
            dims = [dim for dim in spec.dims if isinstance(dim, str)]
            shape = spec.shape(**{dim: 2 if dim == spec.dims[0] else size for dim in dims})
            values = random.standard_normal(shape) if "float" in spec.dtype else np.zeros(shape)
            feeds[tensor.name] = values.astype(spec.dtype)
        try:
            return runtime.run(feeds), feeds
        except Exception:
            if size == TRIAL_SIZES[-1]:
                raise
    raise AssertionError
