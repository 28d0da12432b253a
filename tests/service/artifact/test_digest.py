"""The digest of what was proved: all of a file but its metadata."""

from __future__ import annotations

import onnx
import pytest

from service.artifact.protobuf import MalformedError, content_digest
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import sealed


def test_metadata_is_left_out() -> None:
    """A manifest is put into the very file whose digest it holds."""
    gated = highway()
    assert content_digest(sealed(gated)) == content_digest(gated.model)
    assert content_digest(sealed(gated, labels=("x", "y", "z"))) == content_digest(gated.model)


def test_every_weight_and_operator_counts() -> None:
    """Another weight, another name of an operator, another opset: another digest."""
    gated = highway()
    digests = {content_digest(gated.model), content_digest(highway(seed=7).model)}
    model = onnx.load_from_string(gated.model)
    model.graph.node[0].op_type = "Tanh"
    digests.add(content_digest(model.SerializeToString(deterministic=True)))
    model = onnx.load_from_string(gated.model)
    model.opset_import[0].version += 1
    digests.add(content_digest(model.SerializeToString(deterministic=True)))
    assert len(digests) == 4


def test_fields_do_not_run_into_each_other() -> None:
    """The same bytes cut elsewhere are another file."""
    one = b"\x0a\x02ab\x12\x01c"
    other = b"\x0a\x01a\x12\x02bc"
    assert content_digest(one) != content_digest(other)


def test_what_is_no_file_has_no_digest() -> None:
    """It ends within a field."""
    with pytest.raises(MalformedError):
        content_digest(b"\x0a\x09ab")
