"""How much is too much, for the parts that need no runtime to know."""

from __future__ import annotations

from dataclasses import dataclass

# the most rows that one run may hold; export proves parity up to it
MAX_ROWS = 128


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may be: its rows, how deep its JSON is nested, and how many bytes of JSON it has."""

    rows: int = 4096
    depth: int = 32
    json: int = 16 << 20
