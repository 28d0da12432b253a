"""Fuzzing of messages between the processes of the service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
from typing import Any

from tests.support.fuzzing import Decoder, mutate_json
from turnpike.service.process.ipc import IpcChannel

Loop = asyncio.AbstractEventLoop


def ipc_decoder(loop: Loop) -> Decoder:
    """Lines on the channel between processes: they are answered, or the channel closes."""
    errors: list[object] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))

    async def echo(argument: Any) -> Any:
        return argument

    async def exchange(data: bytes) -> int:
        here, there = socket.socketpair()
        with there:
            channel = await IpcChannel.over(here)
            channel.handlers["echo"] = echo
            pending = asyncio.ensure_future(channel.ask("anything"))
            await asyncio.sleep(0)
            there.setblocking(False)
            there.sendall(data)
            there.shutdown(socket.SHUT_WR)
            await asyncio.wait_for(channel.closed.wait(), 5)
            with contextlib.suppress(Exception):
                await pending
            await channel.close()
            answers = b""
            with contextlib.suppress(BlockingIOError):
                while piece := there.recv(1 << 16):
                    answers += piece
        return answers.count(b"\n")

    def read(data: bytes) -> None:
        logging.disable(logging.CRITICAL)
        try:
            answers = loop.run_until_complete(exchange(data))
        finally:
            logging.disable(logging.NOTSET)
        assert not errors, errors
        if answers < 2:  # the question, and at least one answer
            raise ValueError("no answer")

    ask = b'{"ask":"echo","number":1,"argument":{"a":[1,2]}}\n'
    seeds = [
        ask,
        ask + b'{"number":0,"result":[1]}\n' + ask,
        ask + b'{"number":0,"error":"NotFoundError","text":"x"}\n',
    ]

    def change(data: bytes, draw: random.Random) -> bytes:
        lines = data.splitlines(keepends=True) or [b"{}\n"]
        index = draw.randrange(len(lines))
        lines[index] = mutate_json(lines[index], draw).rstrip(b"\n") + b"\n"
        return b"".join(lines)

    tokens = (b'"ask"', b'"number"', b'"error"', b"\n")
    return Decoder(read, seeds, (ValueError,), tokens, change, inputs=300)
