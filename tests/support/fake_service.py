"""A service with a small application in the place of ours: real processes, and nothing slow to import.

Run as a module, it serves: `python -m tests.small_service '{"port": 0}'`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from service.config.settings import Settings
from service.errors import DeviceError, NotReadyError, ServiceError
from service.process.ipc import Handler, IpcChannel
from service.process.supervisor import supervise
from service.telemetry.counters import RequestCounters

ROOT = Path(__file__).parents[2]


class SmallApp:
    """Answers with what it knows of itself; some paths do something first."""

    def __init__(self, settings: Settings, control: IpcChannel) -> None:
        self.draining = False
        self.control = control
        self.plans: list[dict[str, Any]] = []
        self.meter = RequestCounters()
        self.handlers: dict[str, Handler] = {
            "prepare": self.prepare,
            "commit": self.commit,
            "snapshot": self.snapshot,
        }
        match os.environ.get("SMALL_FAULT"):
            case "device":
                raise DeviceError("no such device here")
            case "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            case "bug":
                raise RuntimeError("a bug")

    async def start(self) -> None:
        if (seconds := os.environ.get("SMALL_LIFE")) is not None:
            asyncio.get_running_loop().call_later(float(seconds), os._exit, 3)

    async def stop(self) -> None:
        if file := os.environ.get("SMALL_STOPPED"):
            with Path(file).open("a") as stopped:
                stopped.write("stopped\n")

    async def prepare(self, plan: dict[str, Any]) -> dict[str, Any]:
        gate = os.environ.get("SMALL_GATE")
        while gate and not Path(gate).exists():
            await asyncio.sleep(0.01)
        return {"failed": []}

    async def commit(self, plan: dict[str, Any]) -> dict[str, Any]:
        self.plans.append(plan)
        return {"failed": []}

    async def snapshot(self, _: Any) -> dict[str, Any]:
        return {"meter": self.meter.snapshot(), "drift": {}}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        path, argument = scope["path"], scope["query_string"].decode()
        said: Any = {"pid": os.getpid(), "draining": self.draining, "scheme": scope["scheme"]}
        status = 200
        self.meter.count_response(path, scope["method"], 200, 1)
        match path:
            case "/ready":
                status = 200 if self.plans and not self.draining else 503
            case "/slow":
                await asyncio.sleep(float(argument))
            case "/block":
                time.sleep(float(argument))
            case "/plan":
                said["plans"] = self.plans
            case "/collected":
                said["objects"] = len(gc.get_objects())
            case "/switch":
                said["seconds"] = sys.getswitchinterval()
            case "/ask":
                what, _, given = argument.partition("=")
                try:
                    said["answer"] = await self.control.ask(what, given)
                except NotReadyError as error:
                    status, said = error.status, {"error": str(error)}
        body = json.dumps(said).encode()
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Running:
    """A supervisor in a process of its own, and what it has said."""

    def __init__(self, process: subprocess.Popen[str], models: Path) -> None:
        self.process = process
        self.models = models
        self.lines: list[dict[str, Any]] = []
        self.url = ""
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                said = json.loads(line)
            except ValueError:
                said = {"message": line.rstrip()}
            if said["message"].startswith("turnpike serves "):
                self.url = said["message"].split()[2]
            self.lines.append(said)

    @property
    def messages(self) -> list[str]:
        return [line["message"] for line in list(self.lines)]

    def get(self, path: str, seconds: float = 10) -> dict[str, Any]:
        with urllib.request.urlopen(self.url + path, timeout=seconds) as answer:
            return json.loads(answer.read())

    def pids(self, count: int) -> set[int]:
        """The workers that answer, of which there are so many."""
        found: set[int] = set()

        def complete() -> bool:
            found.add(self.get("/")["pid"])
            return len(found) == count

        until(complete)
        return found

    def signal(self, kind: signal.Signals) -> None:
        self.process.send_signal(kind)

    def wait(self, seconds: float = 15) -> int:
        status = self.process.wait(seconds)
        self._thread.join(seconds)
        return status


def until(condition: Callable[[], Any], seconds: float = 15) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to hold"
        time.sleep(0.01)


@contextlib.contextmanager
def running(
    models: Path, *, ready: bool = True, env: dict[str, str] | None = None, **settings: Any
) -> Iterator[Running]:
    """A small service on a free port; whatever is left of it at the end is ended."""
    given = {"models": str(models), "port": 0, "drain_wait": 0, "access_log": False, **settings}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.fake_service", json.dumps(given)],
        cwd=ROOT,
        env=os.environ | (env or {}),
        stderr=subprocess.PIPE,
        text=True,
        # so that all of it can be ended, and signalled as a terminal would
        start_new_session=True,
    )
    service = Running(process, models)
    try:
        if ready:
            until(lambda: service.url or process.poll() is not None)
            assert service.url, service.messages
        yield service
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        service.wait()
        assert process.stderr is not None
        process.stderr.close()


def main() -> None:
    given = json.loads(sys.argv[1])
    try:
        status = supervise(Settings(**given), SmallApp)
    except ServiceError as error:
        sys.stderr.write(f"error: {error}\n")
        status = error.exit_status
    sys.exit(status)


if __name__ == "__main__":
    main()
