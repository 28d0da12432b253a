"""`turnpike serve --engine ray`: starts a Ray cluster or joins one, and serves until a signal."""

from __future__ import annotations

import logging
import re
import signal
import threading
import time
from collections.abc import Callable

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.schema import ProxyStatus

from turnpike.service.config.settings import Settings
from turnpike.service.errors import ServiceError, SettingError
from turnpike.service.http.connection.listener import url_of
from turnpike.service.ray.application import NAME, arguments_of, build_from
from turnpike.service.telemetry.log import TERMINAL_LINES, configure_logging

log = logging.getLogger("turnpike")

# what Ray's proxies may take to start
START_SECONDS = 240.0
# what the cluster may take to stop, beyond the time that requests have
STOP_SECONDS = 15.0
# in what HAProxy says
PORT_IN_USE = re.compile(r"cannot bind socket \(Address already in use\) for \[([^\]]+)\]")


class RayStartError(ServiceError):
    """The service could not be started on Ray."""

    exit_status = 1


def launch(settings: Settings) -> int:
    """Serve on Ray until SIGINT or SIGTERM. Returns the exit status.

    The cluster is the one that RAY_ADDRESS names, else one that runs on this machine, else a new one.

    Raises:
        RayStartError: The cluster cannot be reached, or no replica starts.
    """
    if settings.port == 0:
        raise SettingError("--port: expected a number with --engine ray, got 0: Ray chooses no free port")
    configure_logging(settings.log_level)
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, RayError, RuntimeError) as error:
        raise RayStartError(f"--engine ray: expected a Ray cluster that answers: {error}") from error
    stopped = threading.Event()
    try:
        # after Ray's own handlers
        _on_signal(_interrupt)
        _start_proxies(settings)
        serve.run(build_from(arguments_of(settings)), name=NAME, route_prefix="/")
        _on_signal(lambda *_: stopped.set())
    except KeyboardInterrupt:
        log.info("turnpike is stopping before it has started")
        return stop(0)
    except (RayError, RuntimeError) as error:
        raise RayStartError(f"--engine ray: no replica started: {reason_of(error)}") from error
    url = url_of("http", settings.host, settings.port)
    lines = [f"page: {url}/"] if settings.dashboard else []
    log.info("turnpike serves %s on Ray", url, extra={TERMINAL_LINES: [*lines, "Ctrl-C stops it"]})
    stopped.wait()
    log.info("turnpike is stopping: requests have %g s to finish", settings.drain_seconds)
    return stop(settings.drain_wait + settings.drain_seconds)


def _start_proxies(settings: Settings) -> None:
    """Start Ray Serve, also where the machine is too busy for the minute that Ray gives its proxies.

    Raises:
        RayStartError: The proxies are not ready in time.
    """
    end = time.monotonic() + START_SECONDS
    try:
        serve.start(http_options={"host": settings.host, "port": settings.port})
    except TimeoutError as error:
        # they go on starting
        log.warning("%s The machine may be busy: waiting on", error)
    else:
        return
    while time.monotonic() < end:
        states = serve.status().proxies.values()
        if states and all(state == ProxyStatus.HEALTHY for state in states):
            return
        time.sleep(1)
    raise RayStartError(f"--engine ray: expected Ray's HTTP proxies to start in {START_SECONDS:g} s")


def _on_signal(handler: Callable[..., None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def reason_of(error: Exception) -> str:
    """Why nothing was started, in fewer words than Ray's if HAProxy lacks a port."""
    taken = dict.fromkeys(PORT_IN_USE.findall(str(error)))
    if not taken:
        return str(error)
    return (
        f"expected free ports for HAProxy, got {' and '.join(taken)} in use, perhaps by an HAProxy that a "
        "cluster has left behind; RAY_SERVE_HAPROXY_METRICS_PORT and "
        "RAY_SERVE_HAPROXY_STATS_PORT choose other ports"
    )


def stop(seconds: float) -> int:
    """End the application within about `seconds`, and the cluster if it is new. Returns the exit status."""
    # calls to a cluster that has lost its nodes may never return
    ending = threading.Thread(target=_end, daemon=True)
    ending.start()
    ending.join(seconds + STOP_SECONDS)
    if ending.is_alive():
        log.error("the Ray cluster does not answer: its processes may be left")
        return 1
    log.info("turnpike has stopped")
    return 0


def _end() -> None:
    serve.delete(NAME)
    ray.shutdown()
