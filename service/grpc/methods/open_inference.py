"""Calls of the Open Inference Protocol that run no model: metadata, statistics, and the repository.

Their answers are those of the routes of HTTP, as messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.json_format import ParseDict

from turnpike.service.api.admin import expect_change, expect_parameters
from turnpike.service.api.context import ServiceContext
from turnpike.service.api.open_inference import configuration, model_metadata, server_metadata
from turnpike.service.api.statistics import model_stats
from turnpike.service.errors import NotFoundError
from turnpike.service.grpc.messages.descriptors import message_class
from turnpike.service.registry.model import Model

PACKAGE = "inference"


class OpenInferenceMethods:
    """The functions that answer these calls, each with the message of the call."""

    def __init__(self, context: ServiceContext, is_ready: Callable[[], bool]) -> None:
        self._context = context
        self._registry = context.registry
        self._is_ready = is_ready

    def server_live(self, _: Any) -> Any:
        return _message("ServerLiveResponse", {"live": True})

    def server_ready(self, _: Any) -> Any:
        return _message("ServerReadyResponse", {"ready": self._is_ready()})

    def server_metadata(self, _: Any) -> Any:
        return _message("ServerMetadataResponse", server_metadata())

    def model_ready(self, request: Any) -> Any:
        try:
            is_ready = self._registry.is_ready(request.name, request.version or None)
        except NotFoundError:
            # as Triton answers: its clients wait for a model in a loop that an error would end
            is_ready = False
        return _message("ModelReadyResponse", {"ready": is_ready})

    def model_metadata(self, request: Any) -> Any:
        record = model_metadata(self._find(request), self._registry)
        for tensor in record["inputs"]:
            # whether it takes texts
            parameters = tensor.get("parameters", {})
            tensor["parameters"] = {name: {"bool_param": value} for name, value in parameters.items()}
        return _message("ModelMetadataResponse", record)

    def model_config(self, request: Any) -> Any:
        return _message("ModelConfigResponse", {"config": configuration(self._find(request), self._context)})

    async def model_statistics(self, request: Any) -> Any:
        version = self._find(request).version if request.version else None
        if request.name:
            self._registry.find(request.name)
        snapshots = await self._context.supervisor.ask("snapshots")
        stats = model_stats(snapshots, request.name or None, version)
        return _message("ModelStatisticsResponse", {"model_stats": stats})

    def repository_index(self, request: Any) -> Any:
        entries = [
            entry for entry in self._registry.index() if not request.ready or entry["state"] == "READY"
        ]
        return _message("RepositoryIndexResponse", {"models": entries})

    async def load_model(self, request: Any) -> Any:
        name = _changed_model(request)
        expect_parameters("load", request.parameters)
        expect_change(await self._context.supervisor.ask("load", name))
        return _message("RepositoryModelLoadResponse", {"model_name": name, "isLoaded": True})

    async def unload_model(self, request: Any) -> Any:
        name = _changed_model(request)
        expect_parameters("unload", request.parameters)
        expect_change(await self._context.supervisor.ask("unload", name))
        return _message("RepositoryModelUnloadResponse", {"model_name": name, "isUnloaded": True})

    def _find(self, request: Any) -> Model:
        return self._registry.find(request.name, request.version or None)


def _message(name: str, record: dict[str, Any]) -> Any:
    """A message with the fields of a record."""
    return ParseDict(record, message_class(f"{PACKAGE}.{name}")(), ignore_unknown_fields=True)


def _changed_model(request: Any) -> str:
    """The model to load or unload; see the .proto file for the two fields."""
    name: str = request.model_name or request.repository_name
    return name
