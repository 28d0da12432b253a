"""A request for the bundled model, which reads digits."""

from __future__ import annotations

from typing import Any

import numpy as np

NAME = "digits-10"
INFER = f"/v2/models/{NAME}/infer"
ROW = np.linspace(0, 16, 64, dtype=np.float32).reshape(1, 1, 8, 8)
BODY: dict[str, Any] = {
    "inputs": [{"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": ROW.ravel().tolist()}]
}
