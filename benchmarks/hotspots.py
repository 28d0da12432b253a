"""Where a loaded worker's time goes: py-spy looks at it again and again, into native code too."""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from benchmarks import environments, gates, processes
from benchmarks.cells import Cell, measured
from benchmarks.contestants import turnpike
from benchmarks.errors import BenchmarkError
from benchmarks.lines import Line, Writer
from benchmarks.nets import BOTH, Net
from benchmarks.server import serving
from benchmarks.tables import table

# a second; each stops the process for a while, and at 400 it does hardly anything but stop
LOOKS = 50
MOST = 25
# cells whose time is told, and those of which it is told of requests for gates, too
ASKED = {"S": (Cell("JSON", 1, 1), Cell("JSON", 1, 64), Cell("binary", 32, 16)), "L": (Cell("JSON", 1, 64),)}
GATES = {"S": (Cell("JSON", 1, 1),), "L": (Cell("JSON", 1, 64),)}
ONE = turnpike("turnpike", workers=1)
# calls of the system that end when there is something to do, and a thread that has nothing to do
WAITING = ("epoll_wait", "epoll_pwait", "pthread_cond_wait", "sem_wait")
IDLE = ("_worker", "concurrent/futures/thread.py")


def profile(writer: Writer, *, seconds: int) -> None:
    """Each cell with one worker, which is looked at."""
    program = environments.python("py-spy").with_name("py-spy")
    for net in BOTH:
        net.ensure()
        with serving(ONE, net) as server:
            infer = server.path("v2 JSON")
            asked: list[tuple[Cell, str, str]] = [(cell, cell.kind, infer) for cell in ASKED[net.name]]
            asked += [(cell, "gates", gates.address(infer)) for cell in GATES[net.name]]
            for cell, request, path in asked:
                # the load is on before the first look and after the last
                loading = threading.Thread(
                    target=measured, args=(server, cell, seconds + 4, [path]), kwargs={"tries": 1}
                )
                loading.start()
                try:
                    found = self_time(looked(program, busiest(), seconds))
                finally:
                    loading.join()
                tell(writer, net, cell, request, found)


def busiest() -> psutil.Process:
    """The worker: of the server's processes the one that takes the most CPU within a second."""
    servers = [one for one in processes.descendants() if one.name() != "wrk"]
    before = [processes.cpu_seconds([one]) for one in servers]
    time.sleep(1)
    taken = [processes.cpu_seconds([one]) - then for one, then in zip(servers, before, strict=True)]
    return servers[taken.index(max(taken))]


def looked(program: Path, worker: psutil.Process, seconds: int) -> list[str]:
    """py-spy's stacks, each with how often it was seen."""
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw"
        options = ["--native", "--rate", str(LOOKS), "--duration", str(seconds), "--format", "raw"]
        done = subprocess.run(
            [program, "record", "--pid", str(worker.pid), *options, "--output", raw],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or not raw.exists():
            raise BenchmarkError(
                f"py-spy: expected stacks of process {worker.pid}, got: {done.stderr[-300:]}"
            )
        return raw.read_text(encoding="utf-8").splitlines()


def self_time(stacks: Sequence[str]) -> Counter[str]:
    """How often each function or library was at work; waiting is no work."""
    found: Counter[str] = Counter()
    for stack in stacks:
        frames, _, count = stack.rpartition(" ")
        name = at_work([parted(frame) for frame in frames.split(";")])
        if name is not None:
            found[name] += int(count)
    return found


def at_work(frames: Sequence[tuple[str, str]]) -> str | None:
    """What the innermost frame is told as: a call of the system, a library of native code, or our Python.

    What Python itself does in C is done for the function that runs. None is one who waits.
    """
    name, place = frames[-1]
    if place.startswith("libc.") and not name.startswith("0x"):
        return None if name in WAITING else f"{name} (system)"
    for name, place in reversed(frames):
        if ".so" in place and "/" in place:
            return f"{place.partition('/')[0]} (native code)"
        if place.endswith(".py") or place.startswith("<"):
            return None if (name, place) == IDLE else f"{name} ({place})"
    return "the interpreter"


def parted(frame: str) -> tuple[str, str]:
    """The name of a frame's function, and its file without the line."""
    name, _, place = frame.rstrip(")").rpartition(" (")
    return name, re.sub(r":\d+$", "", place)


def tell(writer: Writer, net: Net, cell: Cell, request: str, found: Counter[str]) -> None:
    total = found.total()
    asked = {"net": net.name, "request": request, "rows": cell.rows, "connections": cell.connections}
    for name, count in found.most_common(MOST):
        writer.write({"kind": "profile", **asked, "what": name, "share": round(count / total, 4)})


def hotspots(lines: Sequence[Line]) -> str:
    """A table for each cell, of shares of the worker's time."""
    parts = []
    cells = dict.fromkeys(
        (line["net"], line["request"], line["rows"], line["connections"])
        for line in lines
        if line["kind"] == "profile"
    )
    for net, kind, rows, connections in cells:
        some = [
            [f"`{line['what']}`", f"{line['share']:.1%}"]
            for line in lines
            if (line.get("net"), line.get("request"), line.get("rows"), line.get("connections"))
            == (net, kind, rows, connections)
        ]
        parts.append(f"**{net}, {kind}, rows: {rows}, connections: {connections}**")
        parts.append(table(["function", "share"], some))
    return "\n\n".join(parts)
