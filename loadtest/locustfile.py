"""`locust -f loadtest/locustfile.py --host URL`: the same load by locust's own command and web page."""

from __future__ import annotations

from locust import events

from loadtest.hooks import Hooks
from loadtest.users import Gates, Lesion, Mixed, PredictBinary, PredictJson, PredictV1

__all__ = ["Gates", "Lesion", "Mixed", "PredictBinary", "PredictJson", "PredictV1"]

Hooks(events)
