"""An access log whose lines tests can read."""

from __future__ import annotations

import json
import logging
from typing import Any

from service.telemetry.access_log import AccessLog


class RecordedAccessLog(AccessLog):
    """Keeps the fields of each line, and writes none."""

    def __init__(self) -> None:
        super().__init__()
        self.configure(None, human=False, min_level=logging.DEBUG)
        self.lines: list[dict[str, Any]] = []

    def add(self, *args: Any) -> None:
        super().add(*args)
        self.lines += map(json.loads, self._lines)
        self._lines.clear()
