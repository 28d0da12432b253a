"""`locust -f loadtest/locustfile.py --host URL`: the same load by locust's own command and web page."""

from __future__ import annotations

from locust import events

from loadtest.generate.users import Gates, Lesion, Mixed, PredictBinary, PredictJson, PredictV1
from loadtest.locust_hooks import Hooks

__all__ = ["Gates", "Lesion", "Mixed", "PredictBinary", "PredictJson", "PredictV1"]

Hooks(events)
