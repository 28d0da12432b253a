"""Fuzzing of configuration files."""

from __future__ import annotations

from pathlib import Path

from tests.support.fuzzing import Decoder
from turnpike.service.config.resolve import read_config
from turnpike.service.errors import SettingError


def config_decoder(folder: Path) -> Decoder:
    file = folder / "turnpike.toml"

    def read(data: bytes) -> None:
        file.write_bytes(data)
        read_config(file, "--config")

    seeds = [
        b'workers = 2\nport = 8000\nmax_delay_ms = 1.5\ncors = ["https://a"]\nexact = false\n',
        b'workers = "auto"\n',
    ]
    tokens = (
        b"[measured]\n",
        b"x.y = 1\n",
        b'"""',
        b"1979-05-27",
        b"inf",
        b"0x1f",
        b"[[a]]\n",
        b"\\u0000",
        b"# ",
    )
    return Decoder(read, seeds, (SettingError,), tokens, inputs=100)
