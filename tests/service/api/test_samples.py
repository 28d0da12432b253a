"""Rows to try a model with."""

from __future__ import annotations

import json
from pathlib import Path

from service.api.model_facts import samples_json
from service.artifact.manifest import Sample
from tests.service.artifact.test_sample_rows import kept
from tests.support.gates_app import Asker, manifest_of
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import opened, put, sealed

ROWS = (
    Sample(label="<script>", inputs=(kept("x", [0, 1, 2, 255]),)),
    Sample(inputs=(kept("x", [0.5, -1.25, 3e-8, 0], "float32"),)),
)


def test_each_comes_as_an_infer_request_has_it(tmp_path: Path) -> None:
    """With one row, in the input's own datatype, whatever it was stored as."""
    answer = json.loads(samples_json(opened(put(tmp_path, "net", 3, sealed(highway(), samples=ROWS)))))
    assert (answer["model_name"], answer["model_version"]) == ("net", "3")
    first, second = answer["samples"]
    assert first == {
        "label": "<script>",
        "inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [0, 1, 2, 255]}],
    }
    assert second["label"] == ""
    assert second["inputs"][0]["data"] == [0.5, -1.25, 3e-8, 0]


def test_they_may_be_posted_as_they_are(tmp_path: Path) -> None:
    """The answer is that of the row."""
    gated = highway()
    asker = Asker.of(tmp_path, gated, manifest_of(gated).model_copy(update={"samples": ROWS}))
    for sample in json.loads(asker.ask("samples")[1])["samples"]:
        answer = json.loads(asker.ask("gates", json.dumps({"inputs": sample["inputs"]}).encode())[1])
        assert answer["outputs"][0]["shape"] == [1, 3]


def test_files_without_any_have_an_empty_list(tmp_path: Path) -> None:
    """Those of a manifest without, and those without a manifest."""
    bare = opened(put(tmp_path, "bare", data=highway().model), allow_unverified=True)
    for model in (opened(put(tmp_path)), bare):
        assert json.loads(samples_json(model))["samples"] == []
