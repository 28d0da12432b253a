"""The same network in fewer bits: half precision for graphics cards, whole numbers for wide nets on a CPU."""

from __future__ import annotations

from typing import Literal

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes

from export.errors import PrecisionError
from export.precision.int8 import quantise
from export.trace.trace import quiet

Lower = Literal["fp16", "int8"]


def lower(model: bytes, precision: Lower) -> bytes:
    """The file in a lower precision, with the same inputs, outputs, hidden outputs, levers and metadata.

    All that goes in and comes out stays float32. The same bytes give the same bytes.
    """
    made = _half(model) if precision == "fp16" else _whole(model)
    passes.TopologicalSortPass()(made)
    passes.RemoveUnusedNodesPass()(made)
    return ir.to_proto(made).SerializeToString(deterministic=True)


def _half(model: bytes) -> ir.Model:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    proto = onnx.load_model_from_string(model)
    with quiet():
        made = convert_float_to_float16(proto, keep_io_types=True)
    # of what it keeps in float32 (the constants of a Max, say) it still notes that it is float16
    del made.graph.value_info[:]
    return ir.from_proto(onnx.shape_inference.infer_shapes(made))


def _whole(model: bytes) -> ir.Model:
    made = ir.from_proto(onnx.load_model_from_string(model))
    if quantise(made) == 0:
        raise PrecisionError(
            "--precision int8: expected a network that multiplies by matrices of float32 weights, "
            "and this one has none: export it in fp32 or fp16"
        )
    return made
