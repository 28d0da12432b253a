"""Calls of one message and one answer: reads the message, calls a function with it, and sends its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from turnpike.service.grpc.connection.call import Call
from turnpike.service.grpc.messages.descriptors import message_class, parse
from turnpike.service.grpc.methods.read_messages import read_message
from turnpike.service.requests.body import BodyReader
from turnpike.service.requests.response import Response


class UnaryEndpoint:
    """Answers a call with the message that a function makes of the call's message.

    Args:
        bodies: Reads the messages.
        request_name: Full name of the message of a call.
        answer: Returns the message of the answer; it may be a coroutine function.
    """

    def __init__(self, bodies: BodyReader, request_name: str, answer: Callable[[Any], Any]) -> None:
        self._bodies = bodies
        self._request_class = message_class(request_name)
        self._answer = answer

    async def __call__(self, call: Call) -> Response:
        data = await read_message(self._bodies, call)
        answer = self._answer(parse(self._request_class, data))
        if asyncio.iscoroutine(answer):
            answer = await answer
        return Response(answer.SerializeToString())
