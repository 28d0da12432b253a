"""Graphs of an old opset brought to today's, and shown to compute what they did."""

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

MIN_OPSET = 17
# sizes to try for dimensions other than the batch: some graphs need a picture of some size
TRIAL_SIZES = (8, 64, 224)


def upgrade(model: ModelProto, inputs: tuple[InputSpec, ...], where: str) -> ModelProto:
    """The model itself, or where its opset is too old its conversion, which has been seen to answer alike."""
    old = next(one.version for one in model.opset_import if one.domain in STANDARD_DOMAINS)
    if old >= MIN_OPSET:
        return model
    try:
        made = version_converter.convert_version(model, DEFAULT_OPSET)
        onnx.checker.check_model(made, full_check=True)
    except Exception as error:  # the converter raises whatever its C++ side does
        said = " ".join(str(error).split())[:200]
        raise SourceError(
            f"{where}: expected opset {MIN_OPSET} or later, got {old}, which cannot be converted ({said}): "
            "export the model again"
        ) from error
    expect_same_results(model, made, inputs, f"{where}: opset {old} converted to {DEFAULT_OPSET}")
    warn_user(f"{where}: opset {old} was converted to {DEFAULT_OPSET}")
    return made


def expect_same_results(old: ModelProto, new: ModelProto, inputs: tuple[InputSpec, ...], where: str) -> None:
    """Stop with a SourceError unless both models answer alike."""
    try:
        before, after = (open_model(one.SerializeToString(), where=where) for one in (old, new))
        expected, feeds = run_on_random_rows(before, inputs)
        got = after.run(feeds)
    except Exception as error:  # onnxruntime's own exceptions share no base
        said = " ".join(str(error).split())[:200]
        raise SourceError(f"{where}: cannot be compared with what it was ({said})") from error
    for tensor, one, other in zip(before.outputs, expected, got, strict=True):
        if one.shape != other.shape or not np.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True):
            raise SourceError(f"{where}: {tensor.name!r} answers differently: export the model again")


def run_on_random_rows(
    runtime: Runtime, inputs: tuple[InputSpec, ...]
) -> tuple[list[Array], dict[str, Array]]:
    """What a model answers to random rows, and these rows."""
    random = np.random.default_rng(0)
    for size in TRIAL_SIZES:
        feeds = {}
        for tensor, one in zip(runtime.inputs, inputs, strict=True):
            names = [dim for dim in one.dims if isinstance(dim, str)]
            shape = one.shape(**{dim: 2 if dim == one.dims[0] else size for dim in names})
            values = random.standard_normal(shape) if "float" in one.dtype else np.zeros(shape)
            feeds[tensor.name] = values.astype(one.dtype)
        try:
            return runtime.run(feeds), feeds
        except Exception:
            if size == TRIAL_SIZES[-1]:
                raise
    raise AssertionError
