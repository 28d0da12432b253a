"""The routes that look into a model: gates read, moved, as they were and as they are; proof and samples."""

from __future__ import annotations

import orjson
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from service.api.certificate import certificate
from service.api.context import Parts
from service.api.endpoint import respond
from service.api.facts import FactsEndpoint
from service.api.gated import find_gated
from service.api.gates_endpoint import GatesEndpoint
from service.api.lesion_endpoint import LesionEndpoint
from service.api.profile import profile
from service.api.samples import samples
from service.errors import Unknown


class DriftEndpoint:
    """`GET …/gates/drift`: live traffic of all workers against the profile."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        model = find_gated(self._parts, scope["path_params"])
        if model.drift is None:
            raise Unknown(
                f"model {model.name!r} has no profile to tell drift from: it was exported without rows"
            )
        version = str(model.version)
        snapshots = [one["drift"] for one in await self._parts.control.ask("snapshots")]
        seen = [one[model.name][version] for one in snapshots if version in one.get(model.name, {})]
        about = {"model_name": model.name, "model_version": version}
        await respond(send, orjson.dumps(about | model.drift.merge(seen).to_json()))


def routes(parts: Parts) -> list[Route]:
    """Each with and without a version in its address."""
    found = []
    for path, method, endpoint in (
        ("gates", "POST", GatesEndpoint(parts)),
        ("lesion", "POST", LesionEndpoint(parts)),
        ("gates/profile", "GET", FactsEndpoint(parts, profile, find_gated)),
        ("gates/drift", "GET", DriftEndpoint(parts)),
        ("certificate", "GET", FactsEndpoint(parts, certificate)),
        ("samples", "GET", FactsEndpoint(parts, samples)),
    ):
        guarded = parts.access.guard("api", endpoint)
        name = path.replace("/", "_")
        for version, suffix in (("", ""), ("/versions/{version}", "_version")):
            address = f"/v2/models/{{model}}{version}/{path}"
            found.append(Route(address, guarded, methods=[method], name=name + suffix))
    return found
