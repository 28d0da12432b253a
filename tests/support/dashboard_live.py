"""Traffic for the section "Live" of the dashboard."""

from __future__ import annotations

import time

from tests.support.live_server import Server

IMAGE = {"name": "x", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.0] * 64}


def send_noise(server: Server, rows: int) -> None:
    """Send pictures of noise until drift is based on that many rows."""
    image = {**IMAGE, "shape": [128, 1, 8, 8], "data": [16.0, 0.0] * (128 * 32)}
    until = time.monotonic() + 60
    while server.get("/v2/models/digits-10/gates/drift").json()["rows"] < rows:
        assert time.monotonic() < until
        server.post("/v2/models/digits-10/infer", {"inputs": [image]})
        time.sleep(0.1)
