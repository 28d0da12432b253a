"""The classes of all messages, from the compiled .proto files in `protos`.

They are kept in a pool of their own: a program that also imports the stubs of another client, such as
tritonclient, would otherwise have two messages of one name, which protobuf refuses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from turnpike.service.errors import RequestError

# written by `make protos`
DESCRIPTORS = Path(__file__).parent / "protos/services.binpb"

FILES = FileDescriptorSet.FromString(DESCRIPTORS.read_bytes())
POOL = DescriptorPool()
for file in FILES.file:
    POOL.Add(file)


def message_class(name: str) -> Any:
    """The class of a message, by its full name."""
    return GetMessageClass(POOL.FindMessageTypeByName(name))


def parse(kind: Any, data: bytes) -> Any:
    """Parse a message; raises RequestError."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise RequestError(
            f"body: expected a message {kind.DESCRIPTOR.full_name}, got other bytes"
        ) from error
