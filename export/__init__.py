"""Exports a trained network to a verified ONNX file: the only package that knows both PyTorch and ONNX.

Takes a network (a checkpoint, Python code, a .pt2 or an .onnx file) and writes it into a model repository.
May import `models`, and `service.artifact` of `service`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnpike.export.pipeline import ExportResult, export_model
    from turnpike.export.verify import VerificationResult, verify_model

__all__ = ["ExportResult", "VerificationResult", "export_model", "verify_model"]

MODULES = {
    "ExportResult": "turnpike.export.pipeline",
    "export_model": "turnpike.export.pipeline",
    "VerificationResult": "turnpike.export.verify",
    "verify_model": "turnpike.export.verify",
}


def __getattr__(name: str) -> Any:
    """Import lazily, so that a single sub-package can be used without loading all the others."""
    if name in MODULES:
        return getattr(importlib.import_module(MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
