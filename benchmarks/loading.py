"""What users of one model notice while another, a large one, is loaded beside it over and over."""

from __future__ import annotations

import threading
from typing import Any

from benchmarks import load
from benchmarks.bodies import Request
from benchmarks.cells import Cell, measured
from benchmarks.contestants import turnpike
from benchmarks.errors import BenchmarkError
from benchmarks.folder import folder_of
from benchmarks.lines import Writer
from benchmarks.nets import BOTH, L, S
from benchmarks.server import serving

WORKERS = (1, 2)
CONNECTIONS = (1, 16)
KEY = "the-key-of-a-benchmark"
# between a load and the next
REST_SECONDS = 0.5


def compare(writer: Writer, *, rounds: int, seconds: int) -> None:
    """S at rest and while L is loaded, in turn."""
    for net in BOTH:
        net.ensure()
    for number in range(rounds):
        for workers in WORKERS:
            # each worker has as many threads as it takes by itself
            one = turnpike("turnpike", workers=workers, threads=0, variables={"TURNPIKE_ADMIN_KEY": KEY})
            files = {net.name: net.exported() for net in BOTH}
            with folder_of(files) as folder, serving(one.serving(folder), S) as server:
                measured(server, Cell("JSON", 1, 16), 1, tries=1)
                for connections in CONNECTIONS:
                    cell = Cell("JSON", 1, connections)
                    told: dict[str, Any] = {"round": number, "workers": workers, "connections": connections}
                    rest = measured(server, cell, seconds).line()
                    with Loads(server.port) as loads:
                        # once: what loads in the server's processes is not told from what others do
                        during = measured(server, cell, seconds, tries=1).line()
                    for what, line in (("rest", rest), ("loading", during)):
                        loaded = loads.count if what == "loading" else 0
                        writer.write({"kind": "loading", **told, "what": what, "loads": loaded, **line})


class Loads:
    """Loads L, rests, and unloads it, until it is left; `count` is how often it was loaded."""

    def __init__(self, port: int) -> None:
        self.count = 0
        self._port = port
        self._over = threading.Event()
        self._failed: BenchmarkError | None = None
        self._thread = threading.Thread(target=self._go, name="loads", daemon=True)

    def __enter__(self) -> Loads:
        self._thread.start()
        return self

    def __exit__(self, *of: object) -> None:
        self._over.set()
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _go(self) -> None:
        try:
            while not self._over.is_set():
                self._ask("unload")
                self._ask("load")
                self.count += 1
                self._over.wait(REST_SECONDS)
        except BenchmarkError as error:
            self._failed = error

    def _ask(self, what: str) -> None:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        load.ask(self._port, f"/v2/repository/models/{L.name}/{what}", Request(b"{}", headers))
