"""Reads a dashboard into Grafana's own classes, writes it back, and says as JSON what got lost on the way."""

import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard


def lost(sent, got, where=""):
    """Where what was sent did not come back as it was."""
    if isinstance(sent, dict) and isinstance(got, dict):
        return [
            found
            for key, value in sent.items()
            for found in (lost(value, got[key], f"{where}.{key}") if key in got else [f"{where}.{key}"])
        ]
    if isinstance(sent, list) and isinstance(got, list) and len(sent) == len(got):
        return [
            found
            for number, (one, other) in enumerate(zip(sent, got, strict=True))
            for found in lost(one, other, f"{where}[{number}]")
        ]
    return [] if sent == got else [where]


plugins.register_default_plugins()
sent = json.loads(Path(sys.argv[1]).read_text())
got = json.loads(JSONEncoder().encode(Dashboard.from_json(sent)))
json.dump(lost(sent, got), sys.stdout)
