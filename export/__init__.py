"""The bridge from a trained network to a verified ONNX file; the one package that knows both worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from export.pipeline import Exported, export_model

__all__ = ["Exported", "export_model"]


def __getattr__(name: str) -> Any:
    """Import the pipeline when it is asked for, so that one room can be used without all the others."""
    if name in __all__:
        from export import pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
