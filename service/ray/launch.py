"""`turnpike serve --engine ray`: starts a Ray cluster or joins one, and serves until a signal."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator

import ray
from ray import serve
from ray.exceptions import RayError

from service.config.settings import Settings
from service.errors import ServiceError
from service.http.connection.listener import url_of
from service.ray.application import NAME, arguments_of, build_with
from service.telemetry.log import TERMINAL_LINES, configure_logging

log = logging.getLogger("turnpike")

# what the cluster may take to stop, beyond the time that requests have
STOP_SECONDS = 15.0


class RayStartError(ServiceError):
    """The service could not be started on Ray."""

    exit_status = 1


def launch(settings: Settings) -> int:
    """Serve on Ray until SIGINT or SIGTERM. Returns the exit status.

    Raises:
        RayStartError: The cluster cannot be reached, or no replica starts.
    """
    configure_logging(settings.log_level)
    try:
        if settings.ray_address is None:
            # a cluster for this service alone, which tells nobody that it runs
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
        else:
            ray.init(settings.ray_address, log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, RayError, RuntimeError) as error:
        raise RayStartError(f"--ray-address: expected a Ray cluster that answers: {error}") from error
    with stop_signal() as stopped:
        try:
            serve.start(http_options={"host": settings.host, "port": settings.port})
            serve.run(build_with(arguments_of(settings)), name=NAME, route_prefix="/")
        except (RayError, RuntimeError) as error:
            raise RayStartError(f"no replica started: {error}") from error
        url = url_of("http", settings.host, settings.port)
        lines = [f"page: {url}/"] if settings.dashboard else []
        log.info("turnpike serves %s on Ray", url, extra={TERMINAL_LINES: [*lines, "Ctrl-C stops it"]})
        stopped.wait()
    log.info("turnpike is stopping: requests have %g s to finish", settings.drain_seconds)
    return stop(settings)


def stop(settings: Settings) -> int:
    """End the application, and the cluster if it was started for it. Returns the exit status."""
    # calls to a cluster that has lost its nodes may never return
    ending = threading.Thread(target=_end, args=(settings.ray_address is None,), daemon=True)
    ending.start()
    ending.join(settings.drain_seconds + STOP_SECONDS)
    if ending.is_alive():
        log.error("the Ray cluster does not answer: its processes may be left")
        return 1
    log.info("turnpike has stopped")
    return 0


def _end(has_own_cluster: bool) -> None:
    serve.delete(NAME)
    if has_own_cluster:
        serve.shutdown()
    ray.shutdown()


@contextlib.contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    yield stopped
