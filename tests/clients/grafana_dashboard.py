"""Read a dashboard into Grafana's own classes, write it back, and print as JSON the fields that were lost."""

import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard


def lost(sent, got, where=""):
    """The paths of values that did not come back unchanged."""
    if isinstance(sent, dict) and isinstance(got, dict):
        return [
            path
            for key, value in sent.items()
            for path in (lost(value, got[key], f"{where}.{key}") if key in got else [f"{where}.{key}"])
        ]
    if isinstance(sent, list) and isinstance(got, list) and len(sent) == len(got):
        return [
            path
            for number, (before, after) in enumerate(zip(sent, got, strict=True))
            for path in lost(before, after, f"{where}[{number}]")
        ]
    return [] if sent == got else [where]


plugins.register_default_plugins()
sent = json.loads(Path(sys.argv[1]).read_text())
got = json.loads(JSONEncoder().encode(Dashboard.from_json(sent)))
json.dump(lost(sent, got), sys.stdout)
