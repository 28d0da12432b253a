"""What a model's file says of itself beyond its gates: what was proved of it, and from what it was made."""

from __future__ import annotations

from typing import Any

import orjson

from service.artifact.manifest import Parity
from service.registry.model import Model


def certificate(model: Model) -> bytes:
    """The same fields for every model; those that only a manifest tells are empty where there is none."""
    manifest = model.manifest
    told: dict[str, Any] = {
        "model_name": model.name,
        "model_version": str(model.version),
        "verified": manifest is not None,
        "bytes": model.bytes,
        "digest": model.digest,
        "batched": model.batcher.batched,
        "distribution": _distribution(model),
        "precision": None,
        "source": None,
        "labels": model.labels,
        "alphabet": "",
        "batch_coupled": False,
        "ranges": {},
        "samples": 0,
        "gates": len(model.gates),
        "parity": None,
        "variant": None,
        "tools": {},
        "weights": None,
    }
    if manifest is not None:
        told |= manifest.model_dump(
            include={"precision", "source", "alphabet", "batch_coupled", "variant", "tools", "weights"}
        )
        told["ranges"] = {one.input: {"low": one.low, "high": one.high} for one in manifest.ranges}
        told["samples"] = len(manifest.samples)
        told["parity"] = _parity(manifest.parity)
    return orjson.dumps(told)


def _parity(parity: Parity) -> dict[str, Any]:
    worst = parity.worst
    return parity.model_dump() | {"worst": None if worst is None else worst.name}


def _distribution(model: Model) -> str | None:
    """What the first public output holds, where it holds classes."""
    if model.distribution is None:
        return None
    return "probabilities" if model.distribution else "logits"
