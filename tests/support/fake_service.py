"""The real supervisor and workers with a small fake application, which is quick to import.

Run as a module, it serves: `python -m tests.support.fake_service '{"port": 0}'`.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote_to_bytes

from tests.support.echo_server import AsgiApplication
from tests.support.waiting import wait_until
from turnpike.service.config.settings import Settings
from turnpike.service.errors import DeviceError, NotReadyError, ServiceError
from turnpike.service.process.ipc import Handler, IpcChannel
from turnpike.service.process.supervisor import supervise
from turnpike.service.telemetry.counters import RequestCounters

ROOT = Path(__file__).parents[2]


class FakeApp:
    """Answers with facts about its worker; some paths do something first."""

    grpc: Any = None

    def __init__(self, settings: Settings, control: IpcChannel) -> None:
        self.draining = False
        self.control = control
        self.deployments: list[dict[str, Any]] = []
        self.meter = RequestCounters()
        application = AsgiApplication(self, settings)
        self.connection_limits = application.connection_limits
        self.handle = application.handle
        self.count_refused = application.count_refused
        self.handlers: dict[str, Handler] = {
            "prepare": self.prepare,
            "commit": self.commit,
            "snapshot": self.snapshot,
        }
        match os.environ.get("FAKE_FAULT"):
            case "device":
                raise DeviceError("no such device here")
            case "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            case "bug":
                raise RuntimeError("a bug")
            case "hang":
                time.sleep(600)

    async def start(self) -> None:
        if (seconds := os.environ.get("FAKE_LIFE")) is not None:
            asyncio.get_running_loop().call_later(float(seconds), os._exit, 3)
        if (seconds := os.environ.get("FAKE_HANG_AFTER")) is not None:
            asyncio.get_running_loop().call_later(float(seconds), time.sleep, 600)

    async def stop(self) -> None:
        if file := os.environ.get("FAKE_STOPPED"):
            with Path(file).open("a") as stopped:
                stopped.write("stopped\n")

    async def prepare(self, deployment: dict[str, Any]) -> dict[str, Any]:
        model, _, version = os.environ.get("FAKE_HANG_ON", "").partition("/")
        if any(str(file["version"]) == version for file in deployment["models"].get(model, ())):
            time.sleep(float(os.environ.get("FAKE_HANG_SECONDS", "600")))
        gate = os.environ.get("FAKE_GATE")
        slow = [["slow", file["version"]] for file in deployment["models"].get("slow", ())]
        if gate and slow and not Path(gate).exists():
            await asyncio.sleep(0.1)
            return {"failed": [], "untried": [], "loading": slow}
        return {"failed": [], "untried": [], "loading": []}

    async def commit(self, deployment: dict[str, Any]) -> dict[str, Any]:
        if self.deployments:
            await asyncio.sleep(float(os.environ.get("FAKE_COMMIT_SECONDS", "0")))
        self.deployments.append(deployment)
        return {"failed": []}

    async def snapshot(self, _: Any) -> dict[str, Any]:
        return {"counters": self.meter.snapshot(), "drift": {}}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        path, argument = scope["path"], scope["query_string"].decode()
        response: Any = {"pid": os.getpid(), "draining": self.draining, "scheme": scope["scheme"]}
        status = 200
        self.meter.count_response(path, scope["method"], 200, 1)
        match path:
            case "/ready":
                is_complete = bool(self.deployments) and self.deployments[-1]["complete"]
                status = 200 if is_complete and not self.draining else 503
            case "/slow":
                await asyncio.sleep(float(argument))
            case "/block":
                time.sleep(float(argument))
            case "/deployments":
                response["deployments"] = self.deployments
            case "/collected":
                response["objects"] = len(gc.get_objects())
                response["enabled"] = gc.isenabled()
            case "/print":
                with contextlib.suppress(BlockingIOError):
                    os.write(2, unquote_to_bytes(argument))
            case "/abort":
                os.write(2, unquote_to_bytes(argument))
                os.abort()
            case "/switch":
                response["seconds"] = sys.getswitchinterval()
            case "/ask":
                name, _, value = argument.partition("=")
                try:
                    response["answer"] = await self.control.ask(name, value)
                except NotReadyError as error:
                    status, response = error.status, {"error": str(error)}
        body = json.dumps(response).encode()
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class RunningService:
    """A supervisor in a process of its own, and its log lines."""

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
                record = json.loads(line)
            except ValueError:
                record = {"message": line.rstrip()}
            if record["message"].startswith("turnpike serves "):
                self.url = record["message"].split()[2]
            self.lines.append(record)

    @property
    def messages(self) -> list[str]:
        return [line["message"] for line in list(self.lines)]

    def get(self, path: str, seconds: float = 10) -> dict[str, Any]:
        with urllib.request.urlopen(self.url + path, timeout=seconds) as response:
            return json.loads(response.read())

    def pids(self, count: int) -> set[int]:
        """The process ids of the workers. There must be `count`."""
        pids: set[int] = set()

        def complete() -> bool:
            pids.add(self.get("/")["pid"])
            return len(pids) == count

        wait_until(complete)
        return pids

    def signal(self, kind: signal.Signals) -> None:
        self.process.send_signal(kind)

    def wait(self, seconds: float = 15) -> int:
        status = self.process.wait(seconds)
        self._thread.join(seconds)
        return status


@contextlib.contextmanager
def running(
    models: Path, *, ready: bool = True, env: dict[str, str] | None = None, **settings: Any
) -> Iterator[RunningService]:
    """A fake service on a free port, without polling. At the end all its processes are killed."""
    values = {"models": str(models), "poll": 0, "port": 0, "drain_wait": 0, "access_log": False, **settings}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.fake_service", json.dumps(values)],
        cwd=ROOT,
        env=os.environ | (env or {}),
        stderr=subprocess.PIPE,
        text=True,
        # a process group of its own, so that all processes can be killed or signalled as from a terminal
        start_new_session=True,
    )
    service = RunningService(process, models)
    try:
        if ready:
            wait_until(lambda: service.url or process.poll() is not None)
            assert service.url, service.messages
        yield service
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        service.wait()
        assert process.stderr is not None
        process.stderr.close()


def problems(service: RunningService) -> list[str]:
    """Messages logged as warnings or errors."""
    return [line["message"] for line in service.lines if line.get("level") not in ("info", "debug")]


def write_file(models: Path, name: str, version: int) -> None:
    """Write a file where a model would be."""
    folder = models / name / str(version)
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"a model")


def status_of(service: RunningService, path: str) -> int:
    """The status of the response, 0 without one."""
    try:
        service.get(path)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0
    return 200


def answer_of(service: RunningService, pid: int, path: str) -> Any:
    """The response of one worker. Tries connections until one reaches it."""
    while True:
        try:
            response = service.get(path, seconds=4)
        except TimeoutError:
            continue
        if response["pid"] == pid:
            return response


def deployments_of(service: RunningService) -> list[Any]:
    """The deployments that both workers have received."""
    by_worker: dict[int, Any] = {}

    def complete() -> bool:
        response = service.get("/deployments")
        by_worker[response["pid"]] = response["deployments"]
        return len(by_worker) == 2

    wait_until(complete)
    return list(by_worker.values())


def main() -> None:
    try:
        status = supervise(Settings(**json.loads(sys.argv[1])), FakeApp)
    except ServiceError as error:
        sys.stderr.write(f"error: {error}\n")
        status = error.exit_status
    sys.exit(status)


if __name__ == "__main__":
    main()
