"""Default options of an export, and the valid ones. Commands show them without importing PyTorch."""

from __future__ import annotations

DEFAULT_OPSET = 20
# the opsets that torch.onnx can write and onnxruntime can run
OPSETS = range(18, 24)

# share of answers in which a lower precision must agree with fp32
MIN_AGREEMENT = 0.99
# limit of the root mean square error of its outputs, relative to their root mean square in fp32
MAX_ERROR = 0.03
