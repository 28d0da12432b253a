"""A repository for the client's tests, calls by either client, and a server that misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from tests.support.cell_tables import put_cell_model
from tests.support.identity_model import identity_model
from tests.support.text_models import text_file
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from tests.support.two_inputs import two_input_model
from turnpike import service
from turnpike.client.client import AsyncClient, Client
from turnpike.service.artifact.manifest import Feature

Kind = Literal["blocking", "async"]
FEATURES = ("height [m]", "mass", "age", "0")
LABELS = ("NA", "007", "<b>")
# of the models that return their input
DTYPES = ("bool", "uint8", "int16", "int64", "float16", "float64")


def create_repository(root: Path) -> Path:
    """Write the models into a folder.

    `digits-10` is the bundled model, `table` has features and labels, `net` is the same network without both,
    `cells` has words, dates and blanks, `bare` has two inputs, no gates and no manifest, `same-DTYPE` returns
    its input, and `texts` takes texts.
    """
    shutil.copytree(Path(service.__file__).parent / "default/digits-10", root / "digits-10")
    put_table_model(root, FEATURES)
    put_cell_model(root)
    put_model(root, "net", data=with_manifest(highway(), labels=()))
    put_model(root, "bare", data=two_input_model())
    for dtype in DTYPES:
        put_model(root, f"same-{dtype}", data=identity_model(dtype))
    put_model(root, "texts", data=text_file())
    return root


def put_table_model(root: Path, features: tuple[str, ...], version: int = 1) -> None:
    """Put the network of `net` into the repository as `table`, with these names for its inputs in order."""
    records = tuple(
        Feature.model_validate({"name": name, "unit": "", "low": -1, "high": 1, "mean": 0, "sd": 1})
        for name in features
    )
    put_model(root, "table", version, with_manifest(highway(), labels=LABELS, features=records))


def call(kind: Kind, url: str, method: str, *arguments: Any, **more: Any) -> Any:
    """Call a method of a new client; `options` are those of the client."""
    options = more.pop("options", {})

    async def call_async() -> Any:
        async with AsyncClient(url, **options) as client:
            return await getattr(client, method)(*arguments, **more)

    if kind == "async":
        return asyncio.run(call_async())
    with Client(url, **options) as client:
        return getattr(client, method)(*arguments, **more)


# what the server does with a connection, after it has read from it
Action = Literal["reset", "close", "stall", "trickle head", "trickle body"] | bytes


@contextlib.contextmanager
def misbehaving(*actions: Action) -> Iterator[tuple[str, list[bytes]]]:
    """The address of a server whose connections get one action each, the last one for all further ones.

    The list has what it read from each connection.
    """
    received: list[bytes] = []
    stop = threading.Event()
    threads: list[threading.Thread] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def act(connection: socket.socket, action: Action) -> None:
        with connection, contextlib.suppress(OSError):
            received.append(connection.recv(65536))
            if isinstance(action, bytes):
                connection.sendall(action)
            elif action == "reset":
                # closed with pending data, so the client's system reports a reset
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif action == "stall":
                stop.wait(30)
            elif action.startswith("trickle"):
                if action == "trickle body":
                    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
                else:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
                while not stop.wait(0.05):
                    connection.sendall(b" ")

    def accept() -> None:
        count = 0
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                action = actions[min(count, len(actions) - 1)]
                count += 1
                threads.append(threading.Thread(target=act, args=(connection, action)))
                threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", received
    finally:
        stop.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in [acceptor, *threads]:
            thread.join(10)


def http_answer(status: int, body: bytes = b"{}", *headers: str) -> bytes:
    """An answer as bytes, after which the connection closes."""
    lines = [f"HTTP/1.1 {status} x", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body
