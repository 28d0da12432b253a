"""Loads a model with a cache of prepared weights, and kills itself at a point of the preparation.

python -m tests.support.killed_preparation CACHE MODEL POINT
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.support.tiny_repository import load_model
from turnpike.service.registry import shared_weights
from turnpike.service.repository.scan import ModelFile, file_identity
from turnpike.service.weights import entry
from turnpike.service.weights.cache import WeightsCache

# the function during which it is killed, and whether before its work or after it
POINTS: dict[str, tuple[Any, str, bool]] = {
    "before it is prepared": (shared_weights, "_prepare", True),
    "before it is opened": (shared_weights, "_prepare", False),
    "before it is sealed": (entry.Entry, "seal", True),
    "before it has its name": (entry.Entry, "seal", False),
    "before its probe is stored": (shared_weights, "_store_probe", True),
}


def kill_at(point: str) -> None:
    owner, name, is_before = POINTS[point]
    function = getattr(owner, name)

    def killed(*arguments: Any, **options: Any) -> None:
        if not is_before:
            function(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, killed)


def main() -> None:
    cache, model, point = sys.argv[1:]
    path = Path(model)
    kill_at(point)
    weights = WeightsCache(Path(cache), 1 << 30, "a CPU", min_model_bytes=0)
    load_model(ModelFile("net", 1, path, file_identity(path.stat())), weights=weights)


if __name__ == "__main__":
    main()
