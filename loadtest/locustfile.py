"""Entry point for locust's own command and web page: `locust -f loadtest/locustfile.py --host URL`."""

from __future__ import annotations

from locust import events

from turnpike.loadtest.generate.locust_users import (
    Gates,
    Lesion,
    Mixed,
    PredictBinary,
    PredictJson,
    PredictV1,
)
from turnpike.loadtest.locust_hooks import LocustHooks

__all__ = ["Gates", "Lesion", "Mixed", "PredictBinary", "PredictJson", "PredictV1"]

LocustHooks(events)
