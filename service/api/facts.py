"""Answers that follow from a model's file alone: made when first asked for, kept as long as the model is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from starlette.types import Receive, Scope, Send

from service.api.context import Parts
from service.api.endpoint import respond
from service.registry.model import Model

Find = Callable[[Parts, Mapping[str, str]], Model]
Tell = Callable[[Model], bytes]


def find_model(parts: Parts, params: Mapping[str, str]) -> Model:
    """The model of an address, whatever it has."""
    return parts.shelf.find(params["model"], params.get("version"))


class FactsEndpoint:
    """Answers with what `tell` makes of the model in a thread, since much of it takes its time."""

    def __init__(self, parts: Parts, tell: Tell, find: Find = find_model) -> None:
        self._parts, self._tell, self._find = parts, tell, find

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        model = self._find(self._parts, scope["path_params"])
        body = model.facts.get(self._tell)
        if body is None:
            body = model.facts[self._tell] = await asyncio.to_thread(self._tell, model)
        await respond(send, body, held=self._parts.held)
