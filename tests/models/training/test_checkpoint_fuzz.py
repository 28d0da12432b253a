"""Fuzz test of checkpoints: any file is loaded correctly, or refused with a CheckpointError."""

from __future__ import annotations

import random
from pathlib import Path

import torch

from tests.support.fuzzing import Decoder, check, mutate_json
from tests.support.tiny_checkpoint import CONFIG, tiny_record
from turnpike.models.errors import CheckpointError
from turnpike.models.networks.families import build_network
from turnpike.models.training.checkpoint import load_network, read_checkpoint, save_checkpoint

HEADER_SIZE_BYTES = 8


def change_header(data: bytes, draw: random.Random) -> bytes:
    """A .safetensors file with one value of its header changed, and the correct length of the header."""
    stop = HEADER_SIZE_BYTES + int.from_bytes(data[:HEADER_SIZE_BYTES], "little")
    header = mutate_json(data[HEADER_SIZE_BYTES:stop], draw)
    return len(header).to_bytes(HEADER_SIZE_BYTES, "little") + header + data[stop:]


def test_any_file_is_loaded_correctly_or_refused(tmp_path: Path) -> None:
    """Only CheckpointError is raised."""
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, build_network(CONFIG).state_dict(), tiny_record())

    def read(data: bytes) -> None:
        path.write_bytes(data)
        network, _ = load_network(path)
        tensors, _ = read_checkpoint(path)
        for name, tensor in network.state_dict().items():
            torch.testing.assert_close(tensor, tensors[name], rtol=0, atol=0, equal_nan=True)

    # the first time, torch imports some of its modules
    read(path.read_bytes())
    tokens = (b"F32", b"BF16", b"data_offsets", b"__metadata__", b"shape", b"[4]")
    check(Decoder(read, [path.read_bytes()], (CheckpointError,), tokens, change_header, inputs=60))
