"""What a proof is a proof of: a digest over all of a model file but its metadata, where the proof lies."""

from __future__ import annotations

from hashlib import sha256

from service.artifact.protobuf import fields

METADATA = 14


def content_digest(data: bytes | memoryview) -> str:
    """SHA-256 of every field of the file but its metadata, in order; a MalformedError of what is no file."""
    digest = sha256()
    for field in fields(memoryview(data)):
        if field.number == METADATA:
            continue
        if isinstance(field.value, int):
            digest.update(f"{field.number}={field.value};".encode())
        else:
            digest.update(f"{field.number}:{len(field.value)};".encode())
            digest.update(field.value)
    return digest.hexdigest()
