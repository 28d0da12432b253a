"""Endpoints of models that have gates."""

from __future__ import annotations

from collections.abc import Mapping

from service.api.context import Parts
from service.api.endpoint import Endpoint
from service.errors import Unknown
from service.registry.model import Model


class GatedEndpoint(Endpoint):
    """An endpoint that runs such a model."""

    def find(self, params: Mapping[str, str]) -> Model:
        return find_gated(self.parts, params)


def find_gated(parts: Parts, params: Mapping[str, str]) -> Model:
    """The model of an address, where it has gates."""
    model = parts.shelf.find(params["model"], params.get("version"))
    if not model.gates:
        raise Unknown(f"model {model.name!r} has no gates that are known of")
    return model
