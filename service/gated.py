"""Endpoints of models that have gates."""

from __future__ import annotations

from starlette.types import Scope

from service.endpoint import Endpoint
from service.errors import Unknown
from service.model import Model
from service.parts import Parts


class GatedEndpoint(Endpoint):
    """An endpoint that runs such a model."""

    def find(self, scope: Scope) -> Model:
        return find_gated(self.parts, scope)


def find_gated(parts: Parts, scope: Scope) -> Model:
    """The model of an address, where it has gates."""
    path = scope["path_params"]
    model = parts.shelf.find(path["model"], path.get("version"))
    if not model.gates:
        raise Unknown(f"model {model.name!r} has no gates that are known of")
    return model
