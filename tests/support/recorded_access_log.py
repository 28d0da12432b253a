"""An access log whose lines tests can read."""

from __future__ import annotations

import json
import logging
from typing import Any

from turnpike.service.telemetry.access_log import AccessLog


class RecordedAccessLog(AccessLog):
    """Keeps the fields of each line, and writes none."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        super().__init__(lambda lines: self.lines.extend(map(json.loads, lines.splitlines())))
        self.configure(None, human=False, min_level=logging.DEBUG)
