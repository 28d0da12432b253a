"""Options of the execution providers."""

from __future__ import annotations

import json

import pytest

from turnpike.service.artifact import runtime as runtime_module
from turnpike.service.artifact.devices import provider_options
from turnpike.service.artifact.runtime import PRODUCT_MODEL, open_model


def test_cuda_computes_products_without_tf32() -> None:
    """TF32 is onnxruntime's default for float32, and too coarse for parity."""
    assert provider_options("cuda", threads=1, precision="fp32") == {"use_tf32": "0"}


def test_openvino_gets_its_precision_and_threads() -> None:
    options = provider_options("openvino", threads=3, precision="bf16")
    config = json.loads(options["load_config"])["CPU"]
    assert (config["INFERENCE_PRECISION_HINT"], config["INFERENCE_NUM_THREADS"]) == ("bf16", "3")


def test_the_cpu_needs_no_options() -> None:
    assert provider_options("cpu", threads=2, precision="fp32") == {}


def test_a_model_is_opened_with_the_options_of_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """And on no other device: onnxruntime would fall back to the CPU silently."""
    opened = []

    class Session:
        def __init__(self, *arguments: object, **options: object) -> None:
            opened.append(options)
            raise RuntimeError("no GPU here")

    monkeypatch.setattr(runtime_module, "device_available", lambda device: True)
    monkeypatch.setattr(runtime_module.onnxruntime, "InferenceSession", Session)
    with pytest.raises(Exception, match="no GPU here"):
        open_model(PRODUCT_MODEL, device="cuda")
    assert opened == [
        {
            "providers": [("CUDAExecutionProvider", {"use_tf32": "0"})],
            "enable_fallback": 0,
            "disabled_optimizers": runtime_module.WRONG_OPTIMIZERS,
        }
    ]
