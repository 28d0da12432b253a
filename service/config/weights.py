"""How large the weights of a model file are, told from the headers in it: the data is not looked at."""

from __future__ import annotations

import mmap
from pathlib import Path
from statistics import median

from service.artifact.protobuf import messages

# numbers of fields: ModelProto.graph, GraphProto.initializer
GRAPH, INITIALIZER = 7, 5
# biases and scales are smaller, and take next to no time
LEAST = 1 << 16


def typical(path: Path) -> int:
    """Bytes of the weight in the middle of all that are not small; 0 where there is none, or no model."""
    try:
        with path.open("rb") as file:
            model = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        sizes = [
            len(weight)
            for graph in messages(model, GRAPH)
            for weight in messages(graph, INITIALIZER)
            if len(weight) >= LEAST
        ]
    except (OSError, ValueError):
        # whoever loads the file says what is wrong with it
        return 0
    return int(median(sizes)) if sizes else 0
