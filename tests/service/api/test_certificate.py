"""What a file says of itself."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from service.api.model_facts import certificate_json
from service.artifact.manifest import InputRange, ParityBatch, Sample, TensorParity, Variant
from service.registry.model import Model
from tests.service.artifact.test_manifest import PARITY
from tests.service.artifact.test_sample_rows import kept
from tests.support.tiny_highway import Ending, highway
from tests.support.tiny_repository import opened, put, sealed


def told(model: Model) -> Any:
    return json.loads(certificate_json(model))


def tensor(name: str, rms: float) -> TensorParity:
    return TensorParity(name=name, rms=rms, rms_torch=1e-7, max=1e-6, max_torch=1e-6)


def test_it_tells_what_was_proved(tmp_path: Path) -> None:
    """Parity with its worst tensor, the file by its digest, and what it is made from."""
    parity = PARITY.model_copy(
        update={
            "tensors": (tensor("logits", 2e-7), tensor("layer00.output", 3e-7)),
            "batches": (ParityBatch(name="ordinary", rows=7, digest="d"),),
        }
    )
    found = put(
        tmp_path,
        data=sealed(
            highway(),
            parity=parity,
            alphabet="ab",
            precision="int8",
            variant=Variant(agreement=0.99, rows=100),
            ranges=(InputRange(input="x", low=-1, high=16),),
            samples=(Sample(inputs=(kept("x", [1, 2, 3, 4]),)),) * 2,
        ),
    )
    model = opened(found)
    data = found.path.read_bytes()
    answer = told(model)
    assert answer == {
        "model_name": "net",
        "model_version": "1",
        "verified": True,
        "bytes": len(data),
        "digest": hashlib.sha256(data).hexdigest(),
        "batched": True,
        "distribution": "logits",
        "precision": "int8",
        "source": "module",
        "labels": ["a", "b", "c"],
        "alphabet": "ab",
        "batch_coupled": False,
        "ranges": {"x": {"low": -1, "high": 16}},
        "samples": 2,
        "gates": 3,
        "parity": json.loads(parity.model_dump_json()) | {"worst": "layer00.output"},
        "variant": {"agreement": 0.99, "rows": 100, "metric": None, "metric_fp32": None},
        "tools": {"torch": "2"},
        "weights": "0" * 64,
    }


def test_a_file_without_a_manifest_has_one_too(tmp_path: Path) -> None:
    """With the same fields: what is not known is empty, and nothing is said to be proved."""
    model = opened(put(tmp_path, data=highway().model), allow_unverified=True)
    answer = told(model)
    assert answer["verified"] is False
    assert answer["bytes"] == model.bytes
    assert (answer["digest"], answer["batched"], answer["distribution"]) == (model.digest, True, "logits")
    for name in ("precision", "source", "parity", "variant", "weights"):
        assert answer[name] is None
    assert answer["labels"] == []
    assert answer["ranges"] == answer["tools"] == {}
    assert (answer["alphabet"], answer["samples"], answer["gates"]) == ("", 0, 0)
    assert answer.keys() == told(opened(put(tmp_path, "other"))).keys()


@pytest.mark.parametrize(
    ("ending", "classes", "distribution"), [("softmax", 3, "probabilities"), ("logits", 1, None)]
)
def test_what_the_first_output_holds(
    tmp_path: Path, ending: Ending, classes: int, distribution: str | None
) -> None:
    """Probabilities already, or neither these nor logits of classes."""
    model = opened(put(tmp_path, data=sealed(highway(ending=ending, classes=classes), labels=())))
    assert told(model)["distribution"] == distribution


def test_coupled_rows_are_told(tmp_path: Path) -> None:
    """And that such a model is not batched."""
    answer = told(opened(put(tmp_path, data=sealed(highway(), batch_coupled=True))))
    assert (answer["batch_coupled"], answer["batched"]) == (True, False)


def test_no_path_is_told(tmp_path: Path) -> None:
    """Where a file lies is nobody's business."""
    assert str(tmp_path).encode() not in certificate_json(opened(put(tmp_path)))
