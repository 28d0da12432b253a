"""The model that is served when no repository is given."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tests.support.tiny_repository import load_model
from turnpike import service
from turnpike.service.artifact.onnx_file.protobuf import content_digest
from turnpike.service.artifact.proof_records import InputRange
from turnpike.service.registry.model import Model
from turnpike.service.repository.scan import scan

DEFAULT = Path(service.__file__).parent / "default"


@pytest.fixture(scope="module")
def model() -> Model:
    ((found,),) = scan(DEFAULT).models.values()
    return load_model(found)


def test_the_bundled_model_is_complete(model: Model) -> None:
    """It has labels, gates with levers, a profile and a lesion curve."""
    assert (model.name, model.version) == ("digits-10", 1)
    assert model.labels == tuple("0123456789")
    assert len(model.gates) == 10
    assert all(gate.levers for gate in model.gates)
    assert model.manifest is not None
    assert model.manifest.profile is not None
    assert model.manifest.profile.rows == 359
    assert len(model.manifest.profile.contrast) == 10
    assert model.manifest.lesion is not None
    assert [lesion.layer for lesion in model.manifest.lesion.layers] == list(range(10))
    assert model.drift is not None
    assert model.batcher.runner.batched


def test_the_bundled_model_has_a_sample_of_each_class(model: Model) -> None:
    """The network was not trained on them. Pixels go from 0 to 16."""
    assert model.manifest is not None
    assert model.manifest.ranges == (InputRange(input="x", low=0, high=16),)
    assert [sample.label for sample in model.manifest.samples] == list("0123456789")
    known = {digit.tobytes() for digit in load_digits().images.astype(np.uint8)}
    for sample in model.manifest.samples:
        (pixels,) = sample.inputs
        assert (pixels.shape, pixels.dtype) == ((1, 8, 8), "uint8")
        assert pixels.raw in known


def test_graph_and_weights_of_the_bundled_model_do_not_change(model: Model) -> None:
    """Other fields of the manifest may be added."""
    assert model.manifest is not None
    assert model.manifest.weights[:16] == "e7df41a523b7dfe6"
    assert content_digest(model.path.read_bytes()) == model.manifest.content
    assert model.manifest.content[:16] == "595eeed605ff5c91"


def test_the_bundled_model_recognizes_digits(model: Model) -> None:
    """Its accuracy is 99 % of the rows that it was not trained on, with pixels from 0 to 16."""
    assert model.manifest is not None
    assert model.manifest.lesion is not None
    assert model.manifest.lesion.accuracy > 0.98
    digits = load_digits()
    logits = model.runtime.run({"x": digits.images.astype(np.float32)[:, None]})[0]
    assert (logits.argmax(1) == digits.target).mean() > 0.98


def test_the_bundled_model_is_small_and_anonymous(model: Model) -> None:
    """It is part of the repository, and must have no traces of the machine that exported it."""
    data = model.path.read_bytes()
    assert len(data) < 500_000
    # no folder of a user, no line of a traceback
    assert not re.search(rb"/[a-z]+/[a-z]+/[a-z]+|\.py\b", data)
