"""How much is too much, for the parts that need no runtime to know."""

from __future__ import annotations

from dataclasses import dataclass

# the most rows that one run may hold; export proves parity up to it
MAX_ROWS = 128


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What one request may be: its rows, how deep its JSON is nested, and how many bytes of JSON it has."""

    max_rows: int = 4096
    max_depth: int = 32
    max_json_bytes: int = 16 << 20
