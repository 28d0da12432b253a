"""The deployment as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from turnpike.service.repository.deployment import Deployment, UnavailableModel
from turnpike.service.repository.scan import ModelFile


def test_a_deployment_survives_json() -> None:
    files = tuple(
        ModelFile("net", version, Path(f"/m/net/{version}/model.onnx"), (1, 2**62, 3)) for version in (2, 10)
    )
    deployment = Deployment(
        7,
        {"net": files, "none": ()},
        (
            UnavailableModel("net", 11, "its file is damaged"),
            UnavailableModel("link", None, "it leaves the repository"),
        ),
        (UnavailableModel("away", 1, "unloaded"),),
    )
    assert Deployment.from_json(json.loads(json.dumps(deployment.to_json()))) == deployment
    assert deployment.files == files
