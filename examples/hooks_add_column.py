"""A hook adds a column to the answers: by how much the best score exceeds the second best.

uvicorn hooks_add_column:app &
curl -s http://127.0.0.1:8000/v2/models/digits-10
"""

import numpy as np

import turnpike


def add_margin(_: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    scores = np.sort(outputs["output"], axis=1)
    return {**outputs, "margin": scores[:, -1] - scores[:, -2]}


margin = turnpike.Tensor("margin", "float32", ("batch",))
app = turnpike.create_app(hooks={"digits-10": turnpike.Hooks(after=add_margin, outputs=(margin,))})
