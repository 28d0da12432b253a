"""The plan between processes."""

from __future__ import annotations

import json
from pathlib import Path

from service.repository.deployment import Deployment, UnavailableModel
from service.repository.scan import ModelFile


def test_it_comes_back_as_it_went() -> None:
    """Through JSON, with everything in it."""
    files = tuple(
        ModelFile("net", version, Path(f"/m/net/{version}/model.onnx"), (1, 2**62, 3)) for version in (2, 10)
    )
    plan = Deployment(
        7,
        {"net": files, "none": ()},
        (
            UnavailableModel("net", 11, "its file is damaged"),
            UnavailableModel("link", None, "it leaves the repository"),
        ),
        (UnavailableModel("away", 1, "unloaded"),),
    )
    assert Deployment.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.files == files
