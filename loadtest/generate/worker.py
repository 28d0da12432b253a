"""A sending process: a locust worker that does nothing but send, so that nothing delays its requests."""

from __future__ import annotations

import gc
import os
import signal
import traceback
from typing import Any, NoReturn

import gevent
import locust.runners
from gevent.os import nb_read
from locust.env import Environment

from turnpike.loadtest.generate.locust_users import LoadUser, WireUser
from turnpike.loadtest.generate.process_load import ProcessLoad, cpu_seconds, starved_seconds
from turnpike.loadtest.ledger import now
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.workload.workload import Workload

# names of the messages between coordinator and workers
RATE, DRAIN, DRAINED, LEDGER = "turnpike_rate", "turnpike_drain", "turnpike_drained", "turnpike_ledger"
# length of the port number that the coordinator sends through the pipe
PORT_DIGITS = 5
# seconds over which CPU usage is measured at least: over shorter times the figure would be too rough
BUSY_SECONDS = 0.9
# seconds of a rate at least, so that a share of them is finite
MIN_RATE_SECONDS = 0.001


def run_worker(plan: LoadPlan, workload: Workload, name: str, pipe: int) -> NoReturn:
    """Work for the coordinator until it ends, then end this process.

    Args:
        plan: What to send, and to which server.
        workload: The requests and their expected answers.
        name: Tells workers apart in random seeds.
        pipe: The coordinator's port arrives here; the pipe closes when the coordinator dies.
    """
    status = 1
    try:
        # a terminal may send these to all processes; the coordinator ends the workers
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        if port := os.read(pipe, PORT_DIGITS):
            gevent.spawn(_exit_when_closed, pipe)
            _serve(plan, workload, name, int(port))
        status = 0
    except BaseException:  # a forked process must never return into the code of its parent
        traceback.print_exc()
    finally:
        os._exit(status)


def _serve(plan: LoadPlan, workload: Workload, name: str, port: int) -> None:
    # objects that exist now live as long as the process: keep the garbage collector from scanning them
    gc.collect()
    gc.freeze()
    locust.runners.WORKER_REPORT_INTERVAL = 1.0
    environment = Environment(user_classes=[WireUser], host=plan.url)
    process_load = LoadUser.process_load = ProcessLoad(plan, workload, name)
    if plan.open_loop:
        process_load.sender.open_connections()
    runner = environment.create_worker_runner("127.0.0.1", port)
    begun, used = now(), cpu_seconds()
    # when the rate was set, and how long this process had waited for a CPU until then
    rate_set, starved = now(), starved_seconds()

    def on_report(client_id: str, data: dict[str, Any]) -> None:
        nonlocal begun, used
        data["ledger"] = process_load.ledger.pop_json()
        data["wrong"], data["busy"] = workload.checker.first_wrong, None
        ended, used_now = now(), cpu_seconds()
        if ended - begun >= BUSY_SECONDS:
            data["busy"] = [ended, (used_now - used) / (ended - begun)]
            begun, used = ended, used_now

    def on_rate(environment: Environment, msg: Any) -> None:
        nonlocal rate_set, starved
        process_load.rate = msg.data["rate"]
        rate_set, starved = now(), starved_seconds()

    def on_drain(environment: Environment, msg: Any) -> None:
        share = (starved_seconds() - starved) / max(now() - rate_set, MIN_RATE_SECONDS)
        process_load.drain()
        runner._send_stats()
        runner.send_message(DRAINED, {**msg.data, "starved": share})

    environment.events.report_to_master.add_listener(on_report)
    runner.register_message(RATE, on_rate)
    runner.register_message(DRAIN, on_drain, concurrent=True)
    runner.greenlet.join()


def _exit_when_closed(pipe: int) -> None:
    """End this process when the pipe closes, which it does whenever the coordinator ends."""
    os.set_blocking(pipe, False)
    while nb_read(pipe, 1):
        pass
    os._exit(1)
