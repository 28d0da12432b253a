"""The plan between processes."""

from __future__ import annotations

import json
from pathlib import Path

from service.repository.deployment import Plan, Unserved
from service.repository.scan import Found


def test_it_comes_back_as_it_went() -> None:
    """Through JSON, with everything in it."""
    files = tuple(
        Found("net", version, Path(f"/m/net/{version}/model.onnx"), (1, 2**62, 3)) for version in (2, 10)
    )
    plan = Plan(
        7,
        {"net": files, "none": ()},
        (Unserved("net", 11, "its file is damaged"), Unserved("link", None, "it leaves the repository")),
        (Unserved("away", 1, "unloaded"),),
    )
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.files == files
