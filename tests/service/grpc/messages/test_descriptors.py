"""The messages' own pool: a program may also have the stubs of a client, with messages of the same names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.live_server import ROOT, environment
from turnpike.service.errors import RequestError
from turnpike.service.grpc.messages.descriptors import POOL, message_class, parse

# a ModelInferRequest of somebody else, in the pool that all generated stubs share
STUBS = """
from google.protobuf import descriptor_pb2, descriptor_pool
file = descriptor_pb2.FileDescriptorProto(name="{file}", package="inference")
file.message_type.add(name="ModelInferRequest").field.add(name="other", number=1, type=9, label=1)
descriptor_pool.Default().Add(file)
message = descriptor_pool.Default().FindMessageTypeByName("inference.ModelInferRequest")
assert message.fields[0].name == "other"
"""
OURS = """
from turnpike.service.grpc.messages.descriptors import message_class
assert message_class("inference.ModelInferRequest").DESCRIPTOR.fields[0].name == "model_name"
"""


@pytest.mark.parametrize("file", ["grpc_service.proto", "inference.proto"])
@pytest.mark.parametrize("ours_first", [True, False])
def test_stubs_of_a_client_may_be_in_the_same_process(file: str, ours_first: bool) -> None:
    """Imported before the service, or after it."""
    stubs = STUBS.format(file=file)
    program = OURS + stubs + OURS if ours_first else stubs + OURS
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment(), check=True)


def test_classes_are_found_by_their_full_names() -> None:
    assert message_class("turnpike.v1.LesionRequest").DESCRIPTOR.file.name == "gates.proto"
    assert message_class("inference.ModelInferRequest") is message_class("inference.ModelInferRequest")
    with pytest.raises(KeyError):
        message_class("inference.Absent")


def test_every_service_is_in_the_pool() -> None:
    names = (
        "inference.GRPCInferenceService",
        "turnpike.v1.GateService",
        "turnpike.v1.ModelService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
    )
    for name in names:
        assert POOL.FindServiceByName(name).methods


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05ab", b"\x0a\x01\xff"])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    """Without the text of protobuf's error."""
    with pytest.raises(RequestError) as caught:
        parse(message_class("inference.ModelMetadataRequest"), data)
    assert str(caught.value) == "body: expected a message inference.ModelMetadataRequest, got other bytes"
